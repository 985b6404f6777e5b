"""Records of small numbers as a few words.

A compiler handles one array faster than forty: on a CPU every array that a step writes is a call of its own, and for a
single board that costs more than the numbers in it. So between steps a game's state lives in one array of words, and
in one more where it has numbers for each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from highway_rl.envs import keys
from highway_rl.types import record

T = TypeVar("T")

WORD = 31  # the highest bit stays free


@record
class Packed:
    """The words of a record, and those of its rows where it has any."""

    words: Int[Array, " words"]
    rows: Int[Array, "10"] | None


def bits(width: int, *, signed: bool = False, rows: bool = False) -> Any:
    """A field of so many bits, one bit being a boolean; with `rows` a number for each of the ten rows."""
    return dataclasses.field(metadata={"bits": width, "signed": signed, "rows": rows})


def whole(template: Any) -> Any:
    """A field shaped like the template, each leaf of which is a word of its own."""
    return dataclasses.field(metadata={"structure": jax.tree.structure(template)})


def _places(cls: Any, rows: bool) -> Iterator[tuple[str, int, bool, int, int]]:
    """Name, width, sign, word and lowest bit of each field; words are filled in turn."""
    word, used = 0, 0
    for field in dataclasses.fields(cls):
        if field.metadata.get("rows") is not rows:
            continue
        width = field.metadata["bits"]
        if used + width > WORD:
            word, used = word + 1, 0
        yield field.name, width, field.metadata["signed"], word, used
        used += width


def _gather(thing: Any, rows: bool = False) -> list[Any]:
    words: list[Any] = []
    for name, width, _, word, shift in _places(type(thing), rows):
        value = (jnp.asarray(getattr(thing, name), jnp.int32) & (1 << width) - 1) << shift
        words[word:] = [words[word] | value if word < len(words) else value]
    return words


def _scatter(cls: Any, words: Any, rows: bool = False) -> dict[str, Any]:
    values = {}
    for name, width, signed, word, shift in _places(cls, rows):
        value = words[word] >> shift & (1 << width) - 1
        value = value << 32 - width >> 32 - width if signed else value
        values[name] = value != 0 if width == 1 else value
    return values


def pack(thing: Any) -> Int[Array, "*n"]:
    """A record that fits in one word."""
    (word,) = _gather(thing)
    return word


def unpack(cls: type[T], word: Int[Array, "*n"]) -> T:
    """The record that `pack` made one word of."""
    return cls(**_scatter(cls, [word]))


def compress(thing: Any, *more: Array) -> Packed:
    """A record as words, followed by further words."""
    words = _gather(thing)
    for field in dataclasses.fields(thing):
        if "structure" in field.metadata:
            words += jax.tree.leaves(getattr(thing, field.name))
    rows = _gather(thing, rows=True)
    return Packed(keys.join([*words, *more]), rows[0] if rows else None)


def expand(cls: type[T], packed: Packed) -> T:
    """The record that `compress` made words of."""
    values = _scatter(cls, packed.words) | _scatter(cls, [packed.rows], rows=True)
    count = 1 + max(word for *_, word, _ in _places(cls, False))
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if "structure" in field.metadata:
            structure = field.metadata["structure"]
            leaves = [packed.words[count + i] for i in range(structure.num_leaves)]
            values[field.name] = jax.tree.unflatten(structure, leaves)
            count += structure.num_leaves
    return cls(**values)
