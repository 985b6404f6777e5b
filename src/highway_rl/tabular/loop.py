"""Run a tabular learner until it has solved its task: many seeds in one program, one row of numbers per seed.

Two rules say when a task is solved (the paper does not):

    greedy   the greedy policy is optimal after this episode and the next `KEPT` − 1
    average  RUDDER's: a moving average of "the episode began as it should" reaches 1 − ε

Seeds run until all of them are done under both rules, or `max_episodes` is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from highway_rl import checks
from highway_rl.types import NEVER, DiscreteEnv

KEPT = 10
COMPILER = {"xla_disable_hlo_passes": "cpu-parallel-task-assigner", "xla_backend_optimization_level": 1}
"""On a CPU these programs are chains of tiny operations: sharing each among threads costs several times its work.
Groups of seeds, and experiments' cells, are what runs side by side. Level 1 compiles faster and runs as fast."""


class Learner(NamedTuple):
    """`start(key)` makes a memory; `episode(memory, count, going, key) -> (memory, q, on_track)` runs one and learns.

    `count` is how many episodes came before. It is the same for all seeds, so that what depends on it alone stays one
    branch under `vmap`. A seed that is not `going` is done, waits for the others, and need not learn.
    """

    start: Callable[[PRNGKeyArray], Any]
    episode: Callable[[Any, Any, Any, PRNGKeyArray], tuple[Any, Any, Any]]
    epsilon: Any


class Learned(NamedTuple):
    """Per seed: what was kept of the memory, the episode that solved the task under each rule (`NEVER` if none), and
    the share of its episodes, until it was done, after which the greedy policy was optimal."""

    kept: Any
    greedy: Int[Array, "seed"]
    average: Int[Array, "seed"]
    right: Float[Array, "seed"]
    episodes: Int[Array, "..."]


class _Seed(NamedTuple):
    """The book-keeping of one seed."""

    memory: Any
    key: PRNGKeyArray
    streak: Int[Array, ""]
    mean: Float[Array, ""]
    greedy: Int[Array, ""]
    average: Int[Array, ""]
    right: Int[Array, ""]
    lived: Int[Array, ""]


def trainer(env: DiscreteEnv, learner: Learner, **options: Any) -> Callable[[Key[Array, "*groups seeds"]], Learned]:
    """`training`, compiled to run on one thread: a program of its own, to be called from outside any other."""
    return jax.jit(training(env, learner, **options), compiler_options=COMPILER)


def training(
    env: DiscreteEnv,
    learner: Learner,
    *,
    max_episodes: int,
    average_rate: float = 0.01,
    until: str = "solved",
    keep: Callable[[Any], Any] = lambda memory: memory,
) -> Callable[[Key[Array, "*groups seeds"]], Learned]:
    """A pure function from seeds' keys to what they learned.

    Keys of shape [seeds] run side by side; of shape [groups, seeds] group after group, which needs less memory and
    does not make fast seeds wait for the slowest of all. `until` = "greedy" waits for the first rule only, "cap" runs
    all episodes; `keep(memory)` is what to return of each memory.
    """
    checks.whole("max_episodes", max_episodes, 1)
    checks.choice("until", until, ("solved", "greedy", "cap"))

    def begin(key: PRNGKeyArray) -> _Seed:
        zero = jnp.int32(0)
        never = zero + NEVER
        return _Seed(learner.start(key), key, zero, jnp.zeros((), float), never, never, zero, zero)

    def unfinished(seed: _Seed) -> Bool[Array, "*seeds"]:
        if until == "cap":
            return jnp.ones_like(seed.greedy, bool)
        waits = seed.greedy == NEVER
        return waits | (seed.average == NEVER) if until == "solved" else waits

    def advance(seed: _Seed, count: Int[Array, ""]) -> _Seed:
        going = unfinished(seed)
        memory, q, on_track = learner.episode(seed.memory, count, going, jax.random.fold_in(seed.key, count))
        good = env.solved(q)
        streak = jnp.where(good, seed.streak + 1, 0)
        mean = seed.mean + average_rate * (on_track.astype(float) - seed.mean)
        greedy = jnp.where((streak >= KEPT) & (seed.greedy == NEVER), count + 2 - streak, seed.greedy)
        reached = (mean >= 1 - jnp.asarray(learner.epsilon, float)) & (seed.average == NEVER)
        average = jnp.where(reached, count + 1, seed.average)
        right = seed.right + (good & going).astype(jnp.int32)
        lived = seed.lived + going.astype(jnp.int32)
        return _Seed(memory, seed.key, streak, mean, greedy, average, right, lived)

    def go_on(carry: tuple[_Seed, Int[Array, ""]]) -> Bool[Array, ""]:
        seeds, count = carry
        return jnp.any(unfinished(seeds)) & (count < max_episodes)

    def more(carry: tuple[_Seed, Int[Array, ""]]) -> tuple[_Seed, Int[Array, ""]]:
        seeds, count = carry
        return jax.vmap(advance, in_axes=(0, None))(seeds, count), count + 1

    def run(keys: Key[Array, "seeds"]) -> Learned:
        seeds, count = jax.lax.while_loop(go_on, more, (jax.vmap(begin)(keys), jnp.int32(0)))
        share = seeds.right.astype(float) / seeds.lived.astype(float)
        return Learned(jax.vmap(keep)(seeds.memory), seeds.greedy, seeds.average, share, count)

    return lambda keys: run(keys) if keys.ndim == 1 else jax.lax.map(run, keys)
