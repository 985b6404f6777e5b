"""The numbers of a network apart from its shape, and back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.deep import networks
from highway_rl.deep.weights import SMALL, weights_of, with_weights
from highway_rl.types import Spec


def test_there_and_back():
    """A large array stays by itself, all others are one vector; another network takes the numbers over to the bit."""
    spec = Spec("wide", jax.ShapeDtypeStruct((SMALL // 64 + 1,), jnp.float32), 3)
    one, other = (networks.FlatNetwork(spec, jax.random.key(i), hidden=(64, 5)) for i in (0, 1))
    weights = weights_of(one)
    assert [x.shape for x in weights.large] == [(SMALL // 64 + 1, 64)]
    assert weights.small.shape == (64 + 64 * 5 + 5 + 5 * 3 + 3,)
    assert not eqx.tree_equal(one, other)
    assert eqx.tree_equal(with_weights(other, weights), one)


def test_what_is_not_a_weight_stays():
    """Whole numbers and functions are the module's own."""
    parts = lambda scale: {"w": jnp.full(2, scale), "count": jnp.int32(scale), "f": jax.nn.relu}  # noqa: E731
    back = with_weights(parts(1.0), weights_of(parts(3.0)))
    np.testing.assert_array_equal(back["w"], [3.0, 3.0])
    assert int(back["count"]) == 1
    assert back["f"] is jax.nn.relu
    assert weights_of(parts(1.0)).small.shape == (2,)


def test_a_network_without_numbers():
    assert weights_of({"f": jax.nn.relu}).small.shape == (0,)
