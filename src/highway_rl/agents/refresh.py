"""A refresh: the target of every row in the store, with the networks as they are now."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from highway_rl import store as stores
from highway_rl.agents import dqn
from highway_rl.agents.diagnostics import Seen, look
from highway_rl.agents.dqn import DQN
from highway_rl.agents.grouping import Group, hash_rows
from highway_rl.store import Store
from highway_rl.types import Env

ROWS_AT_ONCE = 2000
"""Rows of the store that go through the network together: bounds the memory of a refresh."""


def refresh(
    agent: DQN, env: Env, params: PyTree, older: PyTree, store: Store, step: Int[Array, ""], key: PRNGKeyArray
) -> tuple[Float[Array, "rows"], Seen]:
    """Targets by slot, the rings of all environments one after another, and what there is to see of them.

    `older` are the networks of the refresh before, which price actions for Double DQN; else None.
    """
    double = agent.bootstrap == "double"
    q = whole_store(agent, env, older if double else params, store)
    newer = whole_store(agent, env, params, store) if double else q

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


def whole_store(agent: DQN, env: Env, params: PyTree, store: Store) -> Float[Array, "env slot a"]:
    """q at every row, some rows at a time."""
    obs, coded = store.rows.obs, stores.codec(env.observation)
    flat = obs.reshape(-1, obs.shape[-1])
    size = min(ROWS_AT_ONCE, flat.shape[0])
    padded = jnp.pad(flat, ((0, -flat.shape[0] % size), (0, 0))).reshape(-1, size, flat.shape[1])
    many = dqn.prepared(agent, env, params)
    q = jax.lax.map(lambda part: many(jax.vmap(coded.decode)(part)), padded)
    return q.reshape(-1, q.shape[-1])[: flat.shape[0]].reshape(*obs.shape[:-1], -1)
