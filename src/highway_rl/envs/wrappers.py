"""Pure wrappers: each takes an environment and returns one, for any environment that is an `Env` of pure functions.

The state of a wrapped environment is a record whose `inner` is the state underneath.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from highway_rl.envs import keys
from highway_rl.types import Env, Step, record

INNER, OWN = 0, 1


@record
class StickyState:
    """The action that was executed last."""

    inner: PyTree
    last_action: Int[Array, ""]


@record
class TimedState:
    """The number of steps taken in this episode."""

    inner: PyTree
    elapsed: Int[Array, ""]


@record
class AutoResetState:
    """The observation to act on next: after an episode's end, the first one of the next episode."""

    inner: PyTree
    obs: PyTree


@record
class DelayedState:
    """Rewards of this episode so far: their number (non-zero ones), their sum, and what is not yet paid.

    `due` counts the steps until the next payment; it stays at -1 where only the episode's end pays.
    """

    inner: PyTree
    count: Int[Array, ""]
    score: Float[Array, ""]
    unpaid: Float[Array, ""]
    due: Int[Array, ""]


def sticky_actions(env: Env, probability: float) -> Env:
    """With this probability a step repeats the action executed before it; before the first step that is action 0."""
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"the sticky probability must lie in [0, 1], got {probability}")

    def reset(key: PRNGKeyArray) -> tuple[StickyState, PyTree]:
        inner, obs = env.reset(key)
        return StickyState(inner, jnp.asarray(0, jnp.int32)), obs

    def step(state: StickyState, action: Array, key: PRNGKeyArray) -> Step:
        repeats = keys.chance(keys.words(keys.derive(key, OWN))[0], probability)
        action = jnp.where(repeats, state.last_action, jnp.asarray(action, jnp.int32))
        out = env.step(state.inner, action, keys.derive(key, INNER))
        return dataclasses.replace(out, state=StickyState(out.state, action))

    return dataclasses.replace(env, name=f"{env.name}-sticky", reset=reset, step=step)


def time_limit(env: Env, steps: int) -> Env:
    """Cuts an episode after so many steps: truncated, not terminated, unless it also terminates there."""
    if steps < 1:
        raise ValueError(f"a time limit must be at least 1 step, got {steps}")

    def reset(key: PRNGKeyArray) -> tuple[TimedState, PyTree]:
        inner, obs = env.reset(key)
        return TimedState(inner, jnp.asarray(0, jnp.int32)), obs

    def step(state: TimedState, action: Array, key: PRNGKeyArray) -> Step:
        out = env.step(state.inner, action, key)
        elapsed = state.elapsed + 1
        cut = (elapsed >= steps) & ~out.terminated
        return dataclasses.replace(out, state=TimedState(out.state, elapsed), truncated=out.truncated | cut)

    return dataclasses.replace(env, name=f"{env.name}-{steps}", reset=reset, step=step)


def carry_over(ended: PyTree, fresh: PyTree) -> PyTree:
    """The state that begins the next episode: fresh, except that MinAtar's last action outlives a reset."""
    if isinstance(ended, StickyState):
        fresh = dataclasses.replace(fresh, last_action=ended.last_action)
    if hasattr(ended, "inner"):
        fresh = dataclasses.replace(fresh, inner=carry_over(ended.inner, fresh.inner))
    return fresh


def auto_reset(env: Env) -> Env:
    """Starts the next episode within the step that ends one.

    `Step.obs` stays the true successor, so a final observation is never lost; `Step.state.obs` is the one to act
    on next, and the two differ exactly where an episode ended.
    """

    def reset(key: PRNGKeyArray) -> tuple[AutoResetState, PyTree]:
        inner, obs = env.reset(key)
        return AutoResetState(inner, obs), obs

    def step(state: AutoResetState, action: Array, key: PRNGKeyArray) -> Step:
        out = env.step(state.inner, action, keys.derive(key, INNER))
        fresh, first = env.reset(keys.derive(key, OWN))
        ended = out.terminated | out.truncated
        pick = lambda new, old: jnp.where(ended, new, old)  # noqa: E731
        inner = jax.tree.map(pick, carry_over(out.state, fresh), out.state)
        return dataclasses.replace(out, state=AutoResetState(inner, jax.tree.map(pick, first, out.obs)))

    return dataclasses.replace(env, name=f"{env.name}-auto", reset=reset, step=step)
