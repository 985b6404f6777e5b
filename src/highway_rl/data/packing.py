"""Records of small arrays as one array of words: a loop on a GPU pays for each array it carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


class Packing(NamedTuple):
    """To words and back."""

    pack: Callable[[PyTree], PyTree]
    unpack: Callable[[PyTree], PyTree]


def packing(example: PyTree) -> Packing:
    """For records like the example whose leaves share their first axis; leaves that are large or odd stay beside."""
    leaves, structure = jax.tree.flatten(example)
    small = [np.prod(x.shape[1:]) <= 16 and x.dtype in (bool, jnp.int32, jnp.uint32, jnp.float32) for x in leaves]
    cuts = np.cumsum([int(np.prod(x.shape[1:])) for x, s in zip(leaves, small, strict=True) if s])

    def word(x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        return x.astype(jnp.uint32) if x.dtype == bool else jax.lax.bitcast_convert_type(x, jnp.uint32)

    def unword(x: Array, like: Array) -> Array:
        x = x != 0 if like.dtype == bool else jax.lax.bitcast_convert_type(x, like.dtype)
        return x.reshape(like.shape)

    def pack(tree: PyTree) -> PyTree:
        found = jax.tree.leaves(tree)
        chosen = [word(x) for x, s in zip(found, small, strict=True) if s]
        return jnp.concatenate(chosen, axis=1) if chosen else None, [
            x for x, s in zip(found, small, strict=True) if not s
        ]

    def unpack(packed: PyTree) -> PyTree:
        words, others = packed
        pieces = iter(jnp.split(words, cuts[:-1], axis=1) if words is not None else ())
        rest = iter(others)
        found = [unword(next(pieces), x) if s else next(rest) for x, s in zip(leaves, small, strict=True)]
        return jax.tree.unflatten(structure, found)

    return Packing(pack, unpack)
