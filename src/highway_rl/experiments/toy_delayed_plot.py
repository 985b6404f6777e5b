"""The figures of `toy-delayed`, and RUDDER's published medians that are drawn in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.experiments.base import Rows, select
from highway_rl.records.figures import axes, colour, legend, log_band, log_ticks, save

CHOICE_DELAYS = (10, 15, 20, 25, 30, 35, 40, 45, 50, 100, 500)
TRACE_DELAYS = (6, 8, 10, 12, 15, 17, 20, 22, 25)
PUBLISHED: dict[tuple[str, str], dict[int, float]] = {
    ("choice", "RUDDER"): dict(
        zip(CHOICE_DELAYS, (2572, 2626, 2704, 2881, 2901, 2732, 2710, 2797, 2970, 3307, 3054), strict=True)
    ),
    ("choice", "Monte Carlo"): dict(
        zip(
            CHOICE_DELAYS,
            (8223, 13079, 17301, 24599, 32656, 31052, 39787, 37716, 54003, 88090, 233895),
            strict=True,
        )
    ),
    ("choice", "Q(λ)"): dict(
        zip(CHOICE_DELAYS[:7], (65939, 115525, 171655, 234868, 306028, 382873, 466607), strict=True)
    ),
    ("trace-back", "RUDDER"): dict(zip(TRACE_DELAYS, (838, 844, 846, 840, 1140, 748, 699, 698, 628), strict=True)),
    ("trace-back", "RUDDER + Q(λ)"): dict(
        zip(TRACE_DELAYS, (599, 662, 847, 1045, 772, 1008, 948, 1065, 1062), strict=True)
    ),
    ("trace-back", "Q(λ)"): dict(
        zip(TRACE_DELAYS[:8], (14661, 28292, 42855, 67484, 107111, 134955, 184683, 229049), strict=True)
    ),
    ("trace-back", "SARSA(λ)"): dict(
        zip(TRACE_DELAYS, (8818, 23733, 47565, 78534, 137727, 186420, 270995, 339524, 455082), strict=True)
    ),
}
"""Medians of 100 trials, read from the vector figure of the RUDDER authors' poster."""

MARKS = {
    "Highway Q-learning": "o",
    "Monte Carlo": "s",
    "RUDDER": "D",
    "RUDDER + Q(λ)": "v",
    "Q(λ)": "P",
    "SARSA(λ)": "X",
}
"""Of a method, beside its colour: several curves lie on each other."""

Summary = Callable[[Rows, str, str, str], dict[int, dict[str, float]]]


def plot(rows: Rows, out: Path, summary: Summary, methods: list[str], alphas: tuple[float, ...]) -> list[Path]:
    """Episodes until solved, under both rules; and how often the maximum is misled."""
    return [_solved(rows, out, summary, methods), _misled(rows, out, alphas)]


def _solved(rows: Rows, out: Path, summary: Summary, methods: list[str]) -> Path:
    title = "Episodes until solved (triangles: some seeds at the cap, large: half or more; dashed: published medians)"
    figure, grid = axes(4, title, columns=2, size=(5.6, 4.2))
    for i, task in enumerate(("choice", "trace-back")):
        for rule, ax in (("greedy", grid[i]), ("average", grid[2 + i])):
            for method in methods:
                _curve(ax, summary(rows, task, method, rule), rule, method, _seeds(rows, task, method))
                known = PUBLISHED.get((task, method), {})
                if rule == "average" and known:
                    ax.plot(list(known), list(known.values()), "--", color=colour(method), lw=1)
            words = "greedy policy optimal\nmean; band: its 95 % interval, cut at 1/4 and 4 times the mean"
            words = words if rule == "greedy" else "RUDDER's rule\nmedian; band: 40–60 % of seeds"
            ax.set(xscale="log", xlabel="delay", ylabel="episodes", title=f"{task}, {words}")
            log_ticks(ax)
            ticks = [d for d in (6, 8, 10, 15, 25, 50, 100, 200, 500) if ax.get_xlim()[0] <= d <= ax.get_xlim()[1]]
            ax.set_xticks(ticks, [str(d) for d in ticks], minor=False)
            ax.set_xticks([], minor=True)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return save(figure, out / "toy-delayed.png")


def _seeds(rows: Rows, task: str, method: str) -> dict[int, int]:
    """How many there are, by delay."""
    return Counter(row["delay"] for row in select(rows, method=method, task=task, kind="solve"))


def _curve(ax: Any, found: dict[int, dict[str, float]], rule: str, method: str, seeds: dict[int, int]) -> None:
    if not found:
        return
    delays = list(found)
    if rule == "greedy":
        centre = np.array([x["mean"] for x in found.values()])
        half = np.array([1.96 * x["sd"] / np.sqrt(seeds[d]) for d, x in found.items()])
        low, high = log_band(centre, centre - half, centre + half)
    else:
        centre, low, high = (np.array([x[name] for x in found.values()]) for name in ("median", "low", "high"))
    shade = colour(method)
    ax.plot(delays, centre, f"{MARKS.get(method, 'o')}-", ms=4, lw=1.5, color=shade, label=method)
    ax.fill_between(delays, low, high, color=shade, alpha=0.2, lw=0)
    for size, least, most in ((6, 0.0, 0.5), (11, 0.5, 1.1)):
        capped = [d for d, x in found.items() if x["capped"] > 0 and least <= x["capped"] < most]
        at = [centre[delays.index(d)] for d in capped]
        ax.plot(capped, at, "^", ms=size, mfc="white", color=shade)


def _misled(rows: Rows, out: Path, alphas: tuple[float, ...]) -> Path:
    title = "Highway Q-learning where the worse branch is the noisier one"
    figure, (choice, watch) = axes(2, title, size=(5.4, 3.8))
    for task, ax in (("choice", choice), ("watch-repair", watch)):
        for i, alpha in enumerate(alphas):
            found = [r for r in select(rows, kind="noise", task=task, gate=True) if float(r["alpha"]) == alpha]
            found.sort(key=lambda row: row["rollouts"])
            label = "maximum (α = ∞)" if alpha == float("inf") else f"softmax α = {alpha:g}"
            x = [row["rollouts"] for row in found]
            wide = 1.0 + 1.5 * (len(alphas) - 1 - i)  # the first lie under the others and show at their sides
            shade = colour("Highway Q-learning", 1 - i / max(len(alphas) - 1, 1))
            ax.plot(x, [row["wrong"] for row in found], "o-", ms=wide + 2, lw=wide, color=shade, label=label)
        found = sorted(select(rows, kind="noise", task=task, gate=False), key=lambda row: row["rollouts"])
        x = [row["rollouts"] for row in found]
        ax.plot(x, [row["wrong"] for row in found], "s--", ms=4, color=colour("mean, no gate"), label="mean, no gate")
        ax.axhline(0.5, color="0.7", lw=1, ls=":")
        name = "Choice: worse subtree preferred" if task == "choice" else "watch repair: losing brands repaired"
        ax.set(xscale="log", ylim=(-0.03, 1.03), xlabel="rollouts per policy", ylabel="share of seeds", title=name)
        ticks = sorted({row["rollouts"] for row in select(rows, kind="noise", task=task)})
        ax.set_xticks(ticks, [str(n) for n in ticks], minor=False)
        ax.set_xticks([], minor=True)
    legend(choice, loc="lower left", ncols=2)
    return save(figure, out / "toy-delayed-noise.png")
