"""What the five games share: actions, channels, the painting of a board, and a game as a record of functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

SIZE = 10
LEFT_EDGE, RIGHT_EDGE = 0, SIZE - 1
FULL_ROW = (1 << SIZE) - 1
ROWS = np.arange(SIZE, dtype=np.int32)[:, None]
COLUMNS = np.arange(SIZE, dtype=np.int32)[None, :]
ROW = np.arange(SIZE, dtype=np.int32)
LANES = np.asarray((ROW > 0) & (ROW < SIZE - 1))  # the rows that things may cross; arrays of ten skip the others
NONE, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
ACTION_NAMES = ("none", "left", "up", "right", "down", "fire")


@dataclasses.dataclass(frozen=True)
class Game:
    """One game, deterministic once the random draws of a step are given.

    draw(key) -> draws        init(draws) -> state        observe(state) -> board
    transition(state, action, draws) -> (state, reward, terminated), action being one of the six

    Where a game starts in few ways, `starts` lists draws for each and start(draws) says which one it is.
    """

    name: str
    channels: tuple[str, ...]
    minimal_actions: tuple[int, ...]
    count_width: int
    state: type
    draw: Callable[[PRNGKeyArray], Any]
    init: Callable[[Any], Any]
    transition: Callable[[Any, Array, Any], tuple[Any, Array, Array]]
    observe: Callable[[Any], Bool[Array, "10 10 c"]]
    starts: tuple[Any, ...] | None = (None,)
    horizon: int | None = None
    start: Callable[[Any], Array | int] = lambda draws: 0


def steer(position: Int[Array, ""], action: Int[Array, ""], back: int, forth: int, low: int, high: int) -> Array:
    """The coordinate after an action: `back` lowers it, `forth` raises it, the board's edges hold it."""
    move = (action == forth).astype(jnp.int32) - (action == back).astype(jnp.int32)
    return jnp.clip(position + move, low, high)


def bit(index: Int[Array, "*n"]) -> Int[Array, "*n"]:
    """The row mask of one column; empty where the column is off the board."""
    on_board = (index >= 0) & (index < SIZE)
    return jnp.where(on_board, 1 << jnp.clip(index, 0, SIZE - 1), 0)


def spot(y: Int[Array, ""], x: Int[Array, ""]) -> Int[Array, "10 10"]:
    """The plane of one cell."""
    return ((y == ROWS) & (x == COLUMNS)).astype(jnp.int32)


def spread(rows: Int[Array, "10"]) -> Int[Array, "10 10"]:
    """The plane of ten row masks: bit x of row y is cell (y, x)."""
    return (rows[:, None] >> COLUMNS) & 1


def row_masks(things: Sequence[tuple[Any, Array, Array]]) -> Int[Array, "10"]:
    """Ten row masks of single cells, each given as (shown, y, x)."""
    masks: Any = 0
    for shown, y, x in things:
        masks = masks | jnp.where((y == ROW) & shown, bit(x), 0)
    return masks


def paint(*planes: Int[Array, "10 10"]) -> Bool[Array, "10 10 c"]:
    """The board of channels given as planes of zeros and ones.

    The planes of a cell meet in one word of bits: that way each is computed once a cell, not once a channel.
    """
    word = planes[0]
    for channel, plane in enumerate(planes[1:], start=1):
        word = word | (plane << channel)
    return (word[:, :, None] >> np.arange(len(planes), dtype=np.int32)) & 1 != 0


def hold(tree: PyTree) -> PyTree:
    """The same numbers, written to memory on a CPU before anything reads them.

    A CPU compiles the rules into the loop over the cells that read their result, and so runs them once a cell. It does
    not do that with a reduction; an idle one is enough. Other devices are left alone.
    """

    def written(leaf: Array) -> Array:
        idle = leaf.dtype.type(0)
        pair = jnp.where(np.arange(2) == 0, leaf[..., None], idle)
        return jax.lax.reduce(pair, idle, jax.lax.bitwise_or if leaf.dtype == bool else jax.lax.add, (leaf.ndim,))

    return jax.lax.platform_dependent(tree, cpu=lambda t: jax.tree.map(written, t), default=lambda t: t)
