"""Optimisers by name: each steps as Optax's own does with the agent's learning rate."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from highway_rl.deep import dqn, networks
from highway_rl.deep.dqn import DQN
from highway_rl.deep.optimizers import OPTIMIZERS, register_optimizer
from highway_rl.types import Spec

SPEC = Spec("stub", jax.ShapeDtypeStruct((4,), jnp.float32), 3)
RATE = 0.03
OWN = {
    "rmsprop": optax.rmsprop(RATE, decay=0.95, eps=0.01, centered=True, eps_in_sqrt=False),
    "adam": optax.adam(RATE),
    "adamw": optax.adamw(RATE),
    "radam": optax.radam(RATE),
    "lion": optax.lion(RATE),
    "sgd": optax.sgd(RATE),
}


def tiny(spec, key):
    return networks.FlatNetwork(spec, key, hidden=(6,))


def test_every_optimiser_is_here():
    assert set(OWN) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", OWN)
def test_steps_are_optaxs_own(name):
    """Three updates, so that moments count; the gradient is taken here, of the loss at the same batches."""
    agent = DQN(network=tiny, learning_rate=RATE, max_gradient=1e9, optimizer=OPTIMIZERS.find(name))
    learning = dqn.start(agent, SPEC, jax.random.key(0))
    params = jax.tree.map(lambda x: x[0], learning.params)
    moments = OWN[name].init(params)

    def error(params, obs, action, target):
        q = dqn.q_values(agent, SPEC, jax.tree.map(lambda x: x[None], params), obs)
        return dqn.loss(agent, q, action, target)

    update = jax.jit(lambda learning, *batch: dqn.update(agent, SPEC, learning, jnp.int32(0), *batch)[0])
    rng = np.random.default_rng(0)
    for _ in range(3):
        obs, target = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((8, 4), 8))
        batch = (obs, jnp.asarray(rng.integers(3, size=8)), 3 * target)
        learning = update(learning, *batch)
        change, moments = OWN[name].update(jax.grad(error)(params, *batch), moments, params)
        before, params = params, optax.apply_updates(params, change)
        assert np.abs(params.small - before.small).max() > 1e-4
        np.testing.assert_allclose(learning.params.small[0], params.small, rtol=1e-5, atol=1e-6)


def test_ones_own_by_name():
    def mine():
        return optax.sgd(1.0, momentum=0.5)

    try:
        assert register_optimizer("test-mine", mine) is mine
        assert OPTIMIZERS.find("test-mine") is mine
        assert "test-mine" in OPTIMIZERS.names()
    finally:
        OPTIMIZERS.known.pop("test-mine", None)
        OPTIMIZERS.added.pop("test-mine", None)


def test_names_that_are_taken_or_unknown():
    with pytest.raises(ValueError, match="optimizer 'adam' is built in: give yours another name"):
        register_optimizer("adam", lambda: optax.adam(1.0))
    with pytest.raises(ValueError, match="name='a:b': give"):
        register_optimizer("a:b", lambda: optax.adam(1.0))
    with pytest.raises(ValueError, match=r"adma.*adam"):
        OPTIMIZERS.find("adma")
