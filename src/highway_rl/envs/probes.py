"""Tiny environments with known values, to see at a glance what a learner does and does not.

Each one isolates one thing: a constant value, a value that depends on the observation, discounting, a choice,
and a choice whose reward comes long after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from highway_rl import checks
from highway_rl.types import DiscreteEnv, Env, Spec, Step, record


@record
class Corridor:
    """How far along, and which way was taken at the start."""

    at: Array
    way: Array


def late(length: int = 50, num_actions: int = 4, prize: float = 1.0, trap: bool = False) -> Env:
    """A corridor of `length` steps. The first action decides: the lower half of all actions earns the prize, but only
    at the far end, and the upper half a fifth of it.

    Nothing in between matters, and an action in the middle of the corridor changes nothing. Each place on each way is
    an observation of its own, so that what is learned about one says little about another. Q*(first, 0) =
    γ^(length−1) · prize.

    With a `trap`, the last action leaves the good way at any place. An agent that explores then hardly ever arrives, so
    that what followed its first action says little about how good that action was.
    """
    length, num_actions = checks.whole("length", length, 2, 10**6), checks.whole("num_actions", num_actions, 2, 10**6)
    prize, trap = checks.number("prize", prize), checks.flag("trap", trap)

    def observe(state: Corridor) -> Array:
        return jnp.arange(2 * length + 1) == state.at + length * (state.way == 2)

    def reset(key: PRNGKeyArray) -> tuple[Corridor, Array]:
        del key
        state = Corridor(jnp.int32(0), jnp.int32(0))
        return state, observe(state)

    def step(state: Corridor, action: Array, key: PRNGKeyArray) -> Step:
        del key
        chosen = jnp.where(action < num_actions // 2, 1, 2).astype(jnp.int32)
        lost = trap & (action == num_actions - 1)
        new = Corridor(state.at + 1, jnp.where(state.at == 0, chosen, jnp.where(lost, 2, state.way)))
        ends = new.at == length
        paid = jnp.where(new.way == 1, prize, prize / 5)
        return Step(new, observe(new), jnp.where(ends, paid, 0.0).astype(jnp.float32), ends, jnp.zeros_like(ends))

    return Env(
        Spec(f"late-{length}", jax.ShapeDtypeStruct((2 * length + 1,), bool), num_actions, horizon=length), reset, step
    )


def two_steps(truncate: bool = False) -> Env:
    """Two steps and out: −1, then the action's number. With `truncate` they lead back to the first state, and the
    episode is cut there, not ended.

    Ended: Q*(0, ·) = −1 + γ and Q*(1, a) = a. Cut: Q*(0, ·) = −1/(1 + γ) and Q*(1, a) = a − γ/(1 + γ), as if it went
    on for ever.
    """
    truncate = checks.flag("truncate", truncate)

    def observe(state: Array) -> Array:
        return (jnp.arange(3) == (state % 2 if truncate else state)).astype(jnp.float32)

    def reset(key: PRNGKeyArray) -> tuple[Array, Array]:
        del key
        return jnp.int32(0), observe(jnp.int32(0))

    def step(state: Array, action: Array, key: PRNGKeyArray) -> Step:
        del key
        new = state + 1
        over = new == 2
        reward = jnp.where(state == 0, -1.0, jnp.asarray(action, jnp.float32))
        no = jnp.zeros_like(over)
        return Step(new, observe(new), reward, no if truncate else over, over if truncate else no)

    return Env(Spec("two-steps", jax.ShapeDtypeStruct((3,), jnp.float32), 2, horizon=2), reset, step)


def coin() -> Env:
    """One step: the observation is a fair coin, and naming it pays 1 while the other name costs 1."""

    def reset(key: PRNGKeyArray) -> tuple[Array, Array]:
        side = jax.random.bernoulli(key).astype(jnp.int32)
        return side, observe(side)

    def observe(side: Array) -> Array:
        return (jnp.arange(2) == side).astype(jnp.float32)

    def step(side: Array, action: Array, key: PRNGKeyArray) -> Step:
        del key
        reward = jnp.where(action == side, 1.0, -1.0)
        yes = jnp.asarray(True)
        return Step(side, observe(side), reward, yes, ~yes)

    return Env(Spec("coin", jax.ShapeDtypeStruct((2,), jnp.float32), 2, horizon=1), reset, step)


PROBES: dict[str, Callable[..., Env]] = {"late": late, "two-steps": two_steps, "coin": coin}


def featured(task: DiscreteEnv) -> Env:
    """A task whose observation is a number, as an environment that shows the features of its states instead."""
    shape = jax.eval_shape(task.features, jax.ShapeDtypeStruct((), jnp.int32))

    def reset(key: PRNGKeyArray) -> tuple[object, Array]:
        state, obs = task.reset(key)
        return state, task.features(obs)

    def step(state: object, action: Array, key: PRNGKeyArray) -> Step:
        out = task.step(state, action, key)
        return dataclasses.replace(out, obs=task.features(out.obs))

    shown = jax.ShapeDtypeStruct(shape.shape, shape.dtype)
    return Env(dataclasses.replace(task.spec, observation=shown), reset, step)
