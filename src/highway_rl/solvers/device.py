"""The gated solver as one JAX program, for a GPU, and for many models at once.

The same loop as `gated.py` with policy sweeps for proposals: backup, certificate, lift, gate.
Numbers are those of the arrays' dtype, and the bounds count its rounding: float64 needs `jax_enable_x64`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from highway_rl import checks
from highway_rl.core.backup import combine_returns
from highway_rl.mdp.model import MDP
from highway_rl.solvers.gated import GATE


class Solutions(NamedTuple):
    """One entry per model: V within `bound` of V*, a policy at most 2·bound below it, iterations."""

    value: Float[Array, "*w s"]
    policy: Int[Array, "*w s"]
    bound: Float[Array, "*w"]
    num_iters: Int[Array, "*w"]


def solve_many(
    mdp: MDP, tol: float = 1e-6, *, reward: Any = None, discount: Any = None, sweeps: int = 20, max_iters: int = 100_000
) -> Solutions:
    """The model under each of many rewards [m, s, a] or discounts [m], certified to `tol` or as far as dtype allows.

    With neither it is the one model, or, where its own arrays have a leading axis, each of those. One compilation
    serves all models of a shape. Discounts below 1.
    """
    checks.between("tol", tol, 0)
    checks.whole("sweeps", sweeps, 1)
    arrays = [jnp.asarray(x) for x in (mdp.reward, mdp.successor, mdp.probability, mdp.discount)]
    if reward is not None:
        arrays[0] = jnp.asarray(reward, arrays[0].dtype)
    if discount is not None:
        given = jnp.asarray(discount, arrays[3].dtype)
        arrays[3] = jnp.broadcast_to(given[:, None, None], (*given.shape, *mdp.reward.shape[-2:]))
    checks.numbers("discount", arrays[3], lambda x: (x >= 0) & (x < 1), "from 0 and below 1")
    extra = [array.ndim - axes for array, axes in zip(arrays, (2, 3, 3, 2), strict=True)]
    if max(extra) > 1:
        raise checks.wrong_shape("reward", arrays[0], "at most one axis of models before [states, actions]")
    axes = tuple(0 if more else None for more in extra)
    return _solve_all(*arrays, tol, axes=axes, sweeps=sweeps, max_iters=max_iters)


@functools.partial(jax.jit, static_argnames=("axes", "sweeps", "max_iters"))
def _solve_all(
    reward: Any, successor: Any, probability: Any, discount: Any, tol: Any, *, axes: Any, sweeps: int, max_iters: int
) -> Solutions:
    solve = functools.partial(_solve, tol=tol, sweeps=sweeps, max_iters=max_iters)
    if any(axis is not None for axis in axes):
        return jax.vmap(solve, in_axes=axes)(reward, successor, probability, discount)
    return solve(reward, successor, probability, discount)


def _solve(
    reward: Any, successor: Any, probability: Any, discount: Any, *, tol: Any, sweeps: int, max_iters: int
) -> Solutions:
    S, _, K = successor.shape
    leaves = jnp.any(
        (successor != jnp.arange(S, dtype=successor.dtype)[:, None, None]) & (probability > 0), axis=(1, 2)
    )
    alive = leaves | jnp.any(reward != 0, axis=1)
    kept = jnp.where(alive[:, None], discount * probability.sum(-1), 0.0)
    rounding = (K + 8) * jnp.finfo(reward.dtype).eps
    least = 1 - kept.max() - rounding
    most = jnp.where(jnp.all(alive), 1 - jnp.where(alive[:, None], kept, jnp.inf).min(), 1.0) + rounding

    def certify(x: Any) -> tuple[Any, ...]:
        """𝓑x, the greedy policy, and the θ between which V* lies."""
        q = reward + discount * jnp.sum(probability * x[successor], axis=-1)
        after = q.max(axis=1)
        low = jnp.where(alive, after - x, jnp.inf).min()
        high = jnp.where(alive, after - x, -jnp.inf).max()
        size = jnp.abs(after).max() + jnp.abs(reward).max() + jnp.maximum(jnp.abs(low), jnp.abs(high))
        low, high = low - rounding * size, high + rounding * size
        below = low / jnp.where(low < 0, least, most)
        above = high / jnp.where(high > 0, least, most)
        return after, q.argmax(axis=1).astype(jnp.int32), below, above

    def lifted(after: Any, below: Any) -> Any:
        return after + jnp.where(alive, below * (1 - jnp.where(below > 0, most, least)), 0.0)

    def evaluate(policy: Any, x: Any) -> Any:
        rows = policy[:, None, None]
        to, chance = (jnp.take_along_axis(a, rows, axis=1)[:, 0] for a in (successor, probability))
        paid, kept = (jnp.take_along_axis(a, policy[:, None], axis=1)[:, 0] for a in (reward, discount))
        return jax.lax.fori_loop(0, sweeps, lambda _, y: paid + kept * jnp.sum(chance * y[to], axis=-1), x)

    def unsettled(state: tuple[Any, ...]) -> Any:
        *_, half, idle, k = state
        return (half > tol) & (k < max_iters) & (idle < 20)  # twenty that narrow nothing: rounding is reached

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        x, floor, value, chosen, half, idle, k = state
        after, policy, below, above = certify(x)
        width = (above - below) / 2
        narrower = width < half
        value = jnp.where(narrower, x + jnp.where(alive, (above + below) / 2, 0.0), value)
        chosen = jnp.where(narrower, policy, chosen)
        candidate = lifted(after, below)
        floor = combine_returns(GATE, candidate[:, None, None], floor[:, None])
        x = evaluate(policy, jnp.where(narrower, candidate, floor))
        idle = jnp.where(narrower, 0, idle + 1)
        return x, floor, value, chosen, jnp.minimum(width, half), idle, k + 1

    nothing = jnp.zeros(S, reward.dtype)
    start = (
        nothing,
        jnp.full_like(nothing, -jnp.inf),
        nothing,
        jnp.zeros(S, jnp.int32),
        jnp.asarray(jnp.inf, reward.dtype),
    )
    _, _, value, policy, half, _, k = jax.lax.while_loop(unsettled, step, (*start, 0, jnp.asarray(0)))
    return Solutions(value, policy, jnp.where(jnp.any(alive), half, 0.0), k)
