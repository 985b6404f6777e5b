"""What the five games share: actions, channels, the painting of a board, and a game as a record of functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

SIZE = 10
LEFT_EDGE, RIGHT_EDGE = 0, SIZE - 1
FULL_ROW = (1 << SIZE) - 1
CELLS = np.arange(SIZE * SIZE, dtype=np.int32)  # y * SIZE + x
NONE, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
ACTION_NAMES = ("none", "left", "up", "right", "down", "fire")


@dataclasses.dataclass(frozen=True)
class Game:
    """One game, deterministic once the random draws of a step are given.

    draw(key) -> draws        init(draws) -> state        observe(state) -> board
    transition(state, action, draws) -> (state, reward, terminated), action being one of the six
    """

    name: str
    channels: tuple[str, ...]
    minimal_actions: tuple[int, ...]
    count_width: int
    draw: Callable[[PRNGKeyArray], Any]
    init: Callable[[Any], Any]
    transition: Callable[[Any, Array, Any], tuple[Any, Array, Array]]
    observe: Callable[[Any], Bool[Array, "10 10 c"]]


def steer(position: Int[Array, ""], action: Int[Array, ""], back: int, forth: int, low: int, high: int) -> Array:
    """The coordinate after an action: `back` lowers it, `forth` raises it, the board's edges hold it."""
    move = (action == forth).astype(jnp.int32) - (action == back).astype(jnp.int32)
    return jnp.clip(position + move, low, high)


def bit(index: Int[Array, "*n"]) -> Int[Array, "*n"]:
    """The row mask of one column; empty where the column is off the board."""
    on_board = (index >= 0) & (index < SIZE)
    return jnp.where(on_board, 1 << jnp.clip(index, 0, SIZE - 1), 0)


def spot(y: Int[Array, ""], x: Int[Array, ""]) -> Int[Array, "100"]:
    """The plane of one cell."""
    return (CELLS == y * SIZE + x).astype(jnp.int32)


def spread(rows: Int[Array, "10"]) -> Int[Array, "100"]:
    """The plane of ten row masks: bit x of row y is cell (y, x)."""
    return ((rows[:, None] >> jnp.arange(SIZE)) & 1).reshape(SIZE * SIZE)


def paint(*planes: Int[Array, "100"]) -> Bool[Array, "10 10 c"]:
    """The board of channels given as flat planes of zeros and ones.

    Four channels are packed in one word a cell and unpacked as bytes: a CPU writes single bytes several times slower.
    """
    words = []
    for first in range(0, len(planes), 4):
        word = planes[first]
        for shift, plane in enumerate(planes[first + 1 : first + 4], start=1):
            word = word | (plane << 8 * shift)
        words.append(word)
    packed = jax.lax.optimization_barrier(jnp.stack(words, axis=-1) if len(words) > 1 else words[0][:, None])
    cells = jax.lax.bitcast_convert_type(packed, jnp.uint8).reshape(SIZE, SIZE, 4 * len(words))
    return cells[:, :, : len(planes)] != 0
