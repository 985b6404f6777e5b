"""Depth: n-step DQN against n-step Highway DQN as n grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from highway_rl.experiments.ablation import SIZES, Variants, ablation, by_variant
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.main_plot import title
from highway_rl.experiments.scores import average, values
from highway_rl.records.figures import axes, legend, look, save

KINDS = {"n-step DQN": "n-step-dqn", "n-step Highway DQN": "n-step-highway-dqn"}
DEPTHS: dict[Scale, tuple[int | str, ...]] = {
    "smoke": (3, "end"),
    "quick": (2, 8, "end"),
    "paper": (2, 3, 5, 8, 16, "end"),
}
SYMBOL = {"end": "∞"}


def _variants(depths: tuple[int | str, ...]) -> Variants:
    return {f"{kind}, n = {SYMBOL.get(str(n), n)}": f"{algo}:n={n}" for kind, algo in KINDS.items() for n in depths}


VARIANTS: dict[Scale, Variants] = {scale: _variants(depths) for scale, depths in DEPTHS.items()}


def trend(runs: dict[str, dict[str, Rows]], kind: str) -> float:
    """The rank correlation of depth and greedy score, over the seeds of each game, as a mean over games."""
    mine = [by_task for name, by_task in runs.items() if name.startswith(f"{kind},")]
    found = []
    for task in mine[0]:
        pairs = [(place, x) for place, by_task in enumerate(mine) for x in values(by_task[task], "greedy")]
        places, scores = zip(*pairs, strict=True) if pairs else ((), ())
        found.append(float(spearmanr(places, scores).statistic) if len(set(scores)) > 1 else 0.0)
    return float(np.mean(found)) if found else 0.0


def deeper(runs: dict[str, dict[str, Rows]]) -> Verdict:
    """Claim 13: the score falls with n for n-step DQN, and rises for n-step Highway DQN."""
    plain, gated = (trend(runs, kind) for kind in KINDS)
    verdict = HOLDS if plain <= -0.3 and gated >= 0.3 else PARTLY if gated > plain else FAILS
    return Verdict(
        f"rank correlation of n and score: n-step DQN {plain:+.2f}, n-step Highway DQN {gated:+.2f}", verdict
    )


def plot(rows: Rows, out: Path) -> list[Path]:
    """The paper's figure: score by depth, a line a method."""
    scale: Scale = rows[0]["scale"]
    runs = by_variant(rows, VARIANTS)
    tasks = list(next(iter(runs.values())))
    figure, grid = axes(len(tasks), EXPERIMENT.summary, size=(4.4, 3.2))
    depths = DEPTHS[scale]
    for ax, task in zip(grid, tasks, strict=True):
        for kind, algo in KINDS.items():
            mine = [by_task[task] for name, by_task in runs.items() if name.startswith(f"{kind},")]
            found = {i: one for i, its in enumerate(mine) if (one := average(its, "greedy")) is not None}
            style, at = look(algo), list(found)
            means, lows, highs = zip(*found.values(), strict=True) if found else ((), (), ())
            ax.plot(at, means, style.line, marker="o", ms=4, color=style.colour, label=kind)
            ax.fill_between(at, lows, highs, color=style.colour, alpha=0.18, lw=0)
            for i, its in enumerate(mine):
                each = values(its, "greedy")
                ax.plot(np.full(len(each), i), each, ".", ms=4, color=style.colour, alpha=0.5)
        ax.set_xticks(range(len(depths)), [SYMBOL.get(str(n), str(n)) for n in depths])
        k = next(iter(runs.values()))[task][0]["k"]
        ax.set(title=f"{title(task, SIZES[scale].env)}, k = {k}", xlabel="n", ylabel="greedy test")
    legend(grid[0])
    return [save(figure, out / "depth.png")]


EXPERIMENT = ablation(
    "depth",
    "Fig. 7b",
    "the score by depth n, with and without the gate, reward at the end",
    VARIANTS,
    (13, deeper),
    agent="n-step Highway DQN",
    order=30,
    plot=plot,
)
