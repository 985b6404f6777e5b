"""Episodes with trained networks, greedy or not, and their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt8

from highway_rl.data.codec import codec_of
from highway_rl.types import AnyArray, Env, HostEnv


class Played(NamedTuple):
    """Scores and lengths of episodes, and whether each ended within the most steps allowed."""

    score: Float[AnyArray, "*run episode"]
    length: Int[AnyArray, "*run episode"]
    done: Bool[AnyArray, "*run episode"]


def play(
    env: Env,
    act: Callable[[PyTree], Int[Array, "episode"]],
    key: PRNGKeyArray,
    *,
    epsilon: Any = 0.0,
    episodes: int = 100,
    max_steps: int = 100_000,
) -> Played:
    """So many episodes side by side, each step random with probability `epsilon`, else as `act(obs)` says."""

    def go_on(c: tuple[Any, ...]) -> Bool[Array, ""]:
        return (c[0] < max_steps) & jnp.any(~c[-1])

    def turn(c: tuple[Any, ...]) -> tuple[Any, ...]:
        step, state, obs, score, length, done = c
        k_which, k_action = jax.random.split(jax.random.fold_in(k_explore, step))
        chance = jax.random.randint(k_action, (episodes,), 0, env.spec.num_actions)
        action = jnp.where(jax.random.uniform(k_which, (episodes,)) < epsilon, chance, act(obs))
        out = jax.vmap(env.step)(state, action, jax.random.split(jax.random.fold_in(k_step, step), episodes))
        score = score + jnp.where(done, 0.0, out.reward)
        return step + 1, out.state, out.obs, score, length + ~done, done | out.terminated | out.truncated

    k_reset, k_step = jax.random.split(key)
    k_explore = jax.random.fold_in(key, 2)
    state, obs = jax.vmap(env.reset)(jax.random.split(k_reset, episodes))
    zeros = jnp.zeros(episodes, jnp.float32)
    start = (jnp.int32(0), state, obs, zeros, zeros.astype(jnp.int32), zeros > 0)
    return Played(*jax.lax.while_loop(go_on, turn, start)[3:])


AT_ONCE = 8
"""Environments outside JAX that play side by side."""


def play_outside(
    env: HostEnv,
    act: Callable[[UInt8[np.ndarray, "run env w"]], Int[np.ndarray, "run env"]],
    seeds: Sequence[int],
    *,
    epsilon: Any,
    episodes: int = 100,
    max_steps: int = 100_000,
) -> Played:
    """`play` where environments step outside JAX, for several runs: `act` gets coded observations. Each environment
    plays its share of the episodes, so that short ones do not count more; one that does not end is not begun again."""
    count, coded = min(AT_ONCE, episodes), codec_of(env.spec)
    shape = (len(seeds), count)
    share = np.array([len(range(i, episodes, count)) for i in range(count)])
    rng, chance = np.random.default_rng(list(seeds)), np.asarray(epsilon, np.float32)[:, None]
    worlds = [env.start(count, seed) for seed in seeds]
    try:
        here = np.stack([coded.encode_rows(world.reset()) for world in worlds])
        score, length, played = np.zeros(shape), np.zeros(shape, int), np.zeros(shape, int)
        found: list[list[tuple[float, int, bool]]] = [[] for _ in seeds]
        while (played < share).any():
            best = np.asarray(act(here))
            action = np.where(rng.random(shape) < chance, rng.integers(env.spec.num_actions, size=shape), best)
            for world, chosen in zip(worlds, action, strict=True):
                world.send(chosen)
            for r, world in enumerate(worlds):
                came = world.receive()
                here[r] = coded.encode_rows(came.here)
                score[r] += came.reward
                length[r] += came.real
                ended = came.terminated | came.truncated
                for e in np.flatnonzero((ended | (length[r] >= max_steps)) & (played[r] < share)):
                    times = 1 if ended[e] else share[e] - played[r, e]
                    found[r] += times * [(score[r, e], length[r, e], bool(ended[e]))]
                    played[r, e] += times
                score[r], length[r] = np.where(ended, 0, score[r]), np.where(ended, 0, length[r])
    finally:
        for world in worlds:
            world.close()
    columns = [[np.array(column) for column in zip(*one, strict=True)] for one in found]
    return Played(*(np.stack(column) for column in zip(*columns, strict=True)))


def summary(played: Played, epsilon: float) -> dict[str, Any]:
    """One run's episodes as a row: mean score, half its 95 % interval over episodes, length, how many were cut off."""
    return {
        "epsilon": float(str(np.float32(epsilon))),  # 0.1, not 0.100000001
        "episodes": len(played.score),
        "score": float(np.mean(played.score)),
        "half_width": half_width(played.score),
        "length": float(np.mean(played.length)),
        "cut_off": int(np.sum(~played.done)),
    }


def by_algo(scores: list[dict[str, Any]], *, greedy: bool = True) -> dict[str, dict[str, Any]]:
    """Mean over an algorithm's seeds, the half width of its 95 % interval over seeds, and which seeds broke: those are
    left out. Of the greedy episodes, or of those at the training ε."""
    found = {}
    scores = [row for row in scores if (row.get("epsilon", 0.0) == 0.0) == greedy]
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
