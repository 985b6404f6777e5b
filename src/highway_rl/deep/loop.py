"""The one loop, in three parts: begin (refresh, draw), turn (update, act, step), finish (store, tally).

Pure, so that seeds and settings are a `vmap` away. Time is cut into periods, the steps between two refreshes of the
target network. Within one, targets and the steps that may be drawn stand still; so a period draws all its batches when
it begins and adds all its steps to the store when it ends, and the turns in between touch neither. A step is learned
from after the next refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt8, UInt32

from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.data.packing import packing
from highway_rl.data.ring import Rows, Store
from highway_rl.deep.agent import Agent
from highway_rl.deep.chance import Drawn, Turn, draw
from highway_rl.deep.schedule import Schedule
from highway_rl.envs.wrappers import AutoResetState, auto_reset
from highway_rl.types import NEVER, Env, Spec


class Run(NamedTuple):
    """Everything a run is: save this and nothing is lost. `learning` is the agent's own state."""

    learning: PyTree
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
    seen: PyTree


def init(env: Env, agent: Agent, schedule: Schedule, key: PRNGKeyArray) -> Run:
    """A run that has not begun."""
    k_net, k_env, k_run = jax.random.split(key, 3)
    state, obs = jax.vmap(auto_reset(env).reset)(jax.random.split(k_env, schedule.num_envs))
    return begun(agent.init(k_net), new_store(env.spec, schedule, obs), state, k_run, schedule)


def begun(learning: PyTree, store: Store, state: PyTree, k_run: PRNGKeyArray, schedule: Schedule) -> Run:
    """A run with nothing counted."""
    zeros = jnp.zeros(schedule.num_envs, jnp.int32)
    first = jnp.arange(schedule.num_envs, dtype=jnp.int32)  # numbers of episodes: no two environments share one
    return Run(learning, store, state, k_run, zeros.astype(jnp.float32), zeros, first, jnp.int32(NEVER))


def new_store(spec: Spec, schedule: Schedule, obs: PyTree) -> Store:
    """An empty ring for each environment, whose newest row is the observation to act on."""
    coded = codec_of(spec)
    rows = coded.row(jax.vmap(coded.encode)(obs))
    return jax.vmap(lambda row: ring.empty(schedule.capacity // schedule.num_envs, row))(rows)


def train(env: Env, agent: Agent, schedule: Schedule, key: PRNGKeyArray) -> tuple[Run, Curve]:
    """A whole run: pure and jittable, vmap it over keys and over the agent's leaves."""
    return advance(env, agent, schedule, init(env, agent, schedule, key), 0, schedule.periods)


def advance(
    env: Env, agent: Agent, schedule: Schedule, run: Run, first: Any, periods: int, learn_from: Any = 0,
    look: Any = True,
) -> tuple[Run, Curve]:  # fmt: skip
    """`periods` more periods, the first of them number `first`: the same for all runs of a vmap, so that warming up
    and learning stay two branches of which only one runs. A run that lost its store fills it until `learn_from`.
    Without a `look` nothing is `seen`."""

    def one(run: Run, number: Int[Array, ""]) -> tuple[Run, Curve]:
        learns = (number * schedule.refresh >= schedule.start) & (number >= learn_from)
        return _period(env, agent, schedule, run, number, learns, look)

    return jax.lax.scan(one, run, first + jnp.arange(periods, dtype=jnp.int32))


def of_each(one: Callable[..., Any], axes: Sequence[int | None], runs: int, devices: int = 1) -> Callable[..., Any]:
    """`one` for so many runs side by side, spread over devices. A single run on a CPU is not batched: products of
    matrices, and networks that are picked by number, are slower in a batch of one."""
    if runs > 1 or jax.default_backend() != "cpu":
        return jax.vmap(one, in_axes=tuple(axes), axis_size=runs // devices)

    def alone(*given: Any) -> Any:
        single = [x if axis is None else jax.tree.map(lambda y: y[0], x) for x, axis in zip(given, axes, strict=True)]
        return jax.tree.map(lambda x: jnp.asarray(x)[None], one(*single))

    return alone


def _period(
    env: Env, agent: Agent, schedule: Schedule, run: Run, number: Int[Array, ""], learns: Bool[Array, ""], look: Any
) -> tuple[Run, Curve]:
    """Begin, turn after turn, finish; before learning begins there is no refresh and no update."""
    drawn = draw(env.spec, agent, schedule, run.key, number)
    words, coded = packing(run.env.inner), codec_of(env.spec)  # a GPU pays for each array that a loop carries
    place = words.pack(run.env.inner), jax.vmap(coded.encode)(run.env.obs)

    def turns(learning: PyTree, place: Any, batches: PyTree, updates: int) -> tuple[tuple[PyTree, Any], Made]:
        def one(carry: tuple[PyTree, Any, Int[Array, ""]], drawn: Turn) -> tuple[tuple[PyTree, Any, Any], Made]:
            learning, (inner, here), number = carry
            at = (words.unpack(inner), here)
            learning, (inner, here), made = turn(env, agent, learning, at, drawn, batches, number, updates)
            return (learning, (words.pack(inner), here), number + 1), made

        start = (learning, place, jnp.int32(0))
        (learning, place, _), made = jax.lax.scan(one, start, drawn.turns, unroll=schedule.at_once)
        return (learning, place), made

    def with_learning() -> tuple[Any, Made, PyTree]:
        learning, batches, seen = begin(agent, schedule, run, drawn, look)
        return *turns(learning, place, batches, schedule.updates_per_turn), seen

    def without() -> tuple[Any, Made, PyTree]:
        return *turns(run.learning, place, (), 0), agent.unseen

    (learning, (inner, here)), made, seen = jax.lax.cond(learns, with_learning, without)
    state = AutoResetState(words.unpack(inner), jax.vmap(coded.decode)(here))
    did = unpacked(made, schedule.turns, schedule.num_envs)
    return finish(env.spec, schedule, run, drawn, Played(learning, state, made.obs, did, seen))


def begin(agent: Agent, schedule: Schedule, run: Run, drawn: Drawn, look: Any = True) -> tuple[PyTree, PyTree, PyTree]:
    """The refresh: the agent as it goes into the period, a batch for every update of every turn, what is to be seen."""
    shape = (schedule.turns, schedule.updates_per_turn)
    return agent.refresh(run.learning, run.store, drawn.steps[0], drawn.keys, shape, look)


class Happened(NamedTuple):
    """What one turn did in each environment. `best`: the action was the one the agent thinks best."""

    action: Int[Array, "n"]
    best: Bool[Array, "n"]
    terminated: Bool[Array, "n"]
    truncated: Bool[Array, "n"]
    reward: Float[Array, "n"]
    loss: Float[Array, "n"]


class Made(NamedTuple):
    """What a turn makes: two arrays, since each one costs a kernel a turn. The coded observation acted on with the one
    that followed it, and `Happened` as words."""

    obs: UInt8[Array, "*turn env two_w"]
    words: UInt32[Array, "*turn env n"]


Place = tuple[PyTree, UInt8[Array, "env w"]]
"""Where the environments are: their states, and the observations to act on, coded as the store keeps them."""


def turn(
    env: Env, agent: Agent, learning: PyTree, at: Place, drawn: Turn, batches: PyTree, number: Any, updates: int
) -> tuple[PyTree, Place, Made]:
    """Update (on each of its batches), act, step. The action is chosen by the agent as it was before.

    The first update also says what is best here: one pass of a network can then see the batch and the observation to
    act on. Further updates get no observations beside theirs.
    """
    coded = codec_of(env.spec)
    (inner, here), loss = at, jnp.float32(0)
    if not updates:
        best = agent.act(learning, jax.vmap(coded.decode)(here))
    for i in range(updates):
        learning, error, actions = agent.learn(learning, batches, (number, i), here if i == 0 else here[:0])
        best, loss = (actions if i == 0 else best), loss + error / updates
    action = jnp.where(drawn.explores, drawn.action, best)
    out = jax.vmap(auto_reset(env).step)(AutoResetState(inner, None), action, drawn.key)
    happened = Happened(
        action, action == best, out.terminated, out.truncated, out.reward, jnp.broadcast_to(loss, action.shape)
    )
    # the true successor and the observation to act on next are coded together: two kernels less
    both = jax.tree.map(lambda *x: jnp.stack(x), out.obs, out.state.obs)
    successor, current = jax.vmap(jax.vmap(coded.encode))(both)
    seen = jnp.concatenate([here, successor], axis=-1)
    return learning, (out.state.inner, current), Made(seen, packing(happened).pack(happened)[0])


def unpacked(made: Made, turns: int, envs: int) -> Happened:
    """What happened, [turn, env]."""
    word: Any = lambda kind: jax.ShapeDtypeStruct((turns * envs,), kind)  # noqa: E731
    true_or_not, number = word(bool), word(jnp.float32)
    like = Happened(word(jnp.int32), true_or_not, true_or_not, true_or_not, reward=number, loss=number)
    flat = packing(like).unpack((made.words.reshape(turns * envs, -1), []))
    return jax.tree.map(lambda x: x.reshape(turns, envs), flat)


class Played(NamedTuple):
    """A period after its last turn: the agent, the environments, the coded observations acted on with those that
    followed, what happened, what the refresh saw, and which turns were steps."""

    learning: PyTree
    state: PyTree
    obs: UInt8[Array, "turn env two_w"]
    did: Happened
    seen: PyTree
    real: Any = True


def finish(spec: Spec, schedule: Schedule, run: Run, drawn: Drawn, played: Played) -> tuple[Run, Curve]:
    """Puts the period's steps into the store, and adds up its episodes."""
    E, did = schedule.num_envs, played.did
    ended = did.terminated | did.truncated
    before = jnp.cumsum(ended, axis=0) - ended  # episodes that ended before this turn, per environment
    store = kept(spec, schedule, run, drawn, played, before)
    running = before == jnp.sum(ended, axis=0)  # turns of the episode that goes on after the period
    score_left, scores = _tally(run.score, did.reward, running)
    length_left, lengths = _tally(run.length, jnp.ones_like(did.action) * jnp.asarray(played.real), running)
    fine = jnp.isfinite(did.reward).all(axis=1) & jnp.isfinite(did.loss[:, 0])
    broken = jnp.minimum(run.broken, jnp.min(jnp.where(fine, NEVER, drawn.steps)))
    # a run whose numbers broke keeps the networks it had; the others never see it
    learning = jax.tree.map(lambda new, old: jnp.where(broken == NEVER, new, old), played.learning, run.learning)
    episodes = jnp.sum(ended)
    per_episode = 1.0 / jnp.where(episodes > 0, episodes, jnp.nan)
    after = run._replace(
        learning=learning,
        store=store,
        env=played.state,
        score=score_left,
        length=length_left,
        episode=run.episode + E * jnp.sum(ended, axis=0),
        broken=broken,
    )
    curve = Curve(
        step=drawn.steps[0] + schedule.refresh,
        episodes=episodes,
        score=scores * per_episode,
        length=lengths * per_episode,
        loss=jnp.mean(did.loss),
        epsilon=drawn.epsilon[0],
        broken=broken,
        seen=played.seen,
    )
    return after, curve


def kept(
    spec: Spec, schedule: Schedule, run: Run, drawn: Drawn, played: Played, ended_before: Int[Array, "turn env"]
) -> Store:
    """The store with the period's steps, each environment's in its own ring."""
    did, shape = played.did, played.did.action.shape
    every = lambda x: jnp.broadcast_to(x[:, None], shape)  # noqa: E731
    coded = codec_of(spec)
    here, successor = map(coded.row, jnp.split(played.obs, 2, axis=-1))
    by_episode = schedule.policy_is == "episode"
    new = Rows(
        obs=here,
        action=did.action,
        reward=did.reward,
        terminated=did.terminated,
        behaviour=every(drawn.epsilon) / spec.num_actions + jnp.where(did.best, 1.0 - every(drawn.epsilon), 0.0),
        policy=run.episode + schedule.num_envs * ended_before if by_episode else jnp.full(shape, drawn.number),
        born=every(drawn.steps),
        real=jnp.broadcast_to(played.real, shape),
    )
    current = coded.row(jax.vmap(coded.encode)(played.state.obs))
    rows, truncated, after = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), (new, did.truncated, successor))
    return jax.vmap(ring.add)(run.store, rows, truncated, after, current)


def _tally(before: Array, each: Array, running: Bool[Array, "turn env"]) -> tuple[Array, Array]:
    """Sums per environment of what belongs to the episode still running, and over all of what belongs to ended ones."""
    left = jnp.sum(jnp.where(running, each, 0), axis=0) + jnp.where(jnp.all(running, axis=0), before, 0)
    return left, jnp.sum(before) + jnp.sum(each) - jnp.sum(left)
