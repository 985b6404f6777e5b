"""Observations as bytes: truth values eight to a byte, everything else as it lies in memory; nothing is lost.

Where a picture holds the last frames side by side, the next observation holds all of them but one again. A row of the
store keeps the newest only, and the others are found in the rows before it (`ring.frames`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt8

from highway_rl.types import Spec


class Codec(NamedTuple):
    """An observation as `width` bytes and back, without loss. `encode_rows` takes the leaves of many, on the host.

    Its last bytes are `frames` frames of equal length, of which a row of the store keeps the last one. With one frame
    a row is the whole.
    """

    width: int
    encode: Callable[[PyTree], UInt8[Array, "w"]]
    decode: Callable[[UInt8[Array, "w"]], PyTree]
    encode_rows: Callable[[list[np.ndarray]], np.ndarray]
    frames: int = 1
    frame: int = 0

    def row(self, coded: UInt8[Array, "*b w"]) -> UInt8[Array, "*b r"]:
        """What a row keeps of a whole observation."""
        if self.frames == 1:
            return coded
        beside = self.width - self.frames * self.frame
        return jnp.concatenate([coded[..., :beside], coded[..., -self.frame :]], axis=-1)

    def whole(self, rows: UInt8[Array, "n r"], at: Int[Array, "*b"] | Int[Array, "*b f"]) -> UInt8[Array, "*b w"]:
        """The observations of some rows; with several frames `at` has the rows of each, the oldest first."""
        if self.frames == 1:
            return rows[at]
        found = rows[at]
        beside = found.shape[-1] - self.frame
        pieces = found[..., beside:].reshape(*at.shape[:-1], -1)
        return jnp.concatenate([found[..., -1, :beside], pieces], axis=-1)


def codec_of(spec: Spec) -> Codec:
    """For what an environment shows."""
    return codec(spec.observation, spec.frames)


def codec(observation: PyTree, frames: int = 1) -> Codec:
    """For observations of these shapes and types; one of them, bytes, with so many frames along its last axis."""
    leaves, structure = jax.tree.flatten(observation)
    sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
    truths = [i for i, leaf in enumerate(leaves) if leaf.dtype == bool]
    others = [i for i in range(len(leaves)) if i not in truths]
    if frames > 1:
        stacked = [i for i in others if leaves[i].dtype == np.uint8 and leaves[i].shape[-1:] == (frames,)]
        if len(stacked) != 1:
            raise ValueError(f"frames={frames}: give one observation of bytes whose last axis has that length")
        others = [i for i in others if i not in stacked] + stacked
        coded = codec([leaves[i] for i in (*truths, *others)])
        return _framed(coded, structure, [*truths, *others], leaves[others[-1]].shape)
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


def _framed(plain: Codec, structure: Any, order: list[int], shape: tuple[int, ...]) -> Codec:
    """A codec whose last leaf, of that shape, is cut into its frames: its last axis comes first in the bytes."""
    back = np.argsort(order)

    def encode(obs: PyTree) -> UInt8[Array, "w"]:
        leaves = jax.tree.leaves(obs)
        parts = [leaves[i] for i in order]
        return plain.encode([*parts[:-1], jnp.moveaxis(parts[-1], -1, 0).reshape(shape)])

    def decode(row: UInt8[Array, "w"]) -> PyTree:
        *parts, last = plain.decode(row)
        found = [*parts, jnp.moveaxis(last.reshape(shape[-1], *shape[:-1]), 0, -1)]
        return jax.tree.unflatten(structure, [found[i] for i in back])

    def encode_rows(arrays: list[np.ndarray]) -> np.ndarray:
        parts = [arrays[i] for i in order]
        return plain.encode_rows([*parts[:-1], np.moveaxis(parts[-1], -1, 1).reshape(-1, *shape)])

    return Codec(plain.width, encode, decode, encode_rows, shape[-1], int(np.prod(shape[:-1])))


def decoded(coded: Codec, rows: UInt8[Array, "t w"]) -> PyTree:
    """Observations from their bytes, written to memory before they are used: a network reads each cell many times."""
    return jax.lax.optimization_barrier(jax.vmap(coded.decode)(rows))
