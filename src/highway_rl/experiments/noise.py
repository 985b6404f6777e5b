"""A gate that luck cannot open, on tables: Highway Q-learning with the paper's chooser and with that of halves.

Choice is nothing but luck after the first action; in Trace Back and in the paper's example, walked, nothing is. A cell
is a task, a delay and a chooser; a row is a seed, with the episode after which its greedy policy was right, and stayed
so for ten.

Not a figure of the paper.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.envs import make_task
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Row, Rows, Scale, Verdict, select
from highway_rl.experiments.toy_delayed import DELAYS, SEEDS, cores
from highway_rl.records.figures import axes, colour, legend, log_ticks, save
from highway_rl.tabular import agent as tabular
from highway_rl.tabular.loop import trainer
from highway_rl.types import NEVER

CHOOSERS = ("half", "sample")
CAP = {"smoke": 20, "quick": 1_000, "paper": 3_000}
"""Episodes of a seed. Past 3,000 the choice of the paper's gate is settled."""
FIRST = 1_000
"""The first seed: those below were used to choose."""
ENOUGH = {"choice": 100.0, "trace-back": 130.0}
"""Mean episodes."""
SURE: dict[str, dict[str, tuple[int, ...]]] = {
    "smoke": {}, "quick": {"example-walk": (10,)}, "paper": {"example-walk": (10, 30)}
}  # fmt: skip
MORE = 1.2
"""Times the episodes of the paper's gate, at most, where nothing is chance."""
AT_ONCE = 10
LONG = 100
"""With more delay than this a cell is only so many seeds as run side by side, so that cores share them."""


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    """Cheap ones first."""
    seeds = SEEDS[scale]
    found = [
        {"task": task, "delay": delay, "chooser": chooser, "cap": CAP[scale], "seeds": piece, "first": first}
        for task, delays in (DELAYS[scale] | SURE[scale]).items()
        for delay in delays
        for chooser in CHOOSERS[: 1 if scale == "smoke" else None]
        for piece in [AT_ONCE if delay > LONG and seeds % AT_ONCE == 0 else seeds]
        for first in range(FIRST, FIRST + seeds, piece)
    ]
    return [{**cell, "base_seed": seed} for cell in sorted(found, key=cost)]


def cost(cell: dict[str, Any]) -> float:
    """About how many seconds of one core."""
    delay, policies = cell["delay"], 32 if cell["chooser"] == "half" else 3
    episodes = 60 if cell["chooser"] == "half" else 400
    return float(10 + 1.5e-8 * policies * delay**2 * episodes * cell["seeds"])


def run(task: str, delay: int, chooser: str, cap: int, seeds: int, first: int, base_seed: int) -> Iterable[Row]:
    """A row per seed; groups of seeds run side by side."""
    env = make_task(task, delay=delay)
    agent = tabular.highway_q_learning(env.horizon, chooser=chooser)
    numbers = jnp.arange(first, first + seeds, dtype=jnp.uint32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(base_seed), numbers)
    groups = list(keys.reshape(-1, AT_ONCE if seeds % AT_ONCE == 0 else seeds))
    with jax.enable_x64(True):
        learn: Any = trainer(env, tabular.learner(env, agent), max_episodes=cap, until="greedy", keep=lambda memory: ())
        program = learn.lower(groups[0]).compile()
    with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
        learned = list(pool.map(lambda group: jax.block_until_ready(program(group)), groups))
    for seed, episodes in enumerate(np.concatenate([one.greedy for one in learned]), first):
        yield {"seed": seed, "episodes": min(int(episodes), cap), "solved": int(episodes) < NEVER}


def summary(rows: Rows, task: str, chooser: str) -> dict[int, tuple[float, int, int]]:
    """By delay: mean episodes (the cap where a seed never solved it), how many solved it, of how many."""
    chosen = select(rows, task=task, chooser=chooser)
    found = {}
    for delay in sorted({row["delay"] for row in chosen}):
        here = select(chosen, delay=delay)
        found[delay] = (
            float(np.mean([row["episodes"] for row in here])),
            sum(bool(row["solved"]) for row in here),
            len(here),
        )
    return found


def luck(rows: Rows) -> Verdict:
    """Every seed solves both tasks at every delay, and soon enough on average; the example as soon as by samples."""
    told, good = [], []
    for task, most in ENOUGH.items():
        found = summary(rows, task, "half")
        good += [mean <= most and solved == of for mean, solved, of in found.values()]
        means = [mean for mean, _, _ in found.values()]
        lost = sum(of - solved for _, solved, of in found.values())
        told.append(f"{task}: mean episodes {min(means):.0f} to {max(means):.0f}, {lost} seeds unsolved")
    for task in SURE["paper"]:
        half, sample = summary(rows, task, "half"), summary(rows, task, "sample")
        for delay in sorted(half.keys() & sample.keys()):
            told.append(f"{task} {delay}: {half[delay][0]:.0f} (largest sample {sample[delay][0]:.0f})")
            good.append(half[delay][0] <= MORE * sample[delay][0] and half[delay][1] == half[delay][2])
    return Verdict("; ".join(told), HOLDS if all(good) else PARTLY if any(good) else FAILS)


def plot(rows: Rows, out: Path) -> list[Path]:
    tasks = [task for task in (*ENOUGH, *SURE["paper"]) if select(rows, task=task)]
    figure, grid = axes(
        len(tasks), "Highway Q-learning: episodes until it is solved, mean of all seeds", size=(4.4, 3.2)
    )
    for ax, task in zip(grid, tasks, strict=True):
        for chooser, line in (("half", "-"), ("sample", "--")):
            found = summary(rows, task, chooser)
            if found:
                means = [mean for mean, _, _ in found.values()]
                name = {"half": "chosen by halves", "sample": "largest sample (paper)"}[chooser]
                ax.plot(list(found), means, line, marker="o", ms=4, color=colour("highway"), label=name)
        if task in ENOUGH:
            ax.axhline(ENOUGH[task], color="0.6", lw=0.8, ls=":")
        ax.set(title=task, xlabel="delay", ylabel="episodes")
        log_ticks(ax, "x")
        log_ticks(ax) if task == "choice" else ax.set_ylim(0, None)
        legend(ax, loc="center right" if task == "choice" else "lower right")
    return [save(figure, out / "noise.png")]


EXPERIMENT = Experiment(
    name="noise",
    paper="none",
    summary="a gate that luck cannot open, on tables: Choice and Trace Back",
    cells=cells,
    run=run,
    plot=plot,
    claims={102: luck},
    cost=cost,
)
