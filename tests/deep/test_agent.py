"""The loop trains whatever answers the questions of `Agent`: a table of values, and one that learns nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.deep import loop
from highway_rl.deep.agent import Agent
from highway_rl.deep.schedule import Schedule
from highway_rl.envs import probes

ENV = probes.late(4)
PLAN = Schedule(steps=400, capacity=400, start=100, refresh=40, num_envs=2)
GAMMA, RATE, SHARE, BATCH = 0.9, 0.24, 0.4, 4


def table(spec, updates):
    """Q-learning in a table. Its state remembers what it was given: each batch's number, and each `here`."""
    states, coded = spec.observation.shape[0], codec_of(spec)
    place = jax.vmap(lambda row: jnp.argmax(coded.decode(row)))

    def init(key):
        nothing = {"batch": jnp.full(updates, -1), "here": jnp.zeros((updates, PLAN.num_envs, coded.width), jnp.uint8)}
        return {"q": jnp.zeros((states, spec.num_actions)), "count": jnp.int32(0), **nothing}

    def act(state, obs):
        return jnp.argmax(state["q"][jnp.argmax(obs, axis=1)], axis=1).astype(jnp.int32)

    def refresh(state, store, step, keys, shape, look):
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), store.rows)
        # the row that follows, in its own ring
        after = jnp.roll(store.rows.obs, -1, axis=1).reshape(rows.obs.shape)
        drawn = ring.pick(rows.real, jax.random.uniform(keys[0], (*shape, BATCH)))
        number = step * 1000 + jnp.arange(np.prod(shape)).reshape(shape)
        told = jax.tree.map(lambda x: x[drawn], (rows, after))
        return state, (number, *told), {"step": step, "real": jnp.sum(rows.real)}

    def learn(state, batches, at, here):
        number, rows, after = jax.tree.map(lambda x: x[at], batches)
        now, then = place(rows.obs), place(after)
        target = rows.reward + GAMMA * jnp.where(rows.terminated, 0.0, jnp.max(state["q"][then], axis=1))
        error = target - state["q"][now, rows.action]
        best = act(state, jax.vmap(coded.decode)(here))
        new = {
            "q": state["q"].at[now, rows.action].add(RATE * error),
            "count": state["count"] + 1,
            "batch": state["batch"].at[state["count"]].set(number),
            "here": state["here"].at[state["count"]].set(here) if here.shape[0] else state["here"],
        }
        return new, jnp.float32(number), best

    unseen = {"step": jnp.int32(-1), "real": jnp.int32(-1)}
    return Agent(init, act, learn, refresh, lambda step: jnp.full(step.shape, SHARE, jnp.float32), unseen)


PERIODS = (400 - 120) // 40
"""Periods with updates: the first that begins at or after `start`, 120, and all that follow."""
UPDATES = PERIODS * 40


@pytest.fixture(scope="module")
def trained():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        agent = table(ENV.spec, UPDATES)
        run, curve = jax.jit(lambda key: loop.train(ENV, agent, PLAN, key))(jax.random.key(0))
    return jax.device_get(run._replace(key=None)), jax.device_get(curve)


def stored(run, env):
    """The real rows of one environment's ring in their order."""
    one = jax.tree.map(lambda x: x[env], run.store)
    rows = ring.in_order(one, one.rows)
    return jax.tree.map(lambda x: np.asarray(x)[np.asarray(rows.real)], rows)


def test_every_batch_comes_once_and_in_order(trained):
    run, curve = trained
    assert run.learning["count"] == UPDATES
    firsts = [1000 * step for step in range(120, 400, 40)]
    np.testing.assert_array_equal(run.learning["batch"], np.concatenate([first + np.arange(40) for first in firsts]))
    assert np.asarray(curve.loss)[:3].tolist() == [0, 0, 0]
    np.testing.assert_allclose(curve.loss[3:], [first + 19.5 for first in firsts], rtol=1e-6)


def test_here_is_what_is_acted_on(trained):
    """The first update of a turn is shown the observations of both environments; the second is shown none."""
    run, _ = trained
    for env in range(2):
        rows = stored(run, env)
        learning = rows.born >= 120
        assert learning.sum() == UPDATES // 2
        np.testing.assert_array_equal(run.learning["here"][::2, env], rows.obs[learning])
    assert not run.learning["here"][1::2].any()


def test_what_is_seen_and_how_much_is_random(trained):
    """The refresh is told how many steps were made, and finds them in the store; before the first it is `unseen`."""
    _, curve = trained
    steps = np.arange(0, 400, 40)
    np.testing.assert_array_equal(curve.step, steps + 40)
    np.testing.assert_array_equal(curve.seen["step"], np.where(steps < 120, -1, steps))
    np.testing.assert_array_equal(curve.seen["real"], np.where(steps < 120, -1, steps))
    np.testing.assert_allclose(curve.epsilon, np.where(steps < 100, 1.0, SHARE), rtol=1e-6)


def test_the_store_and_the_scores(trained):
    """Episodes replayed from the stored rows: their sums are the curve's, and chances are as the share says."""
    run, curve = trained
    ended, scores = np.zeros(10, int), np.zeros(10)
    for env in range(2):
        rows, score, length = stored(run, env), 0.0, 0
        np.testing.assert_array_equal(rows.born, np.arange(0, 400, 2))
        for t in range(200):
            score, length = score + float(rows.reward[t]), length + 1
            if rows.terminated[t]:
                assert length == 4
                ended[rows.born[t] // 40] += 1
                scores[rows.born[t] // 40] += score
                score, length = 0.0, 0
        assert (run.score[env], run.length[env]) == (pytest.approx(score), length)
        share = np.where(rows.born < 100, 1.0, SHARE)
        explored, best = np.isclose(rows.behaviour, share / 4), np.isclose(rows.behaviour, share / 4 + 1 - share)
        assert (explored | best).all()
        assert explored[rows.born >= 100].any()
        assert best[rows.born >= 100].mean() > 0.5
    np.testing.assert_array_equal(curve.episodes, ended)
    np.testing.assert_allclose(curve.score, scores / ended, rtol=1e-6)
    np.testing.assert_array_equal(curve.length, 4)


def test_it_learns(trained):
    """Choosing the good way is worth γ³, the other a fifth; the best at place t of the good way γ^(3−t)."""
    q = trained[0].learning["q"]
    np.testing.assert_allclose(q[0, :2], GAMMA**3, rtol=0.1)
    np.testing.assert_allclose(q[0, 2:], GAMMA**3 / 5, rtol=0.1)
    np.testing.assert_allclose(np.max(q[1:4], axis=1), GAMMA ** np.array([2, 1, 0]), rtol=0.05)


def test_an_agent_may_have_nothing_to_learn():
    """No state and no batches: it always takes action 1, but for its random share of none."""
    always = lambda obs: jnp.ones(obs.shape[0], jnp.int32)  # noqa: E731
    agent = Agent(
        init=lambda key: (),
        act=lambda state, obs: always(obs),
        learn=lambda state, batches, at, here: ((), jnp.float32(0), always(here)),
        refresh=lambda state, store, step, keys, shape, look: ((), (), ()),
        epsilon=lambda step: jnp.zeros(step.shape, jnp.float32),
        unseen=(),
    )
    run, curve = jax.jit(lambda key: loop.train(ENV, agent, PLAN, key))(jax.random.key(1))
    for env in range(2):
        rows = stored(run, env)
        assert (rows.action[rows.born >= 100] == 1).all()
        assert (rows.action[rows.born < 100] != 1).any()
    np.testing.assert_allclose(curve.score[3:], 1.0)  # action 1 chooses the good way
