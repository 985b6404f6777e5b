"""Depth: n-step DQN against n-step Highway DQN as n grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from highway_rl.experiments.ablation import SIZES, Variants, ablation, by_variant
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.main import title
from highway_rl.experiments.scores import average, how_many, parts, said, values
from highway_rl.records.figures import axes, look, save
from highway_rl.records.statistics import Interval, rank_correlation

KINDS = {"n-step DQN": "n-step-dqn", "n-step Highway DQN": "n-step-highway-dqn"}
DEPTHS: dict[Scale, tuple[int | str, ...]] = {
    "smoke": (3, "end"),
    "quick": (2, 8, "end"),
    "paper": (2, 3, 5, 8, 16, "end"),
}
SYMBOL = {"end": "∞"}
LINES = {"n-step DQN": ":", "n-step Highway DQN": "-"}


def _variants(depths: tuple[int | str, ...]) -> Variants:
    return {f"{kind}, n = {SYMBOL.get(str(n), n)}": f"{algo}:n={n}" for kind, algo in KINDS.items() for n in depths}


VARIANTS: dict[Scale, Variants] = {scale: _variants(depths) for scale, depths in DEPTHS.items()}


def trend(runs: dict[str, dict[str, Rows]], kind: str, test: str) -> Interval[float]:
    """Spearman's rank correlation of depth and score over the seeds of each game, as a mean over games."""
    mine = [by_task for name, by_task in runs.items() if name.startswith(f"{kind},")]
    scores = {task: [found for by_task in mine if (found := values(by_task[task], test))] for task in mine[0]}
    return rank_correlation({task: of for task, of in scores.items() if of} or {"none": [[0.0]]})


def deeper(runs: dict[str, dict[str, Rows]]) -> Verdict:
    """Claim 13: the score falls with n for n-step DQN, and rises for n-step Highway DQN, in training and in tests."""
    words, good = [], []
    each: dict[str, bool] = {}
    for test in ("training", "greedy"):
        a, b = KINDS
        plain, gated = (trend(runs, kind, test) for kind in KINDS)
        words.append(f"{test}: " + ", ".join(f"{k} {said(x, 2)}" for k, x in zip(KINDS, (plain, gated), strict=True)))
        each |= {f"{a} falls, {test}": plain.value <= -0.3, f"{b} rises, {test}": gated.value >= 0.3}
        rises = plain.value <= -0.3 and gated.value >= 0.3
        good.append(HOLDS if rises else PARTLY if gated.value > plain.value else FAILS)
    told = f"{parts(each)}rank correlation of n and score, {'; '.join(words)}"
    return Verdict(told, good[0] if good[0] == good[1] else PARTLY)


def plot(rows: Rows, out: Path) -> list[Path]:
    """The paper's figure: score by depth, a line a method; in training and in the greedy test."""
    scale: Scale = rows[0]["scale"]
    runs = by_variant(rows, VARIANTS)
    tasks = list(next(iter(runs.values())))
    tests = {"training": "training score", "greedy": "greedy test"}
    panels = [(task, test) for test in tests for task in tasks]
    seeds = how_many(its for by_task in runs.values() for its in by_task.values())
    figure, grid = axes(len(panels), f"{EXPERIMENT.summary.capitalize()}, {seeds}", columns=len(tasks), size=(4.4, 2.8))
    depths = DEPTHS[scale]
    for ax, (task, test) in zip(grid, panels, strict=True):
        for kind, algo in KINDS.items():
            mine = [by_task[task] for name, by_task in runs.items() if name.startswith(f"{kind},")]
            found = {i: one for i, its in enumerate(mine) if (one := average(its, test)) is not None}
            style, at = look(algo), list(found)
            means, lows, highs = zip(*found.values(), strict=True) if found else ((), (), ())
            ax.plot(at, means, LINES[kind], marker="o", ms=4, color=style.colour, label=kind)
            ax.fill_between(at, lows, highs, color=style.colour, alpha=0.18, lw=0)
            for i, its in enumerate(mine):
                each = values(its, test)
                ax.plot(np.full(len(each), i), each, ".", ms=4, color=style.colour, alpha=0.5)
        ax.set_xticks(range(len(depths)), [SYMBOL.get(str(n), str(n)) for n in depths])
        k = next(iter(runs.values()))[task][0]["k"]
        ax.set(title=f"{title(task, SIZES[scale].env)}, k = {k}", xlabel="n", ylabel=tests[test])
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
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
