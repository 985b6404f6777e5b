"""Small training runs for tests: real ones, and ones in which the compiled program is a fake that only counts."""

import contextlib
import csv
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl import runs
from highway_rl.deep import dqn, loop
from highway_rl.deep.diagnostics import Seen
from highway_rl.deep.learning import Learning
from highway_rl.experiments import ablation, freeway, late_tasks, main
from highway_rl.runs.presets import PRESETS
from highway_rl.types import NEVER

SMALL = {"capacity": 500, "start": 100, "refresh": 100, "network": "mlp"}
CONFIG = runs.Config(
    "late",
    algos=("dqn", "soft-highway-dqn"),
    seeds=2,
    env={"length": 6},
    settings=SMALL,
    preset="explorer",
    steps=1_200,
    report_every=300,  # neither checkpoints nor stops fall on reports
    checkpoint_every=100,
    episodes=5,
)
"""A real run of two algorithms and two seeds in one program."""

COUNTED = runs.Config(
    "late",
    algos=("dqn", "soft-highway-dqn"),
    seeds=2,
    settings={"capacity": 500, "start": 100, "refresh": 100},
    preset="explorer",
    steps=1_000,
    report_every=100,
    checkpoint_every=200,
    keep=1,
)
WORDS = ["late", "--algo", "dqn", "--algo", "soft-highway-dqn", "--seeds", "2", "--steps", "1000", "--json"]
WORDS += ["--preset", "explorer", "--setting", "capacity=500", "--setting", "start=100", "--setting", "refresh=100"]
WORDS += ["--report-every", "100"]


@contextlib.contextmanager
def as_users() -> Iterator[None]:
    """JAX's own precision, and a compiler that hurries, for what outlives a test's own settings."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield
    jax.config.update("jax_disable_most_optimizations", before)


def same(one: Any, other: Any) -> None:
    """Two trees are equal to the bit."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def after(periods: int) -> Callable[[], bool]:
    """Stops a training after so many periods."""
    left = iter([False] * (periods - 1) + [True])
    return lambda: next(left)


def program(out: Path, number: int = 0) -> Path:
    """Where a program's checkpoints are."""
    return out / "checkpoints" / f"program_{number}"


def rows(out: Path) -> dict[tuple[str, str], list[int]]:
    """The steps of the rows of each run."""
    found: dict[tuple[str, str], list[int]] = {}
    with (out / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            found.setdefault((row["algo"], row["seed"]), []).append(int(row["step"]))
    return found


def until(step: int) -> list[int]:
    return list(range(100, step + 1, 100))


def strictly(text: str) -> Any:
    """JSON as the standard has it: no NaN."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def shortly(patch: pytest.MonkeyPatch) -> None:
    """The smoke scale of experiments that train, in the same programs but with shorter periods and smaller stores."""
    steps, shape = 300, {"refresh": 100, "start": 100, "capacity": 1_000}
    for preset in ("general", "paper"):
        patch.setitem(PRESETS, preset, PRESETS[preset] | shape)
    size = main.SIZES["smoke"]
    patch.setitem(main.SIZES, "smoke", size._replace(steps=dict.fromkeys(size.steps, steps)))
    patch.setitem(ablation.SIZES, "smoke", ablation.SIZES["smoke"]._replace(steps=steps))
    patch.setitem(late_tasks.STEPS, "smoke", steps)
    variants, seeds, *_ = freeway.SIZES["smoke"]
    patch.setitem(freeway.SIZES, "smoke", (variants, seeds, 2_700, 1))  # an episode has 2,500 steps


def counting(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], int]:
    """Training that only counts the periods; the runs named in what is returned, by rule and seed, break there."""
    steps: dict[tuple[int, int], int] = {}

    def init(env: Any, agent: Any, schedule: Any, key: Any) -> loop.Run:
        zero: Any = jnp.zeros(1)
        return loop.Run(Learning(zero, None), zero, zero, key, zero, zero, zero, jnp.int32(NEVER))

    def advance(
        env: Any, agent: Any, schedule: Any, run: loop.Run, first: Any, periods: int, learn_from: Any, look: Any
    ) -> tuple[loop.Run, loop.Curve]:
        at = np.full((2, 2), NEVER)
        for place, step in steps.items():
            at[place] = step
        end = (first + 1) * schedule.refresh
        mine = jnp.asarray(at, jnp.int32)[agent.which, jax.random.key_data(run.key)[-1]]
        broken = jnp.where(mine < end, mine, NEVER)
        fine = broken == NEVER
        loss = jnp.where(fine, end / 1000, jnp.nan)
        curve = loop.Curve(end, jnp.int32(1), loss, loss, loss, loss, broken, Seen.nothing(agent))
        learning = Learning(run.learning.params + fine, None)
        return run._replace(learning=learning, broken=broken), jax.tree.map(lambda x: jnp.asarray(x)[None], curve)

    def play(env: Any, act: Any, key: Any, *, epsilon: Any, episodes: int, max_steps: int) -> Any:
        score = jnp.arange(episodes) + act(None)[0]
        return evaluating.Played(score, score, score > 0)

    evaluating: Any = importlib.import_module("highway_rl.runs.evaluate")
    monkeypatch.setattr(loop, "init", init)
    monkeypatch.setattr(loop, "advance", advance)
    monkeypatch.setattr(importlib.import_module("highway_rl.runs.programs"), "make_agent", lambda agent, spec: agent)
    monkeypatch.setattr(evaluating, "play", play)
    monkeypatch.setattr(dqn, "q_values", lambda agent, spec, params, obs: params)
    monkeypatch.setattr(dqn, "best", lambda q: q)
    return steps
