"""Observations as bytes: nothing is lost, and truth values take a bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.data.codec import codec, decoded
from highway_rl.envs import make


@pytest.mark.parametrize(
    "spec",
    [
        jax.ShapeDtypeStruct((7,), bool),
        jax.ShapeDtypeStruct((3, 2), jnp.float32),
        jax.ShapeDtypeStruct((), jnp.int32),
        {"board": jax.ShapeDtypeStruct((10, 10, 4), bool), "extra": jax.ShapeDtypeStruct((5,), bool)},
        (
            jax.ShapeDtypeStruct((4,), jnp.uint8),
            jax.ShapeDtypeStruct((9,), bool),
            jax.ShapeDtypeStruct((2,), jnp.float32),
        ),
    ],
)
def test_observations_survive_as_bytes(spec):
    rng = np.random.default_rng(0)

    def draw(leaf):
        if leaf.dtype == bool:
            return jnp.asarray(rng.random(leaf.shape) < 0.5)
        return jnp.asarray(rng.normal(size=leaf.shape) * 100).astype(leaf.dtype)

    obs = jax.tree.map(draw, spec)
    coded = codec(spec)
    row = coded.encode(obs)
    assert row.shape == (coded.width,)
    assert row.dtype == jnp.uint8
    back = coded.decode(row)
    assert jax.tree.structure(back) == jax.tree.structure(obs)
    for a, b in zip(jax.tree.leaves(obs), jax.tree.leaves(back), strict=True):
        np.testing.assert_array_equal(a, b)


def test_binary_boards_take_a_bit_a_cell():
    assert codec(make("minatar/breakout").spec.observation).width == 50
    assert codec(make("minatar/breakout", delay="end").spec.observation).width == 58


def test_many_rows_at_once():
    spec = (jax.ShapeDtypeStruct((5,), bool), jax.ShapeDtypeStruct((2,), jnp.float32))
    rng = np.random.default_rng(1)
    obs = jnp.asarray(rng.random((6, 5)) < 0.5), jnp.asarray(rng.normal(size=(6, 2)), jnp.float32)
    coded = codec(spec)
    rows = jax.vmap(coded.encode)(obs)
    assert rows.shape == (6, 1 + 8)
    for a, b in zip(decoded(coded, rows), obs, strict=True):
        np.testing.assert_array_equal(a, b)
