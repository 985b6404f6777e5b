"""RUDDER: the sum of the redistributed reward, what the LSTM learns, seeds, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.envs import make_task
from highway_rl.tabular import agent as tabular
from highway_rl.tabular import rudder
from highway_rl.tabular.loop import trainer
from highway_rl.types import NEVER


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compiling is what takes the time of these small programs, so they are compiled without optimisation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def test_redistributed_reward_sums_to_the_return():
    prediction = jax.random.normal(jax.random.key(0), (7,))
    reward = rudder.redistribute(prediction, jnp.asarray(3.5), jnp.int32(prediction.shape[0]))
    np.testing.assert_allclose(reward.sum(), 3.5, atol=1e-12)
    np.testing.assert_allclose(
        reward - reward.mean(), jnp.diff(prediction, prepend=0.0) - prediction[-1] / 7, atol=1e-12
    )


def test_an_episode_may_end_before_the_horizon():
    """Rows after its end count neither in the redistributed reward nor in the loss."""
    prediction = jnp.asarray([1.0, 4.0, -7.0, 9.0])
    reward = rudder.redistribute(prediction, jnp.asarray(10.0), jnp.int32(2))
    np.testing.assert_allclose(reward, [1 + 3, 3 + 3, 0, 0])
    weights = rudder.init(3, 4, jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (2, 6, 3))
    total, length = jnp.asarray([1.0, -2.0]), jnp.asarray([3, 3], jnp.int32)
    short = rudder.loss(weights, x[:, :3], total, length)
    np.testing.assert_allclose(rudder.loss(weights, x, total, length), short, rtol=1e-12)


def test_prediction_is_the_recursion():
    """The scan against the recursion of the docstring, written out."""
    w = rudder.init(3, 4, jax.random.key(1))
    x = np.asarray(jax.random.normal(jax.random.key(2), (5, 3)))
    cell, hidden, want = np.zeros(4), np.zeros(4), []
    for row in x:
        gate = 1 / (1 + np.exp(-(hidden @ np.asarray(w.gate) + np.asarray(w.gate_bias))))
        cell = cell + gate * np.tanh(row @ np.asarray(w.cell) + np.asarray(w.cell_bias))
        hidden = np.tanh(cell)
        want.append(hidden @ np.asarray(w.out) + float(w.out_bias))
    np.testing.assert_allclose(rudder.predict(w, jnp.asarray(x)), want, atol=1e-12)


@pytest.fixture(scope="module")
def solved():
    env = make_task("trace-back", delay=4)
    learner = rudder.learner(env, rudder.rudder_q_lambda(wait=64, capacity=256, updates=10))
    train = trainer(env, learner, max_episodes=600, until="cap")
    keys = jax.random.split(jax.random.key(0), 4)
    return train, keys, train(keys)


def test_it_solves_a_short_trace_back(solved):
    _, _, result = solved
    assert np.median(result.greedy) < 600 < NEVER
    assert np.asarray(result.greedy).min() >= 64


def test_seeds_differ_and_repeat(solved):
    train, keys, result = solved
    assert not np.array_equal(result.kept.weights.cell[0], result.kept.weights.cell[1])
    np.testing.assert_array_equal(train(keys).kept.q, result.kept.q)


@pytest.mark.parametrize("name", ["units", "batch", "wait", "interval", "updates", "capacity"])
def test_bad_settings_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}=0: give"):
        rudder.rudder(**{name: 0})


def test_agents_with_a_replay_are_refused():
    with pytest.raises(ValueError, match="agent has a replay: give"):
        rudder.Rudder(tabular.highway_q_learning(5))


@pytest.mark.full
@pytest.mark.parametrize(
    ("task", "delay", "limit", "rate"), [("trace-back", 15, 2500, 0.01), ("choice", 10, 8000, 0.001)]
)
@pytest.mark.parametrize("make", [rudder.rudder, rudder.rudder_q_lambda])
def test_it_solves_the_papers_tasks(task, delay, limit, rate, make):
    """Must hold: medians of at most 2,500 episodes on Trace Back and 8,000 on Choice."""
    env = make_task(task, delay=delay)
    train = trainer(env, rudder.learner(env, make()), max_episodes=limit, average_rate=rate, keep=lambda memory: ())
    assert np.median(train(jax.random.split(jax.random.key(0), 20)).average) < limit
