"""Breakout: bounce the ball off the paddle into three rows of bricks.

The ball moves one cell along a diagonal each step. A wall turns it sideways; the ceiling, a brick or the paddle
turn it back, and it then stays in the row it came from. Each brick pays 1. The ball passes through a second brick
met right after a first. Meeting the paddle's cell sideways turns the ball both ways. Losing the ball ends the game.
Cleared bricks come back when the ball next reaches the bottom row.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from highway_rl.envs import keys
from highway_rl.envs.minatar.common import COLUMNS, LEFT, RIGHT, ROWS, SIZE, Game, paint, spot, steer
from highway_rl.envs.minatar.words import bits
from highway_rl.types import record

FIRST_BRICK_ROW, BRICK_ROWS = 1, 3
ALL_BRICKS = (1 << SIZE * BRICK_ROWS) - 1
PADDLE_ROW = SIZE - 1


@record
class State:
    """Ball, paddle and a 30-bit mask of bricks, row by row from the highest."""

    ball_x: Int[Array, ""] = bits(4)
    ball_y: Int[Array, ""] = bits(4)
    step_x: Int[Array, ""] = bits(2, signed=True)
    step_y: Int[Array, ""] = bits(2, signed=True)
    last_x: Int[Array, ""] = bits(4)
    last_y: Int[Array, ""] = bits(4)
    paddle: Int[Array, ""] = bits(4)
    struck: Bool[Array, ""] = bits(1)
    bricks: Int[Array, ""] = bits(30)


@record
class Draws:
    """`right`: whether the ball starts at the right wall. Used by `init` alone."""

    right: Bool[Array, ""]


def draw(key: PRNGKeyArray) -> Draws:
    """Each side is as likely."""
    return Draws(right=keys.words(key)[0] >> 31 != 0)


def init(draws: Draws) -> State:
    """The ball below the bricks at one wall, heading inwards and down."""
    x = jnp.where(draws.right, SIZE - 1, 0)
    y = jnp.asarray(FIRST_BRICK_ROW + BRICK_ROWS - 1, jnp.int32)
    return State(
        ball_x=x,
        ball_y=y,
        step_x=jnp.where(draws.right, -1, 1),
        step_y=jnp.asarray(1, jnp.int32),
        last_x=x,
        last_y=y,
        paddle=jnp.asarray(4, jnp.int32),
        bricks=jnp.asarray(ALL_BRICKS, jnp.int32),
        struck=jnp.asarray(False),
    )


def transition(state: State, action: Array, draws: Draws) -> tuple[State, Array, Array]:
    """One step; nothing in it is random."""
    del draws
    paddle = steer(state.paddle, action, LEFT, RIGHT, 0, SIZE - 1)

    ahead_x = state.ball_x + state.step_x
    x = jnp.clip(ahead_x, 0, SIZE - 1)
    step_x = jnp.where(x == ahead_x, state.step_x, -state.step_x)
    ahead_y = state.ball_y + state.step_y

    ceiling = ahead_y < 0
    brick_row = ahead_y - FIRST_BRICK_ROW
    brick = 1 << jnp.clip(brick_row * SIZE + x, 0, SIZE * BRICK_ROWS - 1)
    on_brick = (brick_row >= 0) & (brick_row < BRICK_ROWS) & (state.bricks & brick != 0)
    breaks = on_brick & ~state.struck
    bottom = ahead_y == PADDLE_ROW
    caught = bottom & (state.ball_x == paddle)
    edged = bottom & ~caught & (x == paddle)

    turned = breaks | caught | edged
    y = jnp.where(turned, state.ball_y, jnp.maximum(ahead_y, 0))
    bricks = jnp.where(breaks, state.bricks & ~brick, state.bricks)
    new = State(
        ball_x=x,
        ball_y=y,
        step_x=jnp.where(edged, -step_x, step_x),
        step_y=jnp.where(turned | ceiling, -state.step_y, state.step_y),
        last_x=state.ball_x,
        last_y=state.ball_y,
        paddle=paddle,
        bricks=jnp.where(bottom & (bricks == 0), ALL_BRICKS, bricks),
        struck=on_brick,
    )
    return new, breaks.astype(jnp.float32), bottom & ~turned


def observe(state: State) -> Bool[Array, "10 10 4"]:
    """Paddle, ball, the ball's last cell, bricks."""
    index = (ROWS - FIRST_BRICK_ROW) * SIZE + COLUMNS
    last = SIZE * BRICK_ROWS - 1
    brick = (state.bricks >> np.clip(index, 0, last)) & ((index >= 0) & (index <= last))
    return paint(
        spot(jnp.asarray(PADDLE_ROW), state.paddle),
        spot(state.ball_y, state.ball_x),
        spot(state.last_y, state.last_x),
        brick,
    )


_SIDES: tuple[Any, Any] = (np.False_, np.True_)

GAME = Game(
    name="breakout",
    channels=("paddle", "ball", "trail", "brick"),
    minimal_actions=(0, LEFT, RIGHT),
    count_width=64,
    state=State,
    draw=draw,
    init=init,
    transition=transition,
    observe=observe,
    starts=tuple(Draws(side) for side in _SIDES),
    start=lambda draws: draws.right,
)
