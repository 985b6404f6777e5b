"""Draws without replacement, and how to find what was drawn in a set kept as bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

BLOCK = 32
"""Bits in a word."""


def nth_bit(word: UInt32[Array, "*b"], n: Int[Array, "*b"]) -> Int[Array, "*b"]:
    """The place of the n-th set bit of a 32-bit word, counted from 0, by halving."""
    place = jnp.zeros_like(n)
    for half in (16, 8, 4, 2, 1):
        low = (word >> place.astype(jnp.uint32)) & jnp.uint32((1 << half) - 1)
        below = jax.lax.population_count(low).astype(n.dtype)
        upper = n >= below
        n = jnp.where(upper, n - below, n)
        place = jnp.where(upper, place + half, place)
    return jnp.minimum(place, BLOCK - 1)


def distinct(draws: Float[Array, "u m"], count: Int[Array, "u"]) -> tuple[Int[Array, "u m"], Bool[Array, "u m"]]:
    """m different whole numbers below `count`, every set equally likely; all of them, and a mask, if there are fewer.

    Floyd's way: the i-th is drawn from 0…j with j = count − m + i, and is j itself where that was drawn before. Places
    without a number repeat the first one.
    """
    size = draws.shape[1]
    ranks: list[Array] = []
    for i in range(size):
        j = jnp.maximum(count - size, 0) + i
        rank = jnp.floor(draws[:, i] * (j + 1).astype(draws.dtype)).astype(count.dtype)
        rank = jnp.minimum(rank, j)
        for earlier in ranks:
            rank = jnp.where(earlier == rank, -1, rank)
        rank = jnp.where(rank < 0, j, rank)
        ranks.append(rank if not ranks else jnp.where(i < count, rank, ranks[0]))
    return jnp.stack(ranks, axis=1), jnp.arange(size, dtype=jnp.int32) < count[:, None]


def spread(draws: Float[Array, "u m"], count: Int[Array, "u"]) -> tuple[Int[Array, "u m"], Bool[Array, "u m"]]:
    """`distinct` for many: one number from each of m equal parts of 0…count, so that they come from everywhere."""
    size = draws.shape[1]
    part, whole = jnp.arange(size, dtype=count.dtype), count[:, None]
    low, high = part * whole // size, (part + 1) * whole // size
    rank = low + jnp.floor(draws * (high - low).astype(draws.dtype)).astype(count.dtype)
    some = part < whole
    return jnp.where(some, jnp.where(whole < size, part, jnp.minimum(rank, high - 1)), 0), some
