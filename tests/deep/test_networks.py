"""The form of a network that a GPU uses for a whole store is the same function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.deep.networks import BoardNetwork, SmallBoards, unrolled
from highway_rl.types import Env

SHAPES = [
    # board, filters, other features, hidden layers
    ((10, 10, 4), (16, 3, 1), 0, (128,)),
    ((10, 10, 7), (16, 3, 1), 20, (64,)),
    ((9, 12, 3), (5, 3, 2), 2, (8, 6)),
    ((7, 7, 1), (4, 3, 1), 1, (8,)),
    ((3, 3, 2), (4, 3, 1), 0, (8,)),
]


def made(board, filters, others, hidden):
    """A network with random biases, and 20 observations for it."""
    shapes = [jax.ShapeDtypeStruct(board, bool)] + [jax.ShapeDtypeStruct((others,), bool)] * bool(others)
    env = Env("board", 5, shapes, None, None)
    net = BoardNetwork(env, jax.random.key(0), filters=(filters,), hidden=hidden)
    rng = np.random.default_rng(0)
    net = jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), net)
    return net, [jnp.asarray(rng.random((20, *s.shape)) < 0.3) for s in shapes]


@pytest.mark.parametrize("shape", SHAPES)
def test_bands_are_the_same_function(shape):
    net, obs = made(*shape)
    ready = net.prepared()
    assert isinstance(ready, SmallBoards)
    each = lambda obs: (net(obs), ready.by_bands(obs), ready(obs))  # noqa: E731
    wanted, by_bands, chosen = jax.jit(jax.vmap(each))(obs)
    assert np.std(wanted) > 0.1
    np.testing.assert_allclose(by_bands, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(chosen, wanted)  # a CPU goes through the windows


def test_unrolled_is_the_librarys_convolution():
    """Against JAX's own convolution."""
    board = jax.random.normal(jax.random.key(0), (9, 8, 3))
    weight = jax.random.normal(jax.random.key(1), (3 * 3 * 3, 5))
    found = jnp.append(board.reshape(-1), jnp.array([1.0, 0, 0, 0])) @ unrolled(weight, jnp.ones(5), board.shape, 3, 2)
    wanted = jax.lax.conv_general_dilated(
        board[None], weight.reshape(3, 3, 3, 5), (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(found, wanted.reshape(-1) + 1, rtol=1e-4, atol=1e-4)


def test_large_boards_and_deep_networks_stay_as_they_are():
    env = Env("board", 5, [jax.ShapeDtypeStruct((20, 20, 1), bool)], None, None)
    net = BoardNetwork(env, jax.random.key(0))
    assert net.prepared() is net
    assert eqx.tree_equal(net.prepared(), net)
