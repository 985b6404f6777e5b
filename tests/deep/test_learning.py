"""The mean of networks over refreshes, which is what training leaves where it is asked for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training

from highway_rl import runs
from highway_rl.deep import dqn, networks
from highway_rl.deep.dqn import DQN
from highway_rl.deep.learning import Learning, Mean, averaged
from highway_rl.deep.rescale import final
from highway_rl.deep.weights import Weights, weights_of
from highway_rl.envs import probes

SMALL = {"capacity": 500, "start": 250, "refresh": 250, "k": 1, "network": "mlp", "batch_size": 8}


@pytest.mark.parametrize("over", [1, 3, 20])
def test_the_mean_is_the_recursion_written_out(over):
    networks = np.random.default_rng(0).normal(size=(100, 7)).astype(np.float32)
    mean, expected = Mean(jnp.int32(0), Weights([], jnp.zeros(7))), np.zeros(7)
    for n, network in enumerate(networks):
        mean = averaged(mean, Weights([], jnp.asarray(network)), over)
        share = min(1, max(1 / over, 4 / (3 + n)))
        expected = (1 - share) * expected + share * network
        np.testing.assert_allclose(mean.params.small, expected, atol=1e-5)
    if over == 20:  # it moves less than a network does, and stays in the middle of them
        assert np.std(mean.params.small) < 0.5 * np.std(networks[-1])


def trained(steps, **settings):
    config = runs.Config("late", ("soft-highway-dqn",), steps=steps, episodes=2, settings=SMALL | settings)
    return runs.fit(config)


@pytest.mark.long
def test_over_one_refresh_it_is_the_networks_themselves():
    """To the bit; and after a single period of learning, whatever it is over."""
    (mean,) = trained(1_500, average=1).params
    (after,) = trained(1_500, average=0).params
    training.same(mean, after)
    first, alone = trained(500, average=20), trained(500, average=0)
    training.same(first.params, alone.params)


def test_scales_are_those_of_now():
    """Of units there is no mean: they jump, and values with them."""
    agent = DQN(average=20, rescale=True, normalize=True, num_networks=2, network=networks.mlp)
    spec = probes.late().spec
    before = dqn.start(agent, spec, jax.random.key(0)).params

    def scaled(weights):
        whole = dqn.network(agent, spec, weights)
        return weights_of(dataclasses.replace(whole, unit=jnp.float32(300), floor=jnp.float32(-7)))

    now = jax.vmap(scaled)(before)
    learning = Learning(now, None, None, Mean(jnp.int32(500), before))
    left = dqn.network(agent, spec, jax.tree.map(lambda x: x[1], final(agent, spec, learning)))
    assert (left.unit, left.floor) == (300, -7)
    expected = dqn.network(agent, spec, jax.tree.map(lambda x: x[1], before))
    for mine, theirs in zip(jax.tree.leaves(left.network), jax.tree.leaves(expected.network), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@pytest.mark.long
def test_it_changes_nothing_in_training():
    mean, alone = trained(1_500, average=5), trained(1_500, average=0)
    training.same(mean.last.learning.params, alone.last.learning.params)
    training.same(mean.last.store, alone.last.store)


@pytest.mark.long
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
