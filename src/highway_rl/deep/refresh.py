"""A refresh: the target of every row in the store, with the networks as they are now."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from highway_rl.data import ring as stores
from highway_rl.data.codec import codec
from highway_rl.data.ring import Store
from highway_rl.deep import dqn
from highway_rl.deep.diagnostics import Seen, look
from highway_rl.deep.dqn import DQN
from highway_rl.deep.grouping import Group, hash_rows
from highway_rl.types import Env

ROWS_AT_ONCE = 2000
"""Rows of the store that go through the network together: bounds the memory of a refresh."""


def refresh(
    agent: DQN, env: Env, params: PyTree, older: PyTree, store: Store, step: Int[Array, ""], key: PRNGKeyArray
) -> tuple[Float[Array, "rows"], Seen]:
    """Targets by slot, the rings of all environments one after another, and what there is to see of them.

    `step` is how many steps were made. `older` are the networks of the refresh before, which price actions for Double
    DQN; else None.
    """
    double = agent.bootstrap == "double"
    q = whole_store(agent, env, older if double else params, store, step)
    newer = whole_store(agent, env, params, store, step) if double else q

    # rings one after the other are one chronological store: each ends with a row nobody acted on, where paths are cut
    ordered = jax.vmap(stores.in_order)(store, (store.rows, q, newer))
    rows, q, newer = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), ordered)
    data = stores.trajectory(rows, agent.discount)
    group = Group(hash_rows(rows.obs), rows.policy, rows.real) if agent.num_policies > 1 else None
    found = [dqn.targets(agent, rule, data, q, step, newer_q=newer, group=group, key=key) for rule in agent.rules]
    seen = [look(agent, rule, data, rows, q, f, step) for rule, f in zip(agent.rules, found, strict=True)]

    def pick(trees: list[Any]) -> Any:
        return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: jnp.stack(x)[agent.which], *trees)

    target = pick([f.target for f in found]).reshape(store.rows.action.shape)
    return jax.vmap(stores.in_slots)(store, target).reshape(-1), pick(seen)


def whole_store(agent: DQN, env: Env, params: PyTree, store: Store, step: Any) -> Float[Array, "env slot a"]:
    """q at every row, some rows at a time. A CPU leaves out rows that so many steps cannot have reached: zero there."""
    obs, coded = store.rows.obs, codec(env.observation)
    rings, slots, width = obs.shape
    flat = jnp.moveaxis(obs, 1, 0).reshape(-1, width)  # slot by slot, so that rows never written come last
    size = min(ROWS_AT_ONCE, flat.shape[0])
    padded = jnp.pad(flat, ((0, -flat.shape[0] % size), (0, 0))).reshape(-1, size, width)
    many = dqn.prepared(agent, env, params)

    def each(part: Array) -> Array:
        return many(jax.vmap(coded.decode)(part))

    def reached(padded: Array) -> Array:
        rows = rings * (2 * (step // rings) + 1)  # a truncated step takes two, the newest observation one
        parts = jnp.minimum((rows + size - 1) // size, padded.shape[0])
        empty = jnp.zeros((*padded.shape[:2], env.num_actions), jnp.float32)
        return jax.lax.fori_loop(0, parts, lambda i, q: q.at[i].set(each(padded[i])), empty)

    q = jax.lax.platform_dependent(padded, cpu=reached, default=lambda padded: jax.lax.map(each, padded))
    return jnp.moveaxis(q.reshape(-1, env.num_actions)[: flat.shape[0]].reshape(slots, rings, -1), 1, 0)
