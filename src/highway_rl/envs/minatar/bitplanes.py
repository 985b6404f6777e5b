"""Thirty small numbers at once, one bit of each in a word.

A number of the i-th entry is read across words: plane b holds bit b of all entries, entry i at bit position i.
Comparing all entries with a value, adding one to some of them or asking whether any holds is then a few operations on
single words, without any loop or reduction over the entries. A set of entries is a word as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

Entries = Int[Array, "*n"]
Planes = Sequence[Entries]
Number = Array | np.ndarray | int

PLACES = 30
ALL = (1 << PLACES) - 1


def everywhere(flag: Number) -> Entries:
    """All entries where the flag (0 or 1) is set, else none."""
    return -jnp.asarray(flag, jnp.int32)


def equal(number: Planes, value: Number) -> Entries:
    """The entries whose number is the value; values that do not fit in the planes must not be asked for."""
    same: Array = jnp.asarray(ALL, jnp.int32)
    for b, plane in enumerate(number):
        same = same & ~(plane ^ everywhere((value >> b) & 1))
    return same


def choose(entries: Entries | int, new: Planes, old: Planes) -> list[Entries]:
    """The new number in these entries, the old one in the others."""
    return [(n & entries) | (o & ~entries) for n, o in zip(new, old, strict=True)]


def constant(value: Number, width: int) -> list[Entries]:
    """The same number in all entries."""
    value = jnp.asarray(value, jnp.int32)
    return [everywhere((value >> b) & 1) for b in range(width)]


def add_one(number: Planes, entries: Entries | int) -> list[Entries]:
    """One more in these entries, wrapping around at the planes' end."""
    out = []
    for plane in number:
        out.append(plane ^ entries)
        entries = plane & entries
    return out


def take_one(number: Planes, entries: Entries | int) -> list[Entries]:
    """One less in these entries, wrapping around at zero."""
    out = []
    for plane in number:
        out.append(plane ^ entries)
        entries = ~plane & entries
    return out


def on_board(x: Planes) -> Entries:
    """The entries whose four-bit column is at most 9."""
    return ~(x[3] & (x[2] | x[1]))


def lowest(entries: Entries) -> Entries:
    """The first entry alone; none of none."""
    return entries & -entries


def highest(entries: Entries) -> Entries:
    """The last entry alone; none of none."""
    return jnp.where(entries == 0, 0, 1 << jnp.clip(31 - jax.lax.clz(entries), 0, PLACES - 1))


def oldest(entries: Entries, following: Array) -> Entries:
    """The entry written first, places being written in turn and `following` next."""
    late = entries & -(1 << following)
    return lowest(jnp.where(late != 0, late, entries))


def newest(entries: Entries, following: Array) -> Entries:
    """The entry written last, places being written in turn and `following` next."""
    early = entries & ((1 << following) - 1)
    return highest(jnp.where(early != 0, early, entries))
