"""The mean of networks over refreshes, which is what training leaves where it is asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training

from highway_rl import runs
from highway_rl.deep.dqn import DQN
from highway_rl.deep.learning import Mean, averaged
from highway_rl.deep.weights import Weights

SMALL = {"capacity": 500, "start": 250, "refresh": 250, "k": 1, "network": "mlp", "batch_size": 8}


@pytest.mark.parametrize("over", [1, 3, 20])
def test_the_mean_is_the_recursion_written_out(over):
    networks = np.random.default_rng(0).normal(size=(100, 7)).astype(np.float32)
    mean, expected = Mean(jnp.int32(0), Weights([], jnp.zeros(7))), np.zeros(7)
    for n, network in enumerate(networks):
        mean = averaged(mean, Weights([], jnp.asarray(network)), over)
        share = max(1 / over, 4 / (4 + n))
        expected = (1 - share) * expected + share * network
        np.testing.assert_allclose(mean.params.small, expected, atol=1e-5)
    if over == 20:  # it moves less than a network does, and stays in the middle of them
        assert np.std(mean.params.small) < 0.5 * np.std(networks[-1])


def trained(steps, **settings):
    config = runs.Config("late", ("soft-highway-dqn",), steps=steps, episodes=2, settings=SMALL | settings)
    return runs.fit(config)


def test_over_one_refresh_it_is_the_networks_of_the_last_one():
    """To the bit those of a run that ends there."""
    (mean,) = trained(1_500, average=1).params
    (before,) = trained(1_250, average=0).params
    (after,) = trained(1_500, average=0).params
    training.same(mean, before)
    assert not np.array_equal(jax.tree.leaves(before)[-1], jax.tree.leaves(after)[-1])


def test_it_changes_nothing_in_training():
    mean, alone = trained(1_500, average=5), trained(1_500, average=0)
    training.same(mean.last.learning.params, alone.last.learning.params)
    training.same(mean.last.store, alone.last.store)


def test_stopped_and_resumed_it_is_the_same(tmp_path):
    whole = trained(1_500)
    config = whole.setup.config
    runs.fit(config, tmp_path / "run", should_stop=training.after(3))
    training.same(runs.fit(config, tmp_path / "run", resume=True).params, whole.params)
    training.same(runs.load(tmp_path / "run").params, jax.tree.map(lambda x: x[0], whole.params[0]))


@pytest.mark.parametrize("average", [-1, 0.5, True, "long"])
def test_refused(average):
    with pytest.raises(ValueError, match=r"average=.*: give a whole number >= 0"):
        DQN(average=average)
