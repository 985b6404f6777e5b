"""Records of small arrays as words, and back."""

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.data.packing import packing
from highway_rl.envs import make


def test_packing_is_lossless():
    state, _ = jax.vmap(make("minatar/seaquest", delay="end").reset)(jax.random.split(jax.random.key(0), 3))
    words = packing(state)
    back = words.unpack(words.pack(state))
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(back), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_small_leaves_become_one_array():
    """Truth values, whole numbers and reals of up to 16 numbers a row; others stay as they are."""
    tree = {
        "truth": jnp.asarray([[True, False], [False, True]]),
        "whole": jnp.asarray([-3, 7], jnp.int32),
        "real": jnp.asarray([[0.5], [-1e-30]], jnp.float32),
        "large": jnp.zeros((2, 17), jnp.float32),
        "bytes": jnp.asarray([1, 2], jnp.uint8),
    }
    words, others = packing(tree).pack(tree)
    assert (words.shape, words.dtype) == ((2, 4), jnp.uint32)
    assert sorted(x.shape for x in others) == [(2,), (2, 17)]


def test_without_small_leaves():
    tree = [jnp.zeros((2, 30))]
    words = packing(tree)
    assert words.pack(tree)[0] is None
    np.testing.assert_array_equal(words.unpack(words.pack(tree))[0], tree[0])
