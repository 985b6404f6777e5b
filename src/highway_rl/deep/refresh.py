"""A refresh: the target of every row in the store, with the networks as they are now, and the batches drawn from it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, UInt32

from highway_rl.core.lookahead import lookahead
from highway_rl.core.targets import TargetRule, Trajectory
from highway_rl.data import ring
from highway_rl.data.codec import Codec, codec_of
from highway_rl.data.ring import Store
from highway_rl.deep import diagnostics, dqn, fused
from highway_rl.deep.agent import Agent
from highway_rl.deep.diagnostics import Seen
from highway_rl.deep.dqn import DQN
from highway_rl.deep.grouping import Group, alike, hash_rows
from highway_rl.deep.learning import Batch, Learning
from highway_rl.deep.rescale import rescaled, with_mean
from highway_rl.deep.scales import in_units, unit_of
from highway_rl.deep.weights import Weights
from highway_rl.types import Spec

LARGE = 2**28
"""Bytes of a period's observations beyond which its batches are taken from the store one by one."""
ROWS_AT_ONCE = 2000
"""Rows of the store that go through the network together: bounds the memory of a refresh."""
NEAR = 2**21
"""Bytes of the observations that a CPU has go through it together, so that what layers make stays in its caches."""


def make_agent(agent: DQN, spec: Spec) -> Agent:
    """The record of functions that the loop trains."""
    return Agent(
        init=lambda key: dqn.start(agent, spec, key),
        act=lambda learning, obs: dqn.act(agent, spec, learning, obs),
        learn=lambda learning, batches, at, here: dqn.learn(agent, spec, learning, batches, at, here),
        refresh=lambda learning, store, step, keys, shape, look: refresh(
            agent, spec, learning, store, step, keys, shape, look
        ),
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
    look: Any = True,
) -> tuple[Learning, Batch, Seen]:
    """Batches [turn, update] with their targets, drawn from all rings alike; what there is to see of the targets.

    `step` is how many steps were made.
    """
    coded = codec_of(spec)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), store.rows)
    every, usable = frames(coded, store)
    drawn = ring.pick(rows.real & usable, jax.random.uniform(keys[0], (*shape, agent.batch_size)))
    if agent.normalize or agent.rescale:
        learning = learning._replace(params=rescaled(agent, spec, learning, rows, every, drawn.reshape(-1)[:256]))
    target, seen = whole_targets(agent, spec, learning, store, step, keys[2], drawn, look)
    net = jax.random.randint(keys[1], shape, 0, agent.num_networks)
    large, at = drawn.size * coded.width > LARGE, every[drawn]
    batches = Batch(net, rows.obs if large else coded.whole(rows.obs, at), rows.action[drawn], target[drawn])
    batches = batches._replace(row=at) if large else batches
    if learning.mean is not None:
        learning = learning._replace(mean=with_mean(agent, spec, learning.mean, learning.params))
    return learning._replace(older=learning.params if agent.doubles else None), batches, seen


def frames(coded: Codec, store: Store) -> tuple[Int[Array, "n"] | Int[Array, "n f"], Any]:
    """Where the observation of each row is, all rings one after the other, and whether all of it is there."""
    rings, slots = store.rows.action.shape
    if coded.frames == 1:
        return jnp.arange(rings * slots, dtype=jnp.int32), True
    at = jax.vmap(lambda one: ring.frames(one, coded.frames))(store)
    at = at + slots * jnp.arange(rings, dtype=jnp.int32)[:, None, None]
    usable = jax.vmap(lambda one: ring.with_all_frames(one, coded.frames))(store)
    return at.reshape(rings * slots, -1), usable.reshape(-1)


def hashes(coded: Codec, store: Store) -> UInt32[Array, "env slot 2"]:
    """Of every observation; with several frames the hash of the frames' hashes."""
    rows = store.rows.obs.reshape(-1, store.rows.obs.shape[-1])
    if coded.frames == 1:
        found = hash_rows(rows)
    else:
        beside = rows.shape[1] - coded.frame
        each = jax.lax.bitcast_convert_type(hash_rows(rows[:, beside:]), jnp.uint8)[frames(coded, store)[0]]
        found = hash_rows(jnp.concatenate([rows[:, :beside], each.reshape(rows.shape[0], -1)], axis=1))
    return found.reshape(*store.rows.action.shape, 2)


def whole_targets(
    agent: DQN,
    spec: Spec,
    learning: Learning,
    store: Store,
    step: Int[Array, ""],
    key: PRNGKeyArray,
    drawn: Int[Array, "..."] | None = None,
    look: Any = True,
) -> tuple[Float[Array, "rows ..."], Seen]:
    """Targets by slot, the rings of all environments one after another. A rule that doubles lets the networks of now
    choose an action, and those of the refresh before price it; the others know those of now only.

    Without a `look` nothing is seen, and only the values that the targets of the slots `drawn` need are computed.
    """

    # rings one after the other are one chronological store: each ends with a row nobody acted on, where paths are cut
    def in_order(columns: Any) -> Any:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.vmap(ring.in_order)(store, columns))

    def in_slots(column: Array) -> Array:
        return jax.vmap(ring.in_slots)(store, column.reshape(*store.rows.action.shape, *column.shape[1:]))

    rows = in_order(store.rows)
    data = ring.trajectory(rows, agent.discount)
    wanted: Any = True
    counts = rows.real
    if drawn is not None and not looks_everywhere(agent):
        chosen = jnp.zeros(rows.action.shape, bool).at[drawn.reshape(-1)].set(True)
        counts = in_order(chosen.reshape(store.rows.action.shape))
        wanted = look | in_slots(needed(agent, data, counts))
    params = [p for p in (learning.params, learning.older) if p is not None]
    now, *before = in_order([whole_store(agent, spec, p, store, step, wanted) for p in params])
    now, averages = dqn.split_heads(agent, spec, now)
    before = [dqn.split_heads(agent, spec, x)[0] for x in before]
    grouped = agent.chooser == "grouped"
    hashed: Any = in_order(hashes(codec_of(spec), store)) if grouped or agent.num_policies > 1 else None
    group = Group(hashed, rows.policy, rows.real) if agent.num_policies > 1 else None
    pairs = alike(hashed, data, rows.real, counts) if grouped else None
    found, seen = [], []
    unit = unit_of(dqn.network(agent, spec, jax.tree.map(lambda x: x[0], learning.params)))
    for rule in (in_units(rule, unit) for rule in agent.rules):
        q, newer = (before[0], now) if dqn.doubles(rule) else (now, None)
        more: Any = {"newer_q": newer, "group": group, "key": key, "averages": averages, "pairs": pairs}
        found.append(dqn.targets(agent, rule, data, q, step, **more))
        seen.append(functools.partial(diagnostics.look, agent, rule, data, rows, q, found[-1], step))

    def pick(trees: list[Any]) -> Any:
        return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: jnp.stack(x)[agent.which], *trees)

    def to_see() -> Seen:
        return pick([one() for one in seen])

    told = to_see() if look is True else jax.lax.cond(look, to_see, lambda: Seen.nothing(agent))
    target = in_slots(pick([all_heads(agent, one) for one in found]))
    return target.reshape(-1, *target.shape[2:]), told


def all_heads(agent: DQN, found: dqn.Targets) -> Float[Array, "t"] | Float[Array, "t h"]:
    """The target of Q, and with a learned chooser beside it the returns that its other heads learn the averages of."""
    if agent.heads == 1:
        return jnp.asarray(found.target)
    missing = agent.heads - 1 - found.sampled.shape[1]
    return jnp.concatenate([found.target[:, None], jnp.pad(found.sampled, ((0, 0), (0, missing)))], axis=1)


def looks_everywhere(agent: DQN) -> bool:
    """Whether a target may depend on the values at any row: a trace weighs those at every row of a path, and pooled
    policies average over many."""
    return agent.num_policies > 1 or any(rule.trace is not None for rule in agent.rules)


def needed(agent: DQN, data: Trajectory, chosen: Bool[Array, "t"]) -> Bool[Array, "t"]:
    """The rows whose values the targets of the rows chosen depend on, in order: where their returns end.

    n steps from row i end in the values at row i + n, or at the row after the last step of its path; nothing follows a
    termination.
    """

    def of(rule: TargetRule) -> Bool[Array, "t"]:
        gate = rule.backup.gate_depth
        depths = tuple(dict.fromkeys((*rule.backup.depths, *((gate,) if gate else ()))))
        found = chosen if gate == 0 or agent.heads > 1 else jnp.zeros_like(chosen)
        for way in lookahead(data.reward, data.discount, data.last, depths):
            ends = jnp.where(chosen & (way.discount != 0), way.end + 1, chosen.shape[0])
            found = found.at[ends].set(True, mode="drop")
        return found

    every = [of(rule) for rule in agent.rules]
    return every[0] if len(every) == 1 else jnp.stack(every)[agent.which]


def whole_store(
    agent: DQN, spec: Spec, params: Weights, store: Store, step: Any, wanted: Any = True
) -> Float[Array, "env slot ha"]:
    """q and the other heads at every row, some at a time. Rows that are not wanted are left out, and those that so many
    steps cannot have reached: zero there. A GPU goes through all where all are wanted: it need not gather them."""
    obs, coded = store.rows.obs, codec_of(spec)
    rings, slots, width = obs.shape
    by_slot = lambda x: jnp.moveaxis(x, 1, 0).reshape(-1, *x.shape[2:])  # noqa: E731
    flat = by_slot(obs)  # slot by slot, so that rows never written come last
    count = flat.shape[0]
    most_at_once = min(ROWS_AT_ONCE, count)
    many = dqn.prepared(agent, spec, params)

    def each(part: Array) -> Array:
        return many(jax.vmap(coded.decode)(part))

    if coded.frames > 1:  # where the frames of each row are, found once for all parts
        held = jax.vmap(lambda one: ring.frames(one, coded.frames))(store)
        held = by_slot(rings * held + jnp.arange(rings, dtype=jnp.int32)[:, None, None])

    def taken(flat: Array, at: Array) -> Array:
        if coded.frames == 1:
            return flat.at[at].get(mode="fill", fill_value=0)
        return coded.whole(flat, held[jnp.minimum(at, count - 1)])

    def some(each: Any, size: int) -> Any:
        whole = -(-count // size)

        def values(flat: Array, wanted: Array) -> Array:
            rows = rings * (2 * (step // rings) + 1)  # a truncated step takes two, the newest observation one
            reached = jnp.arange(count) < size * jnp.minimum((rows + size - 1) // size, whole)
            rank = jnp.cumsum(wanted & reached)
            place = jnp.where(wanted & reached, rank - 1, whole * size)
            every = jnp.arange(count, dtype=jnp.int32)
            chosen = jnp.full(whole * size, count, jnp.int32).at[place].set(every, mode="drop")

            def part(i: Any, q: Array) -> Array:
                at = jax.lax.dynamic_slice_in_dim(chosen, i * size, size)
                return q.at[at].set(each(taken(flat, at)), mode="drop")

            empty = jnp.zeros((count, agent.heads * spec.num_actions), jnp.float32)
            return jax.lax.fori_loop(0, most((rank[-1] + size - 1) // size), part, empty)

        return values

    def everything(each: Any, size: int) -> Any:
        whole = -(-count // size)

        def values(flat: Array, _: Array) -> Array:
            padded = jnp.pad(flat, ((0, whole * size - count), (0, 0))).reshape(whole, size, width)
            return jax.lax.map(each, padded).reshape(-1, agent.heads * spec.num_actions)[:count]

        return values

    sizes = fused.fits(agent, spec, 1)
    on_gpu: Callable[[Array], Array] = each
    if sizes is not None:
        kernels = fused.prepared(sizes, params)
        on_gpu = lambda rows: dqn.joined(agent, spec, kernels(rows))  # noqa: E731
    mask = by_slot(jnp.broadcast_to(wanted, (rings, slots)))
    which = everything if wanted is True and coded.frames == 1 else some
    on_cpu = some(each, max(1, min(most_at_once, NEAR // coded.width)))
    rest = {"cuda": which(on_gpu, most_at_once), "default": which(each, most_at_once)}
    q = jax.lax.platform_dependent(flat, mask, cpu=on_cpu, **rest)
    return jnp.moveaxis(q.reshape(slots, rings, -1), 1, 0)


@jax.custom_batching.custom_vmap
def most(count: Int[Array, ""]) -> Int[Array, ""]:
    """The count itself, and the largest one where runs go side by side, so that they share a loop of so many turns."""
    return count


@most.def_vmap
def _most(size: int, batched: list[bool], count: Array) -> tuple[Array, bool]:
    return most(jnp.max(count)), False
