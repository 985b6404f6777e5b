"""One update, and the defaults it runs with, against the paper's table and a backward pass written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.core.targets import soft_highway
from highway_rl.deep import dqn, networks
from highway_rl.deep.algorithms import named_agent
from highway_rl.deep.dqn import DQN
from highway_rl.deep.schedule import Schedule
from highway_rl.envs import probes

SPEC = probes.late(3).spec
WIDTH = 5


def small(spec, key):
    return networks.FlatNetwork(spec, key, hidden=(WIDTH,))


def numbers(agent, learning):
    """Hidden and head weights of the only network, in float64."""
    net = dqn.network(agent, SPEC, jax.tree.map(lambda x: x[0], learning.params))
    layers = (net.hidden[0].weight, net.hidden[0].bias, net.head.weight, net.head.bias)
    return [np.asarray(x, np.float64) for x in layers]


def backward(weights, x, action, target, loss):
    """The gradient of the mean Huber or squared error between target and Q(s,a), layer by layer."""
    w1, b1, w2, b2 = weights
    hidden = np.maximum(x @ w1 + b1, 0)
    q = hidden @ w2 + b2
    error = q[np.arange(len(action)), action] - target
    slope = (np.clip(error, -1, 1) if loss == "huber" else error) / len(action)
    value = np.where(np.abs(error) <= 1, error**2 / 2, np.abs(error) - 0.5) if loss == "huber" else error**2 / 2
    d_q = np.zeros_like(q)
    d_q[np.arange(len(action)), action] = slope
    d_hidden = (d_q @ w2.T) * (hidden > 0)
    return [x.T @ d_hidden, d_hidden.sum(0), hidden.T @ d_q, d_q.sum(0)], value.mean()


@pytest.mark.parametrize("loss", ["huber", "squared"])
@pytest.mark.parametrize("max_gradient", [0.05, 1e6])
def test_updates_are_the_papers(loss, max_gradient):
    """Eq. 9, the gradient clipped by its length, RMSprop around the mean gradient with ε outside the root."""
    agent = DQN(network=small, loss=loss, max_gradient=max_gradient, batch_size=8)
    learning = dqn.start(agent, SPEC, jax.random.key(0))
    weights = numbers(agent, learning)
    means, squares = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    rng = np.random.default_rng(0)
    inputs = SPEC.observation.shape[0]
    for _ in range(3):
        x = rng.random((8, inputs)) < 0.5
        action, target = rng.integers(SPEC.num_actions, size=8), 2 * rng.normal(size=8)
        gradient, value = backward(weights, x.astype(np.float64), action, target, loss)
        length = np.sqrt(sum((g**2).sum() for g in gradient))
        assert (length > max_gradient) == (max_gradient < 1)
        gradient = [g * min(1, max_gradient / length) for g in gradient]
        means = [0.95 * m + 0.05 * g for m, g in zip(means, gradient, strict=True)]
        squares = [0.95 * s + 0.05 * g**2 for s, g in zip(squares, gradient, strict=True)]
        spread = [np.sqrt(s - m**2) + 0.01 for m, s in zip(means, squares, strict=True)]
        weights = [w - 2.5e-4 * g / d for w, g, d in zip(weights, gradient, spread, strict=True)]
        learning, found, _ = dqn.update(
            agent, SPEC, learning, jnp.int32(0), jnp.asarray(x), jnp.asarray(action), jnp.asarray(target, jnp.float32)
        )
        assert float(found) == pytest.approx(value, rel=1e-5)
        for ours, theirs in zip(numbers(agent, learning), weights, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_maxmin_takes_the_smallest_network_and_updates_one():
    agent = named_agent("maxmin-dqn", rule={"k": 3}, network=small)
    spec = probes.late(10).spec
    learning = dqn.start(agent, spec, jax.random.key(0))
    obs = jnp.eye(21, dtype=bool)
    alone = jax.jit(lambda params: dqn.q_values(DQN(network=small), spec, params, obs))
    each = [alone(jax.tree.map(lambda x, i=i: x[i : i + 1], learning.params)) for i in range(3)]
    np.testing.assert_allclose(dqn.q_values(agent, spec, learning.params, obs), np.min(each, axis=0), rtol=1e-6)
    step = jax.jit(lambda c: dqn.update(agent, spec, c, jnp.int32(1), obs, jnp.zeros(21, jnp.int32), jnp.ones(21)))
    new, _, _ = step(learning)
    same = [np.array_equal(new.params.small[i], learning.params.small[i]) for i in range(3)]
    assert same == [True, False, True]


def test_defaults_are_the_papers():
    """The table of hyper-parameters, and what it takes from the code it builds on."""
    agent, schedule, rule = DQN(), Schedule(), soft_highway()
    assert (agent.learning_rate, agent.batch_size, agent.discount) == (2.5e-4, 32, 0.99)
    assert (agent.epsilon_start, agent.epsilon_end, agent.epsilon_steps, agent.max_gradient) == (1.0, 0.1, 1e5, 1.0)
    assert (schedule.capacity, schedule.start, schedule.refresh) == (100_000, 5_000, 1_000)
    assert (schedule.num_envs, schedule.updates_per_step) == (1, 1.0)
    assert agent.rule == rule
