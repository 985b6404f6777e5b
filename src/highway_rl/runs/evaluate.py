"""Episodes with the final networks of every run: greedy, and at the share of random actions it was trained with."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from highway_rl import checks
from highway_rl.data.codec import codec_of
from highway_rl.deep import dqn
from highway_rl.deep.dqn import DQN
from highway_rl.deep.evaluation import Played, by_algo, play, play_outside, summary
from highway_rl.records.rows import write_text
from highway_rl.runs.config import Setup
from highway_rl.runs.programs import Program
from highway_rl.types import Env, HostEnv, Spec


def evaluate(
    s: Setup,
    params: Sequence[PyTree],
    *,
    episodes: int = 100,
    seed: int = 0,
    max_steps: int = 100_000,
    broken: Mapping[int, int] | None = None,
) -> list[dict[str, Any]]:
    """Two rows a run, in the order of the runs: greedy episodes, then those at its last ε; with the step at which the
    run broke, where `broken` has one by its number. `params` are the networks of each program's runs."""
    checks.whole("episodes", episodes, 1)
    checks.whole("max_steps", max_steps, 1)
    checks.whole("seed", seed, 0)
    found: dict[int, list[dict[str, Any]]] = {}
    for program, networks in zip(s.programs, params, strict=True):
        if networks is None:  # it has not begun
            continue
        for epsilon, played in _both(program, networks, episodes, seed, max_steps):
            for i, ((label, which), number) in enumerate(zip(program.labels, program.numbers, strict=True)):
                one = Played(*(x[i] for x in played))
                row = {"algo": label, "seed": which, **summary(one, epsilon[i])}
                found.setdefault(number, []).append(row | {"broken": (broken or {}).get(number)})
    return [row for number in sorted(found) for row in found[number]]


def _both(program: Program, params: PyTree, episodes: int, seed: int, max_steps: int) -> list[tuple[Any, Played]]:
    """What was played greedily and at the last ε of training, with that ε, for all runs of a program."""
    env, spec = program.env, program.env.spec

    def one(params: PyTree, key: Any, epsilon: Any) -> Played:
        def act(obs: PyTree) -> Any:
            return dqn.best(dqn.q_values(program.agent, spec, params, obs))

        assert isinstance(env, Env)
        return play(env, act, key, epsilon=epsilon, episodes=episodes, max_steps=max_steps)

    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(seed), 7919 + i))(np.array(program.numbers))
    count = len(program.labels)
    trained = jax.vmap(lambda own: jnp.asarray(program.one(own).epsilon_end, jnp.float32), axis_size=count)(program.own)
    shares = (np.zeros(count, np.float32), np.asarray(trained))
    if isinstance(env, HostEnv):
        greedy, seeds = outside(program.agent, spec), [seed * 7919 + i for i in program.numbers]
        act = lambda here: greedy(params, here)  # noqa: E731
        options: Any = {"episodes": episodes, "max_steps": max_steps}
        return [(share, play_outside(env, act, seeds, epsilon=share, **options)) for share in shares]
    go = jax.jit(jax.vmap(one))
    return [(share, jax.device_get(go(params, keys, share))) for share in shares]


def outside(agent: DQN, spec: Spec) -> Any:
    """(params[run], coded observations[run, env]) → the best actions, compiled."""
    decode = codec_of(spec).decode

    def best(params: PyTree, here: Any) -> Any:
        return dqn.best(dqn.q_values(agent, spec, params, jax.vmap(decode)(here)))

    return jax.jit(jax.vmap(best))


def write_result(out: Path, s: Setup, step: int, stopped: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """`evaluation.json` of a training folder."""
    result = {"step": step, "of": s.steps, "stopped": stopped, "scores": rows}
    result |= {"by_algo": by_algo(rows), "by_algo_training_epsilon": by_algo(rows, greedy=False)}
    write_text(out / "evaluation.json", as_json(result) + "\n")


def as_json(value: Any) -> str:
    """JSON for every reader: what is not a finite number becomes null.

    >>> as_json(float("nan"))
    'null'
    """
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
