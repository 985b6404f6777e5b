"""Highway Q-learning's memory: whole episodes, the per-policy datasets 𝒟⁽ᵐ⁾ₛₐ found in them, targets recomputed.

An episode belongs to policy m = (its number) // rollouts. In a clocked environment (s,a) occurs at one time t only, so
𝒟⁽ᵐ⁾ₛₐ is the set of policy m's episodes that have (s,a) in row t: one comparison of a column. Nothing but raw steps is
stored. The search does not look at Q, so that of all I_update updates of an episode is done at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from highway_rl.core.backup import combine_returns
from highway_rl.core.bootstrap import value_of
from highway_rl.core.returns import lookahead, returns_from_start
from highway_rl.core.targets import TargetRule
from highway_rl.types import record, static

BLOCK = 32
NEVER = 2**31 - 1


@record
class Replay:
    """M policies per update, I_rollout episodes per policy, I_update updates per episode, episodes kept."""

    policies: int = static(default=3)
    rollouts: int = static(default=1)
    updates: int = static(default=1)
    capacity: int = static(default=1024)

    def __post_init__(self) -> None:
        for name in ("policies", "rollouts", "updates", "capacity"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: an integer from 1 up")
        if self.capacity % (BLOCK * self.rollouts):
            raise ValueError(f"capacity is {self.capacity}; allowed: a multiple of {BLOCK} x rollouts={self.rollouts}")


class Episodes(NamedTuple):
    """A ring of episodes end to end: `pair` is s·|A| + a, `to_end` the return from there to the end.

    A spare episode at the end keeps slices inside. `pair_at` is the same by time, for the search; −1 is no step. `ends`
    are the running totals of `length`.
    """

    pair: Int[Array, "steps"]
    to_end: Float[Array, "steps"]
    pair_at: Int[Array, "t e"]
    length: Int[Array, "e"]
    ends: Int[Array, "e"]


def empty(replay: Replay, horizon: int) -> Episodes:
    steps = (replay.capacity + 1) * horizon
    return Episodes(
        jnp.zeros(steps, jnp.int32),
        jnp.zeros(steps, float),
        jnp.full((horizon, replay.capacity), -1, jnp.int32),
        jnp.zeros(replay.capacity, jnp.int32),
        jnp.zeros(replay.capacity, jnp.int32),
    )


def store(replay: Replay, kept: Episodes, episode: Any, num_actions: int, count: Int[Array, ""]) -> Episodes:
    """The ring with one more episode, in the place of the oldest once it is full."""
    place = jnp.asarray(count, jnp.int32) % replay.capacity
    horizon = kept.pair_at.shape[0]
    pair = jnp.where(episode.valid, episode.state * num_actions + episode.action, -1)
    last = jnp.zeros_like(episode.valid)
    to_end = lookahead(episode.reward, episode.discount, last, (horizon,))[0].reward

    def put(ring: Array, row: Any) -> Array:
        return jax.lax.dynamic_update_slice(ring, row, (place * horizon,))

    length = jnp.sum(episode.valid, dtype=jnp.int32)
    longer = jnp.where(jnp.arange(replay.capacity, dtype=jnp.int32) >= place, length - kept.length[place], 0)
    return Episodes(
        put(kept.pair, jnp.maximum(pair, 0)),
        put(kept.to_end, to_end),
        jax.lax.dynamic_update_slice(kept.pair_at, pair[:, None], (jnp.int32(0), place)),
        kept.length.at[place].set(length),
        kept.ends + longer,
    )


class Chosen(NamedTuple):
    """One update: its (s,a), where it begins in the sampled policies' episodes, and how many steps are left there.

    `left` is 0 where an episode of the policy does not have (s,a).
    """

    pair: Int[Array, ""]
    step: Int[Array, "m r"]
    left: Int[Array, "m r"]


def choose(replay: Replay, kept: Episodes, count: Int[Array, ""], key: PRNGKeyArray) -> Chosen:
    """I_update draws of a stored (s,a), each with M of the policies that met it, all without replacement.

    Which policies met it is noted in words of `BLOCK` bits, only as many as are in use; the policy of a given rank is
    then found by counting bits.
    """
    horizon, capacity = kept.pair_at.shape
    wanted = replay.updates * (1 + replay.policies)
    draws = jax.random.uniform(key, (1 << (wanted - 1).bit_length(),))[:wanted].reshape(replay.updates, -1)
    step = jnp.minimum((draws[:, 0] * kept.ends[-1].astype(float)).astype(jnp.int32), kept.ends[-1] - 1)
    episode = jnp.searchsorted(kept.ends, step, side="right").astype(jnp.int32)
    time = step - (kept.ends[episode] - kept.length[episode])
    pair = kept.pair_at[time, episode]
    width = BLOCK * replay.rollouts
    place = jnp.arange(BLOCK, dtype=jnp.uint32)

    def note(block: Int[Array, ""], noted: Any) -> Any:
        words, ends, total = noted
        block = jnp.asarray(block, jnp.int32)
        rows = jax.lax.dynamic_slice(kept.pair_at, (jnp.int32(0), block * width), (horizon, width))[time]
        met = (rows == pair[:, None]).reshape(replay.updates, BLOCK, replay.rollouts).any(-1)
        word = jnp.sum(met.astype(jnp.uint32) << place, axis=1, dtype=jnp.uint32)
        total = total + jax.lax.population_count(word).astype(jnp.int32)
        return words.at[:, block].set(word), ends.at[:, block].set(total), total

    blocks = capacity // width
    used = jnp.minimum(jnp.asarray(count, jnp.int32) // width + 1, blocks)
    start = (
        jnp.zeros((replay.updates, blocks), jnp.uint32),
        jnp.full((replay.updates, blocks), NEVER, jnp.int32),
        jnp.zeros(replay.updates, jnp.int32),
    )
    words, ends, total = jax.lax.fori_loop(jnp.int32(0), used, note, start)
    rank, some = distinct(draws[:, 1:], total)
    block = jnp.sum(ends[:, None, :] <= rank[:, :, None], axis=-1, dtype=jnp.int32)
    block = jnp.minimum(block, blocks - 1)
    before = jnp.where(block > 0, jnp.take_along_axis(ends, jnp.maximum(block - 1, 0), axis=1), 0)
    policy = block * BLOCK + nth_bit(jnp.take_along_axis(words, block, axis=1), rank - before)
    episodes = policy[:, :, None] * replay.rollouts + jnp.arange(replay.rollouts, dtype=jnp.int32)
    has = (kept.pair_at[time[:, None, None], episodes] == pair[:, None, None]) & some[:, :, None]
    left = jnp.where(has, kept.length[episodes] - time[:, None, None], 0)
    return Chosen(pair, episodes * horizon + time[:, None, None], left)


def nth_bit(word: UInt32[Array, "*b"], n: Int[Array, "*b"]) -> Int[Array, "*b"]:
    """The place of the n-th set bit of a 32-bit word, counted from 0, by halving."""
    place = jnp.zeros_like(n)
    for half in (16, 8, 4, 2, 1):
        low = (word >> place.astype(jnp.uint32)) & jnp.uint32((1 << half) - 1)
        below = jax.lax.population_count(low).astype(n.dtype)
        upper = n >= below
        n = jnp.where(upper, n - below, n)
        place = jnp.where(upper, place + half, place)
    return jnp.minimum(place, BLOCK - 1)


def distinct(draws: Float[Array, "u m"], count: Int[Array, "u"]) -> tuple[Int[Array, "u m"], Bool[Array, "u m"]]:
    """m different whole numbers below `count`, every set equally likely; all of them, and a mask, if there are fewer.

    Floyd's way: the i-th is drawn from 0…j with j = count − m + i, and is j itself where that was drawn before. Places
    without a number repeat the first one.
    """
    size = draws.shape[1]
    ranks: list[Array] = []
    for i in range(size):
        j = jnp.maximum(count - size, 0) + i
        rank = jnp.floor(draws[:, i] * (j + 1).astype(draws.dtype)).astype(count.dtype)
        rank = jnp.minimum(rank, j)
        for earlier in ranks:
            rank = jnp.where(earlier == rank, -1, rank)
        rank = jnp.where(rank < 0, j, rank)
        ranks.append(rank if not ranks else jnp.where(i < count, rank, ranks[0]))
    return jnp.stack(ranks, axis=1), jnp.arange(size, dtype=jnp.int32) < count[:, None]


def replay_updates(
    replay: Replay, agent: Any, q: Float[Array, "s a"], kept: Episodes, count: Int[Array, ""], key: PRNGKeyArray
) -> Float[Array, "s a"]:
    """I_update updates in turn, each from the newest Q, once the current policy has all its episodes."""
    chosen = choose(replay, kept, count, key)
    discount = jnp.asarray(agent.discount, q.dtype) ** jnp.arange(1, kept.pair_at.shape[0] + 1, dtype=q.dtype)

    def update(q: Any, one: Chosen) -> tuple[Any, None]:
        goal = highway_target(agent.rule, discount, q, kept, one)
        state, action = one.pair // q.shape[1], one.pair % q.shape[1]
        now = q[state, action]
        return q.at[state, action].set(now + jnp.asarray(agent.learning_rate, q.dtype) * (goal - now)), None

    if replay.rollouts == 1:
        return jax.lax.scan(update, q, chosen)[0]
    whole = (jnp.asarray(count) + 1) % replay.rollouts == 0
    return jax.lax.cond(whole, lambda q: jax.lax.scan(update, q, chosen)[0], lambda q: q, q)


def highway_target(
    rule: TargetRule, discount: Float[Array, "t"], q: Float[Array, "s a"], kept: Episodes, one: Chosen
) -> Float[Array, ""]:
    """max_m max_n max_{n'∈{1,n}} 𝔼̂_{𝒟⁽ᵐ⁾ₛₐ}[Gⁿ'], or what the rule's backup puts for the maxima. Paper: Eq. 20."""
    horizon, num_actions = kept.pair_at.shape[0], q.shape[1]

    def slices(ring: Array) -> Array:
        rows = jax.vmap(lambda i: jax.lax.dynamic_slice(ring, (i,), (horizon,)))(one.step.ravel() + 1)
        return rows.reshape(*one.step.shape, horizon)

    follow = slices(kept.pair)
    acted = (follow[..., None] % num_actions == jnp.arange(num_actions, dtype=jnp.int32)).astype(q.dtype)
    next_value = value_of(rule.bootstrap, q[follow // num_actions], acted)
    inside = jnp.arange(1, horizon + 1, dtype=jnp.int32) < one.left[..., None]
    powers = jnp.where(inside, discount, 0.0)
    single = returns_from_start(kept.to_end[one.step], slices(kept.to_end), next_value, powers)
    weight = (one.left > 0).astype(q.dtype)
    returns = jnp.sum(single * weight[..., None], axis=1) / jnp.maximum(weight.sum(1), 1)[:, None]
    backup, gate_depth = rule.backup, rule.backup.gate_depth
    picked = [min(n, horizon) - 1 for n in backup.depths]
    value = q[one.pair // num_actions, one.pair % num_actions]
    reference = returns[:, min(gate_depth, horizon) - 1] if gate_depth else jnp.full(returns.shape[:1], value)
    gated = returns if picked == list(range(horizon)) else returns[:, jnp.array(picked)]
    if all(isinstance(a, float) and a == math.inf for a in (backup.depth_alpha, backup.policy_alpha)):
        # A repeated return or policy does not change a maximum: no masks.
        return jnp.asarray(combine_returns(backup, gated, reference))
    left = one.left.max(1)
    real = jnp.arange(1, horizon + 1, dtype=jnp.int32) <= left[:, None]
    real = real[:, jnp.array(picked)]
    return jnp.asarray(combine_returns(backup, gated, reference, policy_mask=left > 0, depth_mask=real))
