"""Small tasks of different kinds with a late reward: do the settings for everything learn them, as they are?

A cell is a task with its runs: four algorithms side by side, all with `preset=general` and nothing named beside it. A
score is shown on the way from what random play earns (0) to what optimal play earns (1); a run has solved its task from
0.9 on, and from 0.5 on where the score itself is noisy and the two policies are 0 and 1.

Not a figure of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.envs.tasks.late import KNOWN, LATE
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Row, Rows, Scale, Verdict, select
from highway_rl.experiments.deep import rows_of_runs
from highway_rl.records.figures import axes, colour, save
from highway_rl.runs import Config

ALGOS = ("soft-highway-dqn", "n-step-highway-dqn", "dqn", "n-step-dqn")
TASKS = {"smoke": ("harvest",), "quick": ("harvest", "key-door"), "paper": tuple(LATE)}
SEEDS = {"smoke": 1, "quick": 2, "paper": 10}
STEPS = {"smoke": 1_500, "quick": 15_000, "paper": 30_000}
FIRST = 100
"""The first seed: those below were used to choose the preset."""
ENOUGH = {"umbrella": 0.5}
EPISODES = {"umbrella": 1000}
"""Of the test: its score is the sum of thirty coin tosses and the one thing that matters."""


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    return [
        {"task": task, "steps": STEPS[scale], "seeds": SEEDS[scale], "first": FIRST + seed} for task in TASKS[scale]
    ]


def run(task: str, steps: int, seeds: int, first: int) -> Iterable[Row]:
    """Every run of a task, and how far its score lies between random and optimal play."""
    episodes = EPISODES.get(task, 200) if steps > STEPS["smoke"] else 10
    algos = ALGOS if steps > STEPS["smoke"] else ALGOS[:1]
    config = Config(task, algos, seeds=seeds, seed=first, steps=steps, preset="general", episodes=episodes)
    known = KNOWN[task]
    for row in rows_of_runs(config):
        way = (row["greedy"] - known.random) / (known.best - known.random)
        yield {**row, "way": way, "solved": way >= ENOUGH.get(task, 0.9)}


def solved(rows: Rows, task: str, algo: str) -> tuple[int, int]:
    """How many seeds solved a task, and how many there were."""
    found = select(rows, task=task, algo=algo)
    return sum(bool(row["solved"]) for row in found), len(found)


def general(rows: Rows) -> Verdict:
    """Soft Highway with the general preset, on every task."""
    counts = {task: solved(rows, task, ALGOS[0]) for task in dict.fromkeys(row["task"] for row in rows)}
    value = ", ".join(f"{task} {good}/{of}" for task, (good, of) in counts.items())
    good = [task for task, (won, of) in counts.items() if won >= 0.9 * of]
    whole = len(good) == len(counts) >= 6
    return Verdict(f"seeds that solved it: {value}", HOLDS if whole else PARTLY if good else FAILS)


def plot(rows: Rows, out: Path) -> list[Path]:
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    title = "Small tasks with a late reward, preset general (right: seeds that solved it)"
    figure, grid = axes(len(tasks), title, columns=4, size=(3.4, 2.6))
    spread = np.random.default_rng(0)
    for ax, task in zip(grid, tasks, strict=True):
        for i, algo in enumerate(ALGOS):
            found = select(rows, task=task, algo=algo)
            up = i + np.linspace(-0.25, 0.25, len(found)) * (len(found) > 1)
            ax.plot([row["way"] for row in found], spread.permutation(up), "o", ms=4, color=colour(algo), alpha=0.8)
            good, of = solved(rows, task, algo)
            ax.text(1.02, i, f"{good}/{of}", transform=ax.get_yaxis_transform(), va="center", fontsize=8)
        ax.axvline(ENOUGH.get(task, 0.9), color="0.6", lw=0.8, ls=":")
        ax.set(title=task, ylim=(len(ALGOS) - 0.5, -0.5), xlabel="score: 0 random, 1 optimal play")
        ax.set_yticks(range(len(ALGOS)), [algo.removesuffix("-dqn") for algo in ALGOS], fontsize=8)
    return [save(figure, out / "late-tasks.png")]


EXPERIMENT = Experiment(
    name="late-tasks",
    paper="none",
    summary="the general preset on seven small tasks with a late reward",
    cells=cells,
    run=run,
    plot=plot,
    claims={101: general},
    cost=lambda cell: float(cell["steps"] * cell["seeds"]),
    networks=True,
)
