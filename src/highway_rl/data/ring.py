"""The store: a ring of raw steps, one row each, and nothing that depends on depth or discount.

T steps of a trajectory are T rows in a row. "The value at the far end" of a step is always the value at the next
row's observation: where an episode was cut its last observation gets a row of its own, and the newest row holds the
observation to act on next. Such rows are not `real`: they are looked at, never learned from.

Observations are kept as bytes (`codec`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from highway_rl.core.targets import Trajectory
from highway_rl.types import record


@record
class Rows:
    """Steps as they are stored: the observation acted on, the action, what came of it, and how it was chosen.

    `behaviour` is π(a|s), `policy` the number of the behavioural policy, `born` the step it was made at.
    """

    obs: UInt8[Array, "t w"]
    action: Int[Array, "t"]
    reward: Float[Array, "t"]
    terminated: Bool[Array, "t"]
    behaviour: Float[Array, "t"]
    policy: Int[Array, "t"]
    born: Int[Array, "t"]
    real: Bool[Array, "t"]


@record
class Store:
    """A ring of rows; `newest` is the row of the observation to act on next."""

    rows: Rows
    newest: Int[Array, ""]


def empty(capacity: int, current: UInt8[Array, "w"]) -> Store:
    """Room for so many steps, and one row more for the newest observation, the one to act on."""
    slots = capacity + 1
    zero = lambda dtype: jnp.zeros(slots, dtype)  # noqa: E731
    rows = Rows(
        jnp.zeros((slots, current.shape[0]), jnp.uint8).at[0].set(current),
        zero(jnp.int32),
        zero(jnp.float32),
        zero(bool),
        jnp.ones(slots, jnp.float32),
        zero(jnp.int32),
        zero(jnp.int32),
        zero(bool),
    )
    return Store(rows, jnp.int32(0))


def add(
    store: Store, steps: Rows, truncated: Bool[Array, "t"], successor: UInt8[Array, "t w"], current: UInt8[Array, "w"]
) -> Store:
    """Appends steps in the order they happened; the oldest rows make room.

    `successor` are the true next observations, of which only those of truncated steps are kept; `current` is the
    observation to act on next.
    """
    slots, count = store.rows.action.shape[0], steps.action.shape[0]
    before = jnp.cumsum(truncated) - truncated
    place = jnp.arange(count) + before.astype(jnp.int32)
    total = count + jnp.sum(truncated, dtype=jnp.int32)

    def slot(place: Array, wanted: Any) -> Array:
        """Where a row goes; nowhere if it is not wanted or a later one would go to the same slot."""
        return jnp.where(wanted & (total - place < slots), (store.newest + place) % slots, slots)

    at, final = slot(place, True), slot(place + 1, truncated)
    newest = (store.newest + total) % slots
    rows = jax.tree.map(lambda ring, new: ring.at[at].set(new, mode="drop"), store.rows, steps)
    obs = rows.obs.at[final].set(successor, mode="drop").at[newest].set(current)
    real = rows.real.at[final].set(False, mode="drop").at[newest].set(False)
    return Store(dataclasses.replace(rows, obs=obs, real=real), newest)


def cut(store: Store, current: UInt8[Array, "w"]) -> Store:
    """A new episode begins with `current`, though the one before has not ended: its newest observation stays, as the
    last one of a path that is cut there."""
    newest = (store.newest + 1) % store.rows.action.shape[0]
    obs, real = store.rows.obs.at[newest].set(current), store.rows.real.at[newest].set(False)
    return Store(dataclasses.replace(store.rows, obs=obs, real=real), newest)


def repeated(store: Store, rows: int) -> Store:
    """A ring full of its first rows over and over: to time what a full one costs, without the steps that fill it."""
    slots = store.rows.action.shape[0]
    every = jax.tree.map(lambda x: x[jnp.arange(slots) % min(rows, slots)], store.rows)
    return Store(dataclasses.replace(every, real=every.real.at[0].set(False)), jnp.zeros_like(store.newest))


def in_order(store: Store, column: Any) -> Any:
    """Columns of the store from the oldest row to the newest."""
    return jax.tree.map(lambda x: jnp.roll(x, -(store.newest + 1), axis=0), column)


def in_slots(store: Store, column: Any) -> Any:
    """The inverse of `in_order`."""
    return jax.tree.map(lambda x: jnp.roll(x, store.newest + 1, axis=0), column)


def frames(store: Store, count: int) -> Int[Array, "slot f"]:
    """The slots that hold the last frames of each row's observation, the oldest first.

    They are the rows before it; where the episode has fewer, its first row counts again.
    """
    rows = store.rows
    first = jnp.roll(~rows.real | rows.terminated, 1)
    at = [jnp.arange(first.shape[0], dtype=jnp.int32)]
    for _ in range(count - 1):
        at.append(jnp.where(first[at[-1]], at[-1], (at[-1] - 1) % first.shape[0]))
    return jnp.stack(at[::-1], axis=1)


def with_all_frames(store: Store, count: int) -> Bool[Array, "slot"]:
    """The rows whose frames are all here: the oldest may have lost theirs."""
    age = (jnp.arange(store.rows.action.shape[0], dtype=jnp.int32) - store.newest - 1) % store.rows.action.shape[0]
    return age >= count - 1


def trajectory(rows: Rows, discount: Any) -> Trajectory:
    """Rows in order as what the core's targets take. A path is cut where the next row was not acted on."""
    ahead = jnp.concatenate([rows.real[1:], jnp.zeros(1, bool)])
    return Trajectory(
        rows.action,
        rows.reward,
        jnp.where(rows.terminated, 0.0, jnp.asarray(discount, jnp.float32)),
        rows.terminated | ~ahead,
        rows.behaviour,
    )


def pick(real: Bool[Array, "n"], draws: Float[Array, "*b"]) -> Int[Array, "*b"]:
    """Rows to learn from, uniformly and with replacement, from draws in [0, 1)."""
    upto = jnp.cumsum(real)
    rank = jnp.minimum((draws * upto[-1].astype(draws.dtype)).astype(upto.dtype), jnp.maximum(upto[-1] - 1, 0))
    return jnp.searchsorted(upto, rank, side="right").astype(jnp.int32)
