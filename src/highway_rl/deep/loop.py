"""The one loop: collect, refresh, learn. Pure, so that seeds and settings are a `vmap` away.

Time is cut into periods, the steps between two refreshes of the target network. Within one, targets and the steps
that may be drawn stand still; so a period draws all its batches when it begins and adds all its steps to the store
when it ends, and the loop in between touches neither. A step is learned from after the next refresh.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt32

from highway_rl.data import ring as stores
from highway_rl.data.codec import codec, decoded
from highway_rl.data.packing import packing
from highway_rl.data.ring import Rows, Store
from highway_rl.deep import dqn
from highway_rl.deep.diagnostics import Seen
from highway_rl.deep.dqn import DQN, Learning
from highway_rl.deep.refresh import refresh
from highway_rl.deep.settings import check_run, check_schedule
from highway_rl.envs.wrappers import auto_reset
from highway_rl.types import Env, record, static

NEVER = jnp.iinfo(jnp.int32).max


@record
class Schedule:
    """How long, and what happens when; all in environment steps of one run."""

    steps: int = static(default=5_000_000)
    capacity: int = static(default=100_000)
    start: int = static(default=5_000)
    refresh: int = static(default=1_000)
    num_envs: int = static(default=1)
    updates_per_step: float = static(default=1.0)

    def __post_init__(self) -> None:
        check_schedule(self)

    @property
    def periods(self) -> int:
        return self.steps // self.refresh

    @property
    def turns(self) -> int:
        """Times a period that all environments step together."""
        return self.refresh // self.num_envs

    @property
    def updates_per_turn(self) -> int:
        return round(self.num_envs * self.updates_per_step)


class Run(NamedTuple):
    """Everything a run is: save this and nothing is lost."""

    learning: Learning
    older: PyTree
    store: Store
    env: PyTree
    key: PRNGKeyArray
    score: Float[Array, "env"]
    length: Int[Array, "env"]
    episode: Int[Array, "env"]
    broken: Int[Array, ""]


class Curve(NamedTuple):
    """One row a period. Scores are undiscounted sums of the episodes that ended in it."""

    step: Int[Array, ""]
    episodes: Int[Array, ""]
    score: Float[Array, ""]
    length: Float[Array, ""]
    loss: Float[Array, ""]
    epsilon: Float[Array, ""]
    broken: Int[Array, ""]
    seen: Seen


def init(env: Env, agent: DQN, schedule: Schedule, key: PRNGKeyArray) -> Run:
    """A run that has not begun."""
    check_run(agent, schedule)
    k_net, k_env, k_run = jax.random.split(key, 3)
    learning = dqn.start(agent, env, k_net)
    state, obs = jax.vmap(auto_reset(env).reset)(jax.random.split(k_env, schedule.num_envs))
    store = new_store(env, schedule, obs)
    zeros = jnp.zeros(schedule.num_envs, jnp.int32)
    older = learning.params if agent.bootstrap == "double" else None
    first = jnp.arange(schedule.num_envs, dtype=jnp.int32)  # numbers of episodes: no two environments share one
    return Run(learning, older, store, state, k_run, zeros.astype(jnp.float32), zeros, first, jnp.int32(NEVER))


def new_store(env: Env, schedule: Schedule, obs: PyTree) -> Store:
    """An empty ring for each environment, whose newest row is the observation to act on."""
    coded = codec(env.observation)
    rows = jax.vmap(coded.encode)(obs)
    return jax.vmap(lambda row: stores.empty(schedule.capacity // schedule.num_envs, row))(rows)


def train(env: Env, agent: DQN, schedule: Schedule, key: PRNGKeyArray) -> tuple[Run, Curve]:
    """A whole run: pure and jittable, vmap it over keys and over the agent's leaves."""
    return advance(env, agent, schedule, init(env, agent, schedule, key), 0, schedule.periods)


def advance(
    env: Env, agent: DQN, schedule: Schedule, run: Run, first: Any, periods: int, learn_from: Any = 0
) -> tuple[Run, Curve]:
    """`periods` more periods, the first of them number `first`: the same for all runs of a vmap, so that warming up
    and learning stay two branches of which only one runs. A run that lost its store fills it until `learn_from`."""

    def one(run: Run, period: Int[Array, ""]) -> tuple[Run, Curve]:
        learns = (period * schedule.refresh >= schedule.start) & (period >= learn_from)
        return _period(env, agent, schedule, run, period, learns)

    return jax.lax.scan(one, run, first + jnp.arange(periods, dtype=jnp.int32))


class _Turn(NamedTuple):
    """What one turn of the hot loop needs: randomness drawn and batches gathered before the loop begins."""

    env: PRNGKeyArray
    explores: Bool[Array, "*turn env"]
    action: Int[Array, "*turn env"]
    net: Any = None
    obs: Any = None
    taken: Any = None
    target: Any = None


class _Made(NamedTuple):
    """What a turn makes: two arrays, since each one costs a kernel a turn. Two observations, and four words."""

    bytes: Any
    words: UInt32[Array, "*turn env 4"]


def _period(
    env: Env, agent: DQN, schedule: Schedule, run: Run, period: Int[Array, ""], learns: Bool[Array, ""]
) -> tuple[Run, Curve]:
    """Refresh, then act and learn until the next one; or only act, before learning begins."""
    coded = codec(env.observation)
    playing = auto_reset(env)
    E, turns = schedule.num_envs, schedule.turns
    k_env, k_explore, k_action, k_batch, k_net, k_group = jax.random.split(jax.random.fold_in(run.key, period), 6)
    steps = period * schedule.refresh + E * jnp.arange(turns)
    epsilon = jnp.where(steps < schedule.start, 1.0, dqn.epsilon(agent, steps))
    xs = _Turn(
        jax.random.split(k_env, (turns, E)),
        jax.random.uniform(k_explore, (turns, E)) < epsilon[:, None],
        jax.random.randint(k_action, (turns, E), 0, env.num_actions),
    )
    words = packing(run.env)

    def turn(carry: tuple[Learning, PyTree], x: _Turn) -> tuple[tuple[Learning, PyTree], _Made]:
        learning, packed = carry
        state = words.unpack(packed)
        here, loss, q = jax.vmap(coded.encode)(state.obs), jnp.float32(0), jnp.float32(0)
        updates = 0 if x.net is None else x.net.shape[0]
        for i in range(updates):
            rows = x.obs[i] if i else jnp.concatenate([here, x.obs[i]])
            learning, error, values = dqn.update(
                agent, env, learning, x.net[i], decoded(coded, rows), x.taken[i], x.target[i]
            )
            q, loss = (q if i else values), loss + error / updates
        q = q if updates else dqn.q_values(agent, env, learning.params, state.obs)
        best = jnp.argmax(q, axis=-1).astype(jnp.int32)
        action = jnp.where(x.explores, x.action, best)
        out = jax.vmap(playing.step)(state, action, x.env)
        flags = (action == best) + 2 * out.terminated.astype(jnp.int32) + 4 * out.truncated
        made = (action, flags, _bits(out.reward), jnp.broadcast_to(_bits(loss), (E,)))
        seen = jnp.concatenate([here, jax.vmap(coded.encode)(out.obs)], axis=-1)
        return (learning, words.pack(out.state)), _Made(seen, jnp.stack([w.astype(jnp.uint32) for w in made], axis=-1))

    def only_act(run: Run, packed: Any) -> tuple[Any, _Made, Seen]:
        return *jax.lax.scan(turn, (run.learning, packed), xs), Seen.nothing(agent)

    def learn(run: Run, packed: Any) -> tuple[Any, _Made, Seen]:
        target, seen = refresh(agent, env, run.learning.params, run.older, run.store, steps[0], k_group)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), run.store.rows)
        updates = schedule.updates_per_turn
        rows = stores.pick(flat.real, jax.random.uniform(k_batch, (turns, updates, agent.batch_size)))
        net = jax.random.randint(k_net, (turns, updates), 0, agent.num_networks)
        batches = xs._replace(net=net, obs=flat.obs[rows], taken=flat.action[rows], target=target[rows])
        return *jax.lax.scan(turn, (run.learning, packed), batches), seen

    (learning, packed), made, seen = jax.lax.cond(learns, learn, only_act, run, words.pack(run.env))
    state = words.unpack(packed)
    action, flags, reward, loss = (made.words[..., i] for i in range(4))
    reward, loss = (jax.lax.bitcast_convert_type(x, jnp.float32) for x in (reward, loss))
    terminated, truncated = flags & 2 != 0, flags & 4 != 0
    ended = terminated | truncated
    begun = jnp.cumsum(ended, axis=0) - ended  # episodes that ended before this turn, per environment
    every = lambda x: jnp.broadcast_to(x[:, None], (turns, E))  # noqa: E731
    new = Rows(
        made.bytes[..., : coded.width],
        action.astype(jnp.int32),
        reward,
        terminated,
        every(epsilon) / env.num_actions + jnp.where(flags & 1 != 0, 1.0 - every(epsilon), 0.0),
        run.episode + E * begun if agent.policy_is == "episode" else jnp.full((turns, E), period),
        every(steps),
        jnp.ones((turns, E), bool),
    )
    by_env = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), (new, truncated, made.bytes[..., coded.width :]))
    store = jax.vmap(stores.add)(run.store, by_env[0], by_env[1], by_env[2], jax.vmap(coded.encode)(state.obs))

    running = begun == jnp.sum(ended, axis=0)  # turns of the episode that goes on after the period
    score_left, scores = _tally(run.score, reward, running)
    length_left, lengths = _tally(run.length, jnp.ones_like(action, jnp.int32), running)
    fine = jnp.isfinite(reward).all(axis=1) & jnp.isfinite(loss[:, 0])
    broken = jnp.minimum(run.broken, jnp.min(jnp.where(fine, NEVER, steps)))
    # a run whose numbers broke keeps the networks it had; the others never see it
    keep = lambda new, old: jnp.where(broken == NEVER, new, old)  # noqa: E731
    episodes = jnp.sum(ended)
    per_episode = 1.0 / jnp.where(episodes > 0, episodes, jnp.nan)
    after = Run(
        jax.tree.map(keep, learning, run.learning),
        run.learning.params if agent.bootstrap == "double" else None,
        store,
        state,
        run.key,
        score_left,
        length_left,
        run.episode + E * jnp.sum(ended, axis=0),
        broken,
    )
    curve = Curve(
        steps[0] + schedule.refresh,
        episodes,
        scores * per_episode,
        lengths * per_episode,
        jnp.mean(loss),
        epsilon[0],
        broken,
        seen,
    )
    return after, curve


def _tally(before: Array, each: Array, running: Bool[Array, "turn env"]) -> tuple[Array, Array]:
    """Sums per environment of what belongs to the episode still running, and over all of what belongs to ended ones."""
    left = jnp.sum(jnp.where(running, each, 0), axis=0) + jnp.where(jnp.all(running, axis=0), before, 0)
    return left, jnp.sum(before) + jnp.sum(each) - jnp.sum(left)


def _bits(x: Float[Array, "*n"]) -> UInt32[Array, "*n"]:
    return jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
