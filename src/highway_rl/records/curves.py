"""The picture of a training folder: scores, the depths the gate chose, and whether values are too high or too low."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.records import figures
from highway_rl.records.figures import Look
from highway_rl.records.rows import Rows, read_metrics

MARKS = ("o", "^", "s", "D", "v", "P", "X", "*")
"""Of depths, in the order of the columns."""


def draw(folder: Path) -> Path:
    """`curves.png` from `metrics.csv` and, where it is there, `evaluation.json`."""
    rows = read_metrics(folder)
    if not rows:
        raise ValueError(f"{folder} has no rows in its metrics.csv: wait for the first report, or train it")
    algos = list(dict.fromkeys(r["algo"] for r in rows))
    looks = figures.looks(algos)
    panels: list[Callable[[Any, Rows, dict[str, Look]], None]] = [scores]
    if tested := _evaluation(folder):
        panels.append(lambda axis, _, styles: final(axis, tested, styles))
    if any(depths(rows, algo, "won_") for algo in algos):
        panels.append(winners)
    if any(depths(rows, algo, "open_") for algo in algos):
        panels.append(gates)
    panels.append(bias)
    tall = min(max(3.4, 0.45 * len(algos)), 8.0)
    figure, axes = figures.axes(len(panels), _title(folder), columns=min(3, len(panels)), size=(4.8, tall))
    in_order = {algo: looks[algo] for algo in algos}
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis, rows, in_order)
        if panel is not panels[1] or not tested:
            _steps(axis)
    names = figures.short(algos)
    lines = {n: {"color": x.colour, "linestyle": x.line} for n, x in zip(names, in_order.values(), strict=True)}
    figures.key(figure, lines, handlelength=3, labelspacing=0.8)
    return figures.save(figure, folder / "curves.png")


def _steps(axis: Any) -> None:
    """Steps as 500k, 1M: short, and never too many for the room there is."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_xlabel("step")
    axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def scores(axis: Any, rows: Rows, looks: dict[str, Look]) -> None:
    """Mean over seeds by step; the band goes from the least to the largest seed."""
    for algo, (colour, line) in looks.items():
        step, found = curve(rows, algo, "score")
        axis.plot(step, mean(found), line, color=colour)
        axis.fill_between(step, *band(found), color=colour, alpha=0.15, lw=0)
    axis.set(title="Score of training episodes", ylabel="mean; band: least to largest seed")


def final(axis: Any, tested: Rows, looks: dict[str, Look]) -> None:
    """A bar for the mean of the greedy scores, a dot for each seed; open dots where actions were random now and then.

    Seeds lie side by side across the bar, so that equal scores do not hide each other.
    """
    second = sorted({_epsilon(row) for row in tested} - {0.0})
    size = 3.5 if len(looks) <= 8 else 2.5
    for i, (algo, (colour, _)) in enumerate(looks.items()):
        mine = [r for r in tested if r["algo"] == algo and r.get("broken") is None and r["score"] is not None]
        greedy = [row["score"] for row in mine if _epsilon(row) == 0]
        noisy = [row["score"] for row in mine if _epsilon(row) != 0]
        if greedy:
            axis.barh(i, np.mean(greedy), height=0.8, color=colour, alpha=0.35)
        low, middle, high = i - 0.32, i + 0.04 if noisy else i + 0.32, i + 0.36
        axis.plot(greedy, spread(len(greedy), low, middle - 0.08 * bool(noisy)), "o", ms=size, color=colour)
        axis.plot(noisy, spread(len(noisy), middle + 0.04, high), "o", ms=size, mfc="white", color=colour)
    text = f"\nopen dots: ε = {', '.join(f'{e:g}' for e in second)}" if second else ""
    axis.set(title=f"Greedy episodes with the final networks{text}", xlabel="mean score; a dot is a seed")
    axis.set_yticks(range(len(looks)), figures.short(looks, 22), fontsize=8 if len(looks) <= 8 else 7)
    room = max(len(looks), 3) / 2 + 0.1  # one bar alone does not fill the panel
    axis.set_ylim((len(looks) - 1) / 2 + room, (len(looks) - 1) / 2 - room)


def spread(count: int, low: float, high: float) -> np.ndarray:
    """So many places, evenly from `low` to `high`; one alone is in the middle."""
    return np.linspace(low, high, count) if count > 1 else np.full(count, (low + high) / 2)


def _epsilon(row: dict[str, Any]) -> float:
    """How often actions were random; files without the column hold greedy episodes."""
    return float(row.get("epsilon") or 0.0)


def winners(axis: Any, rows: Rows, looks: dict[str, Look]) -> None:
    """Which return was the largest of a backup, as a share of stored steps."""
    _per_depth(axis, rows, looks, "won_")
    axis.set(title="Which return was the largest", ylabel="share of stored steps", ylim=(-0.03, 1.03))


def gates(axis: Any, rows: Rows, looks: dict[str, Look]) -> None:
    """How often the gate lets a depth through, or would if there were one."""
    _per_depth(axis, rows, looks, "open_")
    axis.set(title="Where the gate is open (or would be)", ylabel="share of stored steps")
    figures.log_ticks(axis)


def bias(axis: Any, rows: Rows, looks: dict[str, Look]) -> None:
    """The target minus the discounted reward that really followed, mean over seeds."""
    for algo, (colour, line) in looks.items():
        step, found = curve(rows, algo, "bias")
        axis.plot(step, mean(found), line, color=colour)
    axis.axhline(0, color="0.6", lw=0.8, zorder=0)
    axis.set(title="Target minus what really followed", ylabel="mean over seeds")


def _per_depth(axis: Any, rows: Rows, looks: dict[str, Look], prefix: str) -> None:
    """Colour and line are the algorithm's, the mark is the depth's."""
    columns = [column for column in rows[0] if column.startswith(prefix)]
    everywhere = dict.fromkeys(c.partition("_")[2] for c in rows[0] if c.startswith(("won_", "open_")))
    marks = dict(zip(everywhere, itertools.cycle(MARKS), strict=False))
    drawn = set()
    for number, (algo, (colour, line)) in enumerate(looks.items()):
        for column in depths(rows, algo, prefix):
            step, found = curve(rows, algo, column)
            every = max(len(step) // 6, 1)
            places = (number * every // max(len(looks), 1), every)  # so that marks of curves on each other are seen
            mark = marks[column.removeprefix(prefix)]
            axis.plot(step, mean(found), line, color=colour, marker=mark, ms=4, markevery=places)
            drawn.add(column)
    for depth in (c.removeprefix(prefix) for c in columns if c in drawn):
        axis.plot([], [], marks[depth], color="0.3", ms=4, label=_named(depth))
    figures.legend(axis)


def _named(depth: str) -> str:
    return {"gate": "1-step (gate shut)", "end": "to the end"}.get(depth, f"{depth}-step")


def depths(rows: Rows, algo: str, prefix: str) -> list[str]:
    """The columns of the depths this algorithm looks at; who wins is a question where there are several."""
    mine = [r for r in rows if r["algo"] == algo]
    found = [k for k in mine[0] if k.startswith(prefix) and any(not np.isnan(r[k]) for r in mine)]
    found = [k for k in found if k != f"{prefix}1"]  # the 1-step return is the gate's own
    return found if prefix == "open_" or len(found) > 2 else []


def _evaluation(folder: Path) -> Rows:
    path = folder / "evaluation.json"
    return json.loads(path.read_text(encoding="utf-8"))["scores"] if path.exists() else []


def _title(folder: Path) -> str:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    env = config.get("env")
    delay = env.get("delay") if isinstance(env, dict) else None
    task = str(config.get("task", folder.name)).rpartition(":")[2]  # of module:name the name
    return task + (f", delay {delay}" if delay else "")


def mean(found: np.ndarray) -> np.ndarray:
    """Over seeds, leaving out what is missing; NaN where all is."""
    known = ~np.isnan(found)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, found, 0).sum(axis=0) / np.maximum(count, 1), np.nan)


def band(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest over seeds."""
    return np.fmin.reduce(found, axis=0), np.fmax.reduce(found, axis=0)


def curve(rows: Rows, algo: str, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and [seed, step] of a column."""
    mine = [r for r in rows if r["algo"] == algo]
    steps = sorted({r["step"] for r in mine})
    seeds = sorted({r["seed"] for r in mine})
    found = np.full((len(seeds), len(steps)), np.nan)
    for r in mine:
        found[seeds.index(r["seed"]), steps.index(r["step"])] = r.get(column, np.nan)
    return np.asarray(steps), found
