"""Greedy episodes with trained networks, and their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from highway_rl import checks
from highway_rl.deep import dqn
from highway_rl.deep.dqn import DQN
from highway_rl.types import Env


def play(
    env: Env, agent: DQN, params: PyTree, key: PRNGKeyArray, *, episodes: int = 100, max_steps: int = 100_000
) -> tuple[Float[Array, "episode"], Int[Array, "episode"], Bool[Array, "episode"]]:
    """Scores and lengths of so many greedy episodes side by side, and whether each ended within `max_steps`."""

    def go_on(c: tuple[Any, ...]) -> Bool[Array, ""]:
        return (c[0] < max_steps) & jnp.any(~c[-1])

    def turn(c: tuple[Any, ...]) -> tuple[Any, ...]:
        step, state, obs, score, length, done = c
        action = jnp.argmax(dqn.q_values(agent, env, params, obs), axis=-1)
        out = jax.vmap(env.step)(state, action, jax.random.split(jax.random.fold_in(k_step, step), episodes))
        score = score + jnp.where(done, 0.0, out.reward)
        return step + 1, out.state, out.obs, score, length + ~done, done | out.terminated | out.truncated

    k_reset, k_step = jax.random.split(key)
    state, obs = jax.vmap(env.reset)(jax.random.split(k_reset, episodes))
    zeros = jnp.zeros(episodes, jnp.float32)
    start = (jnp.int32(0), state, obs, zeros, zeros.astype(jnp.int32), zeros > 0)
    _, _, _, score, length, done = jax.lax.while_loop(go_on, turn, start)
    return score, length, done


def evaluate(
    s: Any,
    params: PyTree,
    *,
    episodes: int = 100,
    seed: int = 0,
    max_steps: int = 100_000,
    broken: Sequence[int | None] | None = None,
) -> list[dict[str, Any]]:
    """Greedy episodes of every run of a `runs.Setup`: mean score, half its 95 % interval over episodes, length, how
    many episodes were cut off, and the step at which the run broke, where `broken` (of `Trained` or `Loaded`) has one.
    """
    checks.whole("episodes", episodes, 1)
    checks.whole("max_steps", max_steps, 1)
    checks.whole("seed", seed, 0)
    go = jax.jit(
        jax.vmap(lambda params, key: play(s.env, s.agent, params, key, episodes=episodes, max_steps=max_steps))
    )
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), 7919 + i) for i in range(len(s.labels))])
    score, length, done = jax.device_get(go(params, keys))
    found = []
    for i, (algo, which) in enumerate(s.labels):
        found.append(
            {
                "algo": algo,
                "seed": which,
                "episodes": episodes,
                "score": float(np.mean(score[i])),
                "half_width": half_width(score[i]),
                "length": float(np.mean(length[i])),
                "cut_off": int(np.sum(~done[i])),
                "broken": broken[i] if broken is not None else None,
            }
        )
    return found


def by_algo(scores: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean over an algorithm's seeds, the half width of its 95 % interval over seeds, and which seeds broke: those are
    left out."""
    found = {}
    for algo in dict.fromkeys(row["algo"] for row in scores):
        mine = [row for row in scores if row["algo"] == algo]
        each = [row["score"] for row in mine if row.get("broken") is None]
        found[algo] = {
            "score": float(np.mean(each)) if each else None,
            "half_width": half_width(each),
            "seeds": len(each),
            "broken": [row["seed"] for row in mine if row.get("broken") is not None],
        }
    return found


def half_width(values: Any) -> float | None:
    """Half the 95 % interval of a mean, by Student's t; None of fewer than two values.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    n = len(values)
    if n < 2:
        return None
    return float(scipy.special.stdtrit(n - 1, 0.975) * np.std(values, ddof=1)) / math.sqrt(n)
