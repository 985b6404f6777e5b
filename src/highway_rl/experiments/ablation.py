"""What the ablations have in common: variants of one agent on two delayed games, all with the k that the main screen
chose for the Highway agent of that game; curves, every seed's test, and tables.

The two games were named before any of these runs was made, and after runs of `preset=explorer` on them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from highway_rl.experiments import main
from highway_rl.experiments.base import Experiment, Rows, Scale, Stage, Table, Verdict
from highway_rl.experiments.main import DELAYED, PLAIN, title
from highway_rl.experiments.scores import TESTS, ByTask, average, draw_curves, how_many, mark, seed_table, values
from highway_rl.records.figures import axes, in_order, key_below, save
from highway_rl.runs.trials import Trial

Variants = Mapping[str, str]
"""By the name that figures show, the text of the algorithm."""


class Size(NamedTuple):
    """On which tasks, for how long, how often."""

    tasks: tuple[str, ...]
    env: str
    steps: int
    seeds: int


SIZES: dict[Scale, Size] = {
    "smoke": Size(("harvest",), PLAIN, 1_500, 1),
    "quick": Size((main.LATE,), main.INN, 8_000, 3),
    "paper": Size(("minatar/asterix", "minatar/breakout"), DELAYED, 2_500_000, 5),
}


def stages(
    variants: Mapping[Scale, Variants], agent: str, order: int, sizes: Mapping[Scale, Size] = SIZES
) -> Callable[[Scale, int, Rows], list[Stage]]:
    """The trials of an ablation of the main comparison's `agent`, once the screen has chosen its k."""

    def wanted(scale: Scale, seed: int, rows: Rows) -> list[Stage]:
        size, whole = sizes[scale], main.SIZES[scale]
        picks = main.chosen(rows, whole, size.env, seed)
        found, first = [], []
        for task in size.tasks:
            if task not in picks:
                first += main.screen(whole, task, size.env, seed)
                continue
            like = Trial(task, size.env, "", picks[task][agent].k, size.steps, seed, whole.preset, whole.episodes)
            for algo in variants[scale].values():
                found += [like._replace(algo=algo, seed=seed + i) for i in range(size.seeds)]
        return [Stage(main.when(scale, 10), first, own=False), Stage(main.when(scale, order), found)]

    return wanted


def by_variant(
    rows: Rows,
    variants: Mapping[Scale, Variants],
    sizes: Mapping[Scale, Size] = SIZES,
    later: Collection[str] = (),
) -> dict[str, dict[str, Rows]]:
    """The runs by variant and task: of every task in which each variant has some. Variants that came `later` are left
    out until they have run in all of these."""
    scale: Scale = rows[0]["scale"]
    found: dict[str, dict[str, Rows]] = {name: {} for name in variants[scale]}
    for task in sizes[scale].tasks:
        mine = {
            name: sorted((r for r in rows if r["task"] == task and r["algo"] == algo), key=lambda row: row["seed"])
            for name, algo in variants[scale].items()
        }
        if all(its for name, its in mine.items() if name not in later):
            for name, its in mine.items():
                found[name][task] = its
    return {name: its for name, its in found.items() if name not in later or all(its.values())}


SHOWN = {"value": "mean value of the stored states", "bias": "targets above what followed"}
"""What a third panel may show, by its column."""


def draw(
    rows: Rows,
    variants: Mapping[Scale, Variants],
    path: Path,
    heading: str,
    *,
    also: str | None = None,
    sizes: Mapping[Scale, Size] = SIZES,
    later: Collection[str] = (),
) -> list[Path]:
    """Two panels a game: learning curves, and the greedy test of every seed; three where a column is shown, `also`."""
    runs = by_variant(rows, variants, sizes, later)
    scale: Scale = rows[0]["scale"]
    look = {name: one for name, one in in_order(variants[scale]).items() if name in runs}
    tasks = list(next(iter(runs.values())))
    wide = 3 if also else 2
    seeds = how_many(its for by_task in runs.values() for its in by_task.values())
    figure, grid = axes(wide * len(tasks), f"{heading}, {seeds}", columns=wide, size=(4.4, 3.0))
    for i, task in enumerate(tasks):
        mine = {name: by_task[task] for name, by_task in runs.items()}
        panels = grid[wide * i : wide * (i + 1)]
        where = f"{title(task, sizes[scale].env)}, k = {next(iter(mine.values()))[0]['k']}"
        draw_curves(panels[0], mine, "score", look)
        panels[0].set(title=where, ylabel="training score")
        dots(panels[1], mine, look)
        if also:
            draw_curves(panels[2], mine, also, look)
            panels[2].set(title=SHOWN[also])
    key_below(figure, look)
    return [save(figure, path)]


def dots(ax: Any, runs: Mapping[str, Rows], look: Mapping[str, Any], test: str = "greedy") -> None:
    """Every seed as a point, with their mean and its interval."""
    for i, (name, rows) in enumerate(runs.items()):
        each, found = values(rows, test), average(rows, test)
        ax.plot(each, np.full(len(each), i), "o", ms=4, color=look[name].colour, alpha=0.6)
        if found is not None:
            mark(ax, found, i, look[name].colour, "|", ms=14, mew=2)
    ax.set_yticks(range(len(runs)), list(runs), fontsize=8)
    ax.set(title="greedy test of each seed", ylim=(len(runs) - 0.5, -0.5), xlabel="score")


def ablation(
    name: str,
    paper: str,
    summary: str,
    variants: Mapping[Scale, Variants],
    claim: tuple[int, Callable[[dict[str, dict[str, Rows]]], Verdict]],
    *,
    agent: str,
    order: int,
    also: str | None = None,
    sizes: Mapping[Scale, Size] = SIZES,
    later: Collection[str] = (),
    plot: Callable[[Rows, Path], list[Path]] | None = None,
) -> Experiment:
    """An experiment of variants; its claim is judged by the runs by variant and task."""
    number, judge = claim
    split = functools.partial(by_variant, variants=variants, sizes=sizes, later=later)
    how: Any = {"also": also, "sizes": sizes, "later": later}

    def tables(rows: Rows) -> list[Table]:
        runs: Mapping[str, ByTask] = split(rows)
        return [seed_table(summary, runs, test, lambda variant, _: variant) for test in TESTS]

    return Experiment(
        name=name,
        paper=paper,
        summary=summary,
        plot=plot or (lambda rows, out: draw(rows, variants, out / f"{name}.png", summary, **how)),
        claims={number: lambda rows: judge(split(rows))},
        stages=stages(variants, agent, order, sizes),
        tables=tables,
        ready=lambda rows: bool(rows) and any(split(rows).values()),
    )
