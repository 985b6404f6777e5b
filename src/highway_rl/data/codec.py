"""Observations as bytes: truth values eight to a byte, everything else as it lies in memory; nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, UInt8


class Codec(NamedTuple):
    """An observation as `width` bytes and back, without loss. `encode_rows` takes the leaves of many, on the host."""

    width: int
    encode: Callable[[PyTree], UInt8[Array, "w"]]
    decode: Callable[[UInt8[Array, "w"]], PyTree]
    encode_rows: Callable[[list[np.ndarray]], np.ndarray]


def codec(observation: PyTree) -> Codec:
    """For observations of these shapes and types."""
    leaves, structure = jax.tree.flatten(observation)
    sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
    truths = [i for i, leaf in enumerate(leaves) if leaf.dtype == bool]
    others = [i for i in range(len(leaves)) if i not in truths]
    num_bits = sum(sizes[i] for i in truths)
    lengths = [sizes[i] * np.dtype(leaves[i].dtype).itemsize for i in others]
    width = -(-num_bits // 8) + sum(lengths)

    def encode(obs: PyTree) -> UInt8[Array, "w"]:
        parts = [
            jnp.asarray(leaf, want.dtype).reshape(-1) for leaf, want in zip(jax.tree.leaves(obs), leaves, strict=True)
        ]
        bits = [jnp.packbits(jnp.concatenate([parts[i] for i in truths]))] if truths else []
        return jnp.concatenate(bits + [jax.lax.bitcast_convert_type(parts[i], jnp.uint8).reshape(-1) for i in others])

    def decode(row: UInt8[Array, "w"]) -> PyTree:
        start = -(-num_bits // 8)
        parts: list[Any] = [None] * len(leaves)
        if truths:
            bits = jnp.unpackbits(row[:start], count=num_bits)
            for i, piece in zip(truths, jnp.split(bits, np.cumsum([sizes[i] for i in truths])[:-1]), strict=True):
                parts[i] = (piece != 0).reshape(leaves[i].shape)
        for i, length in zip(others, lengths, strict=True):
            dtype = np.dtype(leaves[i].dtype)
            shape = (sizes[i], dtype.itemsize) if dtype.itemsize > 1 else (sizes[i],)
            raw = row[start : start + length].reshape(shape)
            parts[i] = jax.lax.bitcast_convert_type(raw, dtype).reshape(leaves[i].shape)
            start += length
        return jax.tree.unflatten(structure, parts)

    def encode_rows(arrays: list[np.ndarray]) -> np.ndarray:
        rows = len(arrays[0])
        flat = [np.ascontiguousarray(x, want.dtype).reshape(rows, -1) for x, want in zip(arrays, leaves, strict=True)]
        bits = [np.packbits(np.concatenate([flat[i] for i in truths], axis=1), axis=1)] if truths else []
        parts = bits + [flat[i].view(np.uint8) for i in others]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    return Codec(width, encode, decode, encode_rows)


def decoded(coded: Codec, rows: UInt8[Array, "t w"]) -> PyTree:
    """Observations from their bytes, written to memory before they are used: a network reads each cell many times."""
    return jax.lax.optimization_barrier(jax.vmap(coded.decode)(rows))
