"""Train a tabular agent until it has solved its task: many seeds in one program, one row of numbers per seed.

Two rules say when a task is solved (the paper does not):

    greedy   the greedy policy is optimal after this episode and the next `KEPT` − 1
    average  RUDDER's: a moving average (rate `AVERAGE_RATE`) of "the episode began as it should" reaches 1 − ε

Seeds run until all of them are done under both rules, or `max_episodes` is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from highway_rl.types import DiscreteEnv

KEPT = 10
AVERAGE_RATE = 0.001
NEVER = 2**31 - 1


class Learned(NamedTuple):
    """Per seed: the final memory, the episode that solved the task under each rule (`NEVER` if none), and the share
    of all episodes run after which the greedy policy was optimal."""

    memory: Any
    greedy: Int[Array, "seed"]
    average: Int[Array, "seed"]
    right: Float[Array, "seed"]
    episodes: Int[Array, ""]


class _Progress(NamedTuple):
    """The book-keeping of one seed."""

    memory: Any
    key: PRNGKeyArray
    streak: Int[Array, ""]
    mean: Float[Array, ""]
    greedy: Int[Array, ""]
    average: Int[Array, ""]
    right: Int[Array, ""]


def trainer(
    env: DiscreteEnv,
    start: Callable[[PRNGKeyArray], Any],
    episode: Callable[[Any, Any, PRNGKeyArray], tuple[Any, Any, Any]],
    *,
    max_episodes: int,
    epsilon: Any = 0.2,
    average_rate: float = AVERAGE_RATE,
    at_least: int = 0,
) -> Callable[[PRNGKeyArray], Learned]:
    """A compiled function from seeds' keys to what they learned.

    `start(key)` makes a seed's memory; `episode(memory, count, key) -> (memory, q, on_track)` runs one episode and
    learns from it. The count of episodes is common to all seeds, so that nothing that depends on it is batched.
    """

    def begin(key: PRNGKeyArray) -> _Progress:
        memory_key, run_key = jax.random.split(key)
        zero = jnp.int32(0)
        return _Progress(start(memory_key), run_key, zero, jnp.zeros((), float), zero + NEVER, zero + NEVER, zero)

    def advance(seed: _Progress, count: Int[Array, ""]) -> _Progress:
        memory, q, on_track = episode(seed.memory, count, jax.random.fold_in(seed.key, count))
        good = env.solved(q)
        streak = jnp.where(good, seed.streak + 1, 0)
        mean = seed.mean + average_rate * (on_track.astype(float) - seed.mean)
        first = count + 2 - streak
        greedy = jnp.where((streak >= KEPT) & (seed.greedy == NEVER), first, seed.greedy)
        reached = (mean >= 1 - jnp.asarray(epsilon, float)) & (seed.average == NEVER)
        average = jnp.where(reached, count + 1, seed.average)
        return _Progress(memory, seed.key, streak, mean, greedy, average, seed.right + good.astype(jnp.int32))

    def go_on(carry: tuple[_Progress, Int[Array, ""]]) -> Bool[Array, ""]:
        seeds, count = carry
        waiting = jnp.any((seeds.greedy == NEVER) | (seeds.average == NEVER)) | (count < at_least)
        return waiting & (count < max_episodes)

    def more(carry: tuple[_Progress, Int[Array, ""]]) -> tuple[_Progress, Int[Array, ""]]:
        seeds, count = carry
        return jax.vmap(advance, in_axes=(0, None))(seeds, count), count + 1

    def train(keys: PRNGKeyArray) -> Learned:
        seeds, count = jax.lax.while_loop(go_on, more, (jax.vmap(begin)(keys), jnp.int32(0)))
        share = seeds.right.astype(float) / jnp.maximum(count, 1).astype(float)
        return Learned(seeds.memory, seeds.greedy, seeds.average, share, count)

    return jax.jit(train)
