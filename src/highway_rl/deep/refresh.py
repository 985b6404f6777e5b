"""A refresh: the target of every row in the store, with the networks as they are now, and the batches drawn from it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from highway_rl.data import ring
from highway_rl.data.codec import codec
from highway_rl.data.ring import Store
from highway_rl.deep import dqn, fused
from highway_rl.deep.agent import Agent
from highway_rl.deep.diagnostics import Seen, look
from highway_rl.deep.dqn import DQN, Batch, Learning
from highway_rl.deep.grouping import Group, hash_rows
from highway_rl.deep.weights import Weights
from highway_rl.types import Spec

ROWS_AT_ONCE = 2000
"""Rows of the store that go through the network together: bounds the memory of a refresh."""


def make_agent(agent: DQN, spec: Spec) -> Agent:
    """The record of functions that the loop trains."""
    return Agent(
        init=lambda key: dqn.start(agent, spec, key),
        act=lambda learning, obs: dqn.act(agent, spec, learning, obs),
        learn=lambda learning, batches, at, here: dqn.learn(agent, spec, learning, batches, at, here),
        refresh=lambda learning, store, step, keys, shape: refresh(agent, spec, learning, store, step, keys, shape),
        epsilon=lambda step: dqn.epsilon(agent, step),
        unseen=Seen.nothing(agent),
    )


def refresh(
    agent: DQN,
    spec: Spec,
    learning: Learning,
    store: Store,
    step: Int[Array, ""],
    keys: Key[Array, "3"],
    shape: tuple[int, int],
) -> tuple[Learning, Batch, Seen]:
    """Batches [turn, update] with their targets, drawn from all rings alike; what there is to see of the targets.

    `step` is how many steps were made.
    """
    target, seen = whole_targets(agent, spec, learning, store, step, keys[2])
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), store.rows)
    drawn = ring.pick(rows.real, jax.random.uniform(keys[0], (*shape, agent.batch_size)))
    net = jax.random.randint(keys[1], shape, 0, agent.num_networks)
    batches = Batch(net, rows.obs[drawn], rows.action[drawn], target[drawn])
    return learning._replace(older=learning.params if agent.doubles else None), batches, seen


def whole_targets(
    agent: DQN, spec: Spec, learning: Learning, store: Store, step: Int[Array, ""], key: PRNGKeyArray
) -> tuple[Float[Array, "rows"], Seen]:
    """Targets by slot, the rings of all environments one after another. A rule that doubles lets the networks of now
    choose an action, and those of the refresh before price it; the others know those of now only."""
    values = [whole_store(agent, spec, p, store, step) for p in (learning.params, learning.older) if p is not None]
    # rings one after the other are one chronological store: each ends with a row nobody acted on, where paths are cut
    ordered = jax.vmap(ring.in_order)(store, (store.rows, values))
    rows, (now, *before) = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), ordered)
    data = ring.trajectory(rows, agent.discount)
    group = Group(hash_rows(rows.obs), rows.policy, rows.real) if agent.num_policies > 1 else None
    found, seen = [], []
    for rule in agent.rules:
        q, newer = (before[0], now) if dqn.doubles(rule) else (now, None)
        found.append(dqn.targets(agent, rule, data, q, step, newer_q=newer, group=group, key=key))
        seen.append(look(agent, rule, data, rows, q, found[-1], step))

    def pick(trees: list[Any]) -> Any:
        return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: jnp.stack(x)[agent.which], *trees)

    target = pick([f.target for f in found]).reshape(store.rows.action.shape)
    return jax.vmap(ring.in_slots)(store, target).reshape(-1), pick(seen)


def whole_store(agent: DQN, spec: Spec, params: Weights, store: Store, step: Any) -> Float[Array, "env slot a"]:
    """q at every row, some rows at a time. A CPU leaves out rows that so many steps cannot have reached: zero there."""
    obs, coded = store.rows.obs, codec(spec.observation)
    rings, slots, width = obs.shape
    flat = jnp.moveaxis(obs, 1, 0).reshape(-1, width)  # slot by slot, so that rows never written come last
    size = min(ROWS_AT_ONCE, flat.shape[0])
    padded = jnp.pad(flat, ((0, -flat.shape[0] % size), (0, 0))).reshape(-1, size, width)
    many = dqn.prepared(agent, spec, params)

    def each(part: Array) -> Array:
        return many(jax.vmap(coded.decode)(part))

    def reached(padded: Array) -> Array:
        rows = rings * (2 * (step // rings) + 1)  # a truncated step takes two, the newest observation one
        parts = jnp.minimum((rows + size - 1) // size, padded.shape[0])
        empty = jnp.zeros((*padded.shape[:2], spec.num_actions), jnp.float32)
        return jax.lax.fori_loop(0, parts, lambda i, q: q.at[i].set(each(padded[i])), empty)

    sizes = fused.fits(agent, spec, 1)
    on_gpu = each if sizes is None else fused.prepared(sizes, params)
    q = jax.lax.platform_dependent(
        padded,
        cpu=reached,
        cuda=lambda padded: jax.lax.map(on_gpu, padded),
        default=lambda padded: jax.lax.map(each, padded),
    )
    return jnp.moveaxis(q.reshape(-1, spec.num_actions)[: flat.shape[0]].reshape(slots, rings, -1), 1, 0)
