"""Cheap random words from a key.

`jax.random` runs a cipher for every number: several kernels and, on a CPU, a loop. A board needs a handful of
words a step, so the games hash the key instead: one round trip of `pcg4d` (Jarzynski and Olano, Hash Functions
for GPU Rendering, JCGT 9(3), 2020) makes four words in about thirty integer operations that fuse with the rules.
The keys themselves still come from `jax.random.split`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

Words = tuple[UInt32[Array, "*n"], UInt32[Array, "*n"], UInt32[Array, "*n"], UInt32[Array, "*n"]]

_MULTIPLIER = 1664525
_INCREMENT = 1013904223
_STREAM = 0x9E3779B9  # derived keys and words never share a stream


def _rounds(x: Array, y: Array, z: Array, w: Array) -> tuple[Array, Array, Array, Array]:
    x = x + y * w
    y = y + z * x
    z = z + x * y
    w = w + y * z
    return x, y, z, w


def _hash(x: Array, y: Array, z: Array, w: Array) -> Words:
    scaled = [v * jnp.uint32(_MULTIPLIER) + jnp.uint32(_INCREMENT) for v in (x, y, z, w)]
    return _rounds(*(v ^ (v >> 16) for v in _rounds(*scaled)))


def _is_typed(key: PRNGKeyArray) -> bool:
    return bool(jnp.issubdtype(key.dtype, jax.dtypes.prng_key))


def _data(key: PRNGKeyArray) -> Array:
    return jax.random.key_data(key) if _is_typed(key) else key


def _pair(data: Array) -> tuple[Array, Array]:
    """The two words that stand for a key; longer keys are hashed down to two."""
    if data.shape[-1] == 2:
        return data[0], data[1]
    return _hash(data[0], data[1], data[2], data[3])[:2]


def words(key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Words:
    """Four arrays of independent uniform 32-bit words."""
    a, b = _pair(_data(key))
    size = 1
    for n in shape:
        size *= n
    counter = jnp.arange(size, dtype=jnp.uint32).reshape(shape)
    return _hash(*jnp.broadcast_arrays(a, b, jnp.uint32(0), counter))


def join(parts: Sequence[Array]) -> Array:
    """Parts of shape () or (..., 1) side by side, by selection: a concatenation would stop the compiler from fusing."""
    index = np.arange(len(parts), dtype=np.uint32)
    joined = jnp.broadcast_to(parts[0], np.broadcast_shapes(jnp.shape(parts[0]), index.shape))
    for i, part in enumerate(parts[1:], start=1):
        joined = jnp.where(index == i, part, joined)
    return joined


def derive(key: PRNGKeyArray, index: int) -> PRNGKeyArray:
    """A key of its own for each index: `jax.random.fold_in` at the price of one hash."""
    data = _data(key)
    mixed = _hash(*_pair(data), jnp.uint32(_STREAM), jnp.uint32(index))
    new = join(mixed[: data.shape[-1]])
    return jax.random.wrap_key_data(new, impl=jax.random.key_impl(key)) if _is_typed(key) else new


def below(word: UInt32[Array, "*n"], n: int) -> Int[Array, "*n"]:
    """A uniform integer in [0, n) for n ≤ 256, from the word's 24 highest bits."""
    return (((word >> 8) * jnp.uint32(n)) >> 24).astype(jnp.int32)


def fraction(word: UInt32[Array, "*n"]) -> Float[Array, "*n"]:
    """A uniform number in [0, 1), from the word's 24 highest bits."""
    return (word >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def chance(word: UInt32[Array, "*n"], probability: float) -> Array:
    """True with the given probability."""
    return fraction(word) < probability
