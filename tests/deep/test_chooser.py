"""The learned chooser: heads that learn the average return of each depth, and decide which sampled return is paid."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl import runs
from highway_rl.core import targets
from highway_rl.core.backup import TO_END
from highway_rl.core.targets import Trajectory
from highway_rl.deep import dqn, networks
from highway_rl.deep.dqn import DQN
from highway_rl.types import Spec

SPEC = Spec("flat", jax.ShapeDtypeStruct((5,), jnp.float32), 3)
LEARNED = DQN(
    targets.highway((2, TO_END)),
    chooser="learned",
    network=lambda spec, key: networks.FlatNetwork(spec, key, hidden=(8,)),
    discount=0.9,
    loss="squared",
)


def path(length=12, seed=0):
    """Two episodes in a row, of which the first terminates."""
    rng = np.random.default_rng(seed)
    end = np.isin(np.arange(length), (length // 2, length - 1))
    discount = np.where(np.arange(length) == length // 2, 0.0, 0.9).astype(np.float32)
    reward = rng.normal(size=length).astype(np.float32)
    return Trajectory(rng.integers(3, size=length), reward, discount, end, np.ones(length, np.float32))


def test_the_depth_whose_average_exceeds_q_is_paid():
    """Row by row with plain Python, beside the samples' own choice."""
    data, rng = path(), np.random.default_rng(1)
    q, averages = rng.normal(size=(12, 3)).astype(np.float32), rng.normal(size=(12, 2, 3)).astype(np.float32)
    arrays = jax.tree.map(jnp.asarray, data)
    found = dqn.targets(LEARNED, LEARNED.rule, arrays, jnp.asarray(q), 0, averages=jnp.asarray(averages))
    plain = dqn.targets(dataclasses.replace(LEARNED, chooser="sample"), LEARNED.rule, arrays, jnp.asarray(q), 0)
    one = dqn.targets(LEARNED, targets.q_learning(), arrays, jnp.asarray(q), 0).target
    np.testing.assert_array_equal(found.sampled, plain.returns)
    for t in range(12):
        a = data.action[t]
        paid = [plain.returns[t, n] if averages[t, n, a] >= q[t, a] else one[t] for n in range(2)]
        assert float(found.target[t]) == pytest.approx(float(np.mean(paid)), abs=1e-5)
        np.testing.assert_allclose(found.returns[t], averages[t, :, a])
    assert not np.allclose(found.target, plain.target)


def test_every_head_learns_its_own_target():
    """The loss is the sum of the heads' errors at the action taken, and Q's part of the network is found by all."""
    learning = dqn.start(LEARNED, SPEC, jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (4, 5))
    whole = dqn.prepared(LEARNED, SPEC, learning.params)(obs)
    q, averages = dqn.split_heads(LEARNED, SPEC, whole)
    assert (LEARNED.heads, whole.shape, q.shape, averages.shape) == (3, (4, 9), (4, 3), (4, 2, 3))
    np.testing.assert_allclose(dqn.q_values(LEARNED, SPEC, learning.params, obs), q, atol=1e-6)
    action, goal = jnp.array([0, 2, 1, 1]), jax.random.normal(jax.random.key(2), (4, 3))
    each = whole.reshape(4, 3, 3)[np.arange(4), :, action]
    expected = np.mean(np.sum(0.5 * (goal - each) ** 2, axis=1))
    assert float(dqn.loss(LEARNED, whole, action, goal)) == pytest.approx(float(expected), rel=1e-5)


def test_several_networks_share_their_averages():
    two = dataclasses.replace(LEARNED, num_networks=2)
    params = dqn.start(two, SPEC, jax.random.key(3)).params
    obs = jax.random.normal(jax.random.key(1), (4, 5))
    each = [jax.vmap(dqn.network(two, SPEC, jax.tree.map(lambda x, i=i: x[i], params)))(obs) for i in range(2)]
    joined = dqn.prepared(two, SPEC, params)(obs)
    np.testing.assert_allclose(joined[:, :3], np.minimum(each[0], each[1])[:, :3], atol=1e-6)
    np.testing.assert_allclose(joined[:, 3:], ((each[0] + each[1]) / 2)[:, 3:], atol=1e-6)


@pytest.mark.long
def test_it_trains_saves_and_explains(tmp_path):
    """Beside a run that chooses by samples; two policies are pooled in the same way."""
    small = {"capacity": 300, "start": 100, "refresh": 100, "network": "mlp", "num_policies": 2}
    algos = ("soft-highway-dqn", "soft-highway-dqn:chooser=learned,k=2")
    trained = runs.fit(runs.Config("late", algos, steps=300, env={"length": 6}, settings=small, episodes=2), tmp_path)
    assert trained.finished
    agent = runs.load(runs.load(tmp_path, algos[1]).save(tmp_path / "agent.safetensors"))
    assert agent.q_values(np.zeros(13, bool)).shape == (4,)
    assert len(agent.explain(agent.episode(seed=0)).rows) == 6
    with pytest.raises(ValueError, match="chooser='luck': give one of sample, learned"):
        DQN(chooser="luck")
