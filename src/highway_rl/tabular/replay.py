"""Highway Q-learning's memory: whole episodes, the per-policy datasets 𝒟⁽ᵐ⁾ₛₐ found in them, targets recomputed.

An episode belongs to policy m = (its number) // rollouts. In a clocked environment (s,a) occurs at one time t only, so
𝒟⁽ᵐ⁾ₛₐ is the set of policy m's episodes that have (s,a) in row t: one comparison of a column. A step keeps its state,
its action and the return from there to the end: an n-step return is then one subtraction (`returns_from_start`). The
search does not look at Q, so that of all I_update updates of an episode is done at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from highway_rl import checks
from highway_rl.core.bootstrap import value_of
from highway_rl.core.lookahead import lookahead
from highway_rl.core.returns import returns_from_start
from highway_rl.core.targets import TargetRule
from highway_rl.tabular.draws import BLOCK, distinct, nth_bit, spread
from highway_rl.tabular.targets import LEAST_RATE, Outcomes, halved_target, highway_target, no_outcomes, noted
from highway_rl.types import NEVER, record, static


@record
class Replay:
    """M policies per update, I_rollout episodes per policy, I_update updates per episode, episodes kept.

    `chooser` "sample" is the paper's maximum of samples, "half" the one of `targets.py`, with its `confidence`.
    """

    policies: int = static(default=3)
    rollouts: int = static(default=1)
    updates: int = static(default=1)
    capacity: int = static(default=1024)
    chooser: str = static(default="sample")
    confidence: float = static(default=-2.0)

    def __post_init__(self) -> None:
        checks.choice("chooser", self.chooser, ("sample", "half"))
        checks.number("confidence", self.confidence)
        for name in ("policies", "rollouts", "updates", "capacity"):
            checks.whole(name, getattr(self, name), 1)
        if self.capacity % (BLOCK * self.rollouts):
            raise checks.refusal("capacity", self.capacity, f"a multiple of {BLOCK} x rollouts={self.rollouts}")


class Episodes(NamedTuple):
    """A ring of episodes end to end: the state of each step, and `to_end`, the return from there to the end.

    A spare episode at the end keeps slices inside. `pair_at` is s·|A| + a by time, for the search; −1 is no step.
    `ends` are the running totals of `length`. `pair` and `outcomes` are kept for a chooser that looks at them.
    """

    state: Int[Array, "steps"]
    to_end: Float[Array, "steps"]
    pair_at: Int[Array, "t e"]
    length: Int[Array, "e"]
    ends: Int[Array, "e"]
    pair: Int[Array, "steps"] | None = None
    outcomes: Outcomes | None = None


def empty(replay: Replay, horizon: int, num_pairs: int = 0) -> Episodes:
    steps = (replay.capacity + 1) * horizon
    looks = replay.chooser != "sample"
    return Episodes(
        jnp.zeros(steps, jnp.int32),
        jnp.zeros(steps, float),
        jnp.full((horizon, replay.capacity), -1, jnp.int32),
        jnp.zeros(replay.capacity, jnp.int32),
        jnp.zeros(replay.capacity, jnp.int32),
        jnp.zeros(steps, jnp.int32) if looks else None,
        no_outcomes(num_pairs) if looks else None,
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
        put(kept.state, jnp.where(episode.valid, episode.state, 0)),
        put(kept.to_end, to_end),
        jax.lax.dynamic_update_slice(kept.pair_at, pair[:, None], (jnp.int32(0), place)),
        kept.length.at[place].set(length),
        kept.ends + longer,
        None if kept.pair is None else put(kept.pair, jnp.maximum(pair, 0)),
        None if kept.outcomes is None else noted(kept.outcomes, episode, num_actions),
    )


class Chosen(NamedTuple):
    """One update: its (s,a), where it begins in the sampled policies' episodes, and how many steps are left there.

    `left` is 0 where an episode of the policy does not have (s,a); `met` is how many policies have it.
    """

    pair: Int[Array, ""]
    step: Int[Array, "m r"]
    left: Int[Array, "m r"]
    met: Int[Array, ""]


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
    rank, some = (distinct if replay.chooser == "sample" else spread)(draws[:, 1:], total)
    block = jnp.sum(ends[:, None, :] <= rank[:, :, None], axis=-1, dtype=jnp.int32)
    block = jnp.minimum(block, blocks - 1)
    before = jnp.where(block > 0, jnp.take_along_axis(ends, jnp.maximum(block - 1, 0), axis=1), 0)
    policy = block * BLOCK + nth_bit(jnp.take_along_axis(words, block, axis=1), rank - before)
    episodes = policy[:, :, None] * replay.rollouts + jnp.arange(replay.rollouts, dtype=jnp.int32)
    has = (kept.pair_at[time[:, None, None], episodes] == pair[:, None, None]) & some[:, :, None]
    left = jnp.where(has, kept.length[episodes] - time[:, None, None], 0)
    return Chosen(pair, episodes * horizon + time[:, None, None], left, total)


class Tables(NamedTuple):
    """Q, and beside it the value V(s) that a return ends in, so that a lookahead reads one number per state."""

    q: Float[Array, "s a"]
    value: Float[Array, "s"]


def replay_updates(
    replay: Replay,
    agent: Any,
    tables: Tables,
    kept: Episodes,
    count: Int[Array, ""],
    key: PRNGKeyArray,
    going: Any = True,
) -> Tables:
    """I_update updates in turn, each from the newest Q, once the current policy has all its episodes."""

    def updated() -> Tables:
        chosen = choose(replay, kept, count, key)
        settings = ((replay, agent.rule), agent.learning_rate, agent.discount)
        return Tables(*_in_turn(*settings, tables, kept, chosen, jnp.asarray(going, bool)))

    if replay.rollouts == 1:
        return updated()
    whole = (jnp.asarray(count) + 1) % replay.rollouts == 0
    return jax.lax.cond(whole, updated, lambda: tables)


How = tuple[Replay, TargetRule]


@jax.custom_batching.custom_vmap
def _in_turn(how: How, rate: Any, discount: Any, tables: Tables, kept: Episodes, chosen: Chosen, going: Any) -> Tables:
    """The updates one after the other. Several seeds at once go one after the other too: see `_seed_after_seed`."""
    rows = jax.tree.map(lambda x: x[None], (tables, kept, chosen, going))
    return Tables(*(x[0] for x in _flat_updates(how, rate, discount, *rows)))


@_in_turn.def_vmap
def _seed_after_seed(size: int, batched: Any, *args: Any) -> tuple[Tables, Any]:
    """What `vmap` over seeds does: all updates of one seed, then all of the next.

    An update reads and writes single numbers far apart, where batching gains nothing; all updates of a seed in a row
    find its numbers in the cache, and a seed that is done costs none. A `vmap` over settings takes the usual way.
    """
    settings, arrays = batched[:3], batched[3:]

    def whole(x: Any, is_batched: bool) -> Any:
        return x if is_batched else jnp.broadcast_to(x, (size, *jnp.shape(x)))

    rest = jax.tree.map(whole, args[3:], tuple(arrays))
    if any(jax.tree.leaves(settings)):
        leading = jax.tree.map(whole, args[:3], tuple(settings))
        one = lambda *a: _flat_updates(*a[:3], *jax.tree.map(lambda x: x[None], a[3:]))  # noqa: E731
        tables = jax.tree.map(lambda x: x[:, 0], jax.vmap(one)(*leading, *rest))
    else:
        tables = _flat_updates(*args[:3], *rest)
    return tables, jax.tree.map(lambda x: True, tables)


def _flat_updates(
    how: How,
    rate: Any,
    discount: Any,
    tables: Tables,
    kept: Episodes,
    chosen: Chosen,
    going: Bool[Array, "seeds"],
) -> Tables:
    """The updates of every seed (the first axis) that is going, in one loop over arrays that hold all seeds."""
    replay, rule = how
    seeds, num_states, num_actions = tables.q.shape
    updates = chosen.pair.shape[1]
    if tables.q.size > jnp.iinfo(jnp.int32).max:  # places are counted in int32
        raise ValueError(
            f"{seeds} tables of {num_states:,} states are too many for one program: give fewer seeds at a time, or a "
            "task with fewer states"
        )
    horizon = kept.pair_at.shape[1]
    real = tables.q.dtype
    powers = jnp.asarray(discount, real) ** jnp.arange(1, horizon + 1, dtype=real)
    states, to_end = kept.state.ravel(), kept.to_end.ravel()
    pairs = chosen.pair.ravel()
    steps, lefts = (x.reshape(-1, *x.shape[2:]) for x in (chosen.step, chosen.left))
    who = jnp.argsort(~going).astype(jnp.int32)

    def update(i: Int[Array, ""], carry: tuple[Any, Any]) -> tuple[Any, Any]:
        q, value = carry
        seed = who[i // updates]
        row = seed * updates + i % updates
        pair = pairs[row] + seed * (num_states * num_actions)
        step, left = steps[row] + seed * kept.state.shape[1], lefts[row]

        def ahead(ring: Array) -> Array:
            rows = jax.vmap(lambda i: jax.lax.dynamic_slice(ring, (i,), (horizon,)))(step.ravel() + 1)
            return rows.reshape(*step.shape, horizon)

        next_value = value.at[ahead(states) + seed * num_states].get(mode="promise_in_bounds")
        inside = jnp.arange(1, horizon + 1, dtype=jnp.int32) < left[..., None]
        single: Any = returns_from_start(to_end[step], ahead(to_end), next_value, jnp.where(inside, powers, 0.0))
        now, fast = q[pair], jnp.asarray(rate, real)
        if kept.pair is None or kept.outcomes is None:
            target = highway_target(rule, single, left, now)
        else:
            along = jnp.concatenate([pairs[row] + jnp.zeros_like(step)[..., None], ahead(kept.pair.ravel())], axis=-1)
            random = kept.outcomes.random.ravel()[along[..., :-1] + seed * (num_states * num_actions)]
            fact = jnp.cumsum(random, axis=-1) == 0
            flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
            target, sure = halved_target(rule, flat(single), flat(left), flat(fact), replay.confidence)
            share = replay.policies / jnp.maximum(chosen.met.ravel()[row], 1).astype(real)
            fast = jnp.where(sure, fast, fast * jnp.clip(share, LEAST_RATE, 1.0))
        q = q.at[pair].set(now + fast * (target - now))
        state = pair // num_actions
        values = jax.lax.dynamic_slice(q, (state * num_actions,), (num_actions,))
        return q, value.at[state].set(value_of(rule.bootstrap, values, values))

    count = jnp.sum(going, dtype=jnp.int32) * updates
    q, value = jax.lax.fori_loop(jnp.int32(0), count, update, (tables.q.ravel(), tables.value.ravel()))
    return Tables(q.reshape(tables.q.shape), value.reshape(tables.value.shape))
