"""Space Invaders: shoot the aliens before they come down.

The wave of 4 × 6 aliens moves sideways as one body; at an edge it turns and comes down a row. It moves every n steps,
n being the number of aliens left but at most 12; each cleared wave lowers that most by one, down to 6. Every tenth
step the lowest alien of the column nearest to the cannon shoots. Each alien shot pays 1. The game ends when an alien
or a bullet meets the cannon, or when aliens in the bottom row would come down.

The body never changes its form, so a wave is 24 bits and a shift. A bullet lives at most ten steps and the guns need
five and ten steps to load, so two bullets of ours and one of theirs are all there can be.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from highway_rl.envs.minatar.common import (
    COLUMNS,
    FIRE,
    FULL_ROW,
    LEFT,
    NONE,
    RIGHT,
    ROWS,
    SIZE,
    Game,
    paint,
    spot,
    steer,
)
from highway_rl.envs.minatar.words import bits
from highway_rl.types import record

WAVE_ROWS, WAVE_COLUMNS = 4, 6
FULL_WAVE = (1 << WAVE_ROWS * WAVE_COLUMNS) - 1
WAVE_X, WAVE_Y = 2, 0
CANNON_ROW = SIZE - 1
SLOWEST, FASTEST = 12, 6
SHOT_STEPS, ALIEN_SHOT_STEPS = 5, 10
NO_SHOT, NO_ALIEN_SHOT = -1, SIZE


@record
class State:
    """Bit r · 6 + c of `wave` is the alien in the wave's row r and column c, on the board at (wave_y + r, wave_x + c).

    A shot of ours flies at row -1 and one of theirs at row 10 where there is none.
    """

    cannon: Int[Array, ""] = bits(4)
    shot_wait: Int[Array, ""] = bits(3)
    shot_x: Int[Array, ""] = bits(4)
    shot_y: Int[Array, ""] = bits(5, signed=True)
    old_shot_x: Int[Array, ""] = bits(4)
    old_shot_y: Int[Array, ""] = bits(5, signed=True)
    alien_shot_x: Int[Array, ""] = bits(4)
    alien_shot_y: Int[Array, ""] = bits(5, signed=True)
    alien_shot_wait: Int[Array, ""] = bits(4)
    wave_x: Int[Array, ""] = bits(5, signed=True)
    wave_y: Int[Array, ""] = bits(5, signed=True)
    wave_right: Bool[Array, ""] = bits(1)
    wave_wait: Int[Array, ""] = bits(4)
    slowest: Int[Array, ""] = bits(4)
    wave: Int[Array, ""] = bits(24)


@record
class Draws:
    """Nothing in this game is random."""


def draw(key: PRNGKeyArray) -> Draws:
    """Draws nothing."""
    del key
    return Draws()


def init(draws: Draws) -> State:
    """A full wave at the top, heading left."""
    del draws
    number = lambda n: jnp.asarray(n, jnp.int32)  # noqa: E731
    return State(
        cannon=number(5),
        shot_wait=number(0),
        shot_x=number(0),
        shot_y=number(NO_SHOT),
        old_shot_x=number(0),
        old_shot_y=number(NO_SHOT),
        alien_shot_x=number(0),
        alien_shot_y=number(NO_ALIEN_SHOT),
        alien_shot_wait=number(ALIEN_SHOT_STEPS),
        wave=number(FULL_WAVE),
        wave_x=number(WAVE_X),
        wave_y=number(WAVE_Y),
        wave_right=jnp.asarray(False),
        wave_wait=number(SLOWEST),
        slowest=number(SLOWEST),
    )


def _alien(wave: Array, wave_y: Array, wave_x: Array, y: Array | np.ndarray, x: Array | np.ndarray) -> Array:
    """One where an alien is at (y, x), else zero. Rows wrap around: that shows on the last board of a lost game."""
    row = y - wave_y
    row = jnp.where(row < 0, row + SIZE, row)
    column = x - wave_x
    inside = (row < WAVE_ROWS) & (column >= 0) & (column < WAVE_COLUMNS)
    index = jnp.clip(row * WAVE_COLUMNS + column, 0, WAVE_ROWS * WAVE_COLUMNS - 1)
    return jnp.where(inside, (wave >> index) & 1, 0)


def _highest_bit(mask: Array) -> Array:
    """The index of the highest bit that is set, -1 where none is."""
    return 31 - jax.lax.clz(mask)


def _columns(wave: Array, wave_x: Array) -> Array:
    """The mask of the board's columns that hold an alien."""
    mask = (wave | wave >> WAVE_COLUMNS | wave >> 2 * WAVE_COLUMNS | wave >> 3 * WAVE_COLUMNS) & (1 << WAVE_COLUMNS) - 1
    return jnp.where(wave_x < 0, mask >> jnp.maximum(-wave_x, 0), mask << jnp.maximum(wave_x, 0)) & FULL_ROW


def _rows_of_column(wave: Array, wave_y: Array, column: Array) -> Array:
    """The mask of the board's rows that hold an alien in this column of the wave."""
    line = wave >> jnp.clip(column, 0, WAVE_COLUMNS - 1)
    mask = sum(((line >> r * WAVE_COLUMNS) & 1) << r for r in range(WAVE_ROWS)) << wave_y
    return (mask | mask >> SIZE) & FULL_ROW


def _shooter(wave: Array, wave_y: Array, wave_x: Array, cannon: Array) -> tuple[Array, Array]:
    """Where the alien stands that shoots: the lowest of the nearest column, the left one of two as near."""
    columns = _columns(wave, wave_x)
    left = _highest_bit(columns & ((2 << cannon) - 1))
    beyond = columns >> (cannon + 1)
    right = cannon + 1 + jax.lax.population_count((beyond & -beyond) - 1)
    take_left = (left >= 0) & ((beyond == 0) | (cannon - left <= right - cannon))
    x = jnp.where(take_left, left, right)
    return _highest_bit(_rows_of_column(wave, wave_y, x - wave_x)), x


def transition(state: State, action: Array, draws: Draws, *, ramping: bool = True) -> tuple[State, Array, Array]:
    """The cannon acts, the bullets fly, the wave moves, an alien shoots, and only then are aliens hit."""
    del draws
    cannon = steer(state.cannon, action, LEFT, RIGHT, 0, SIZE - 1)
    fires = (action == FIRE) & (state.shot_wait == 0)
    shot_x = jnp.where(fires, cannon, state.shot_x)
    shot_y = jnp.where(fires, CANNON_ROW, state.shot_y) - 1
    old_shot_x = jnp.where(fires, state.shot_x, state.old_shot_x)
    old_shot_y = jnp.where(fires, state.shot_y, state.old_shot_y) - 1
    alien_shot_y = state.alien_shot_y + 1
    lost = (alien_shot_y == CANNON_ROW) & (state.alien_shot_x == cannon)

    wave, wave_x, wave_y = state.wave, state.wave_x, state.wave_y
    lost |= _alien(wave, wave_y, wave_x, jnp.asarray(CANNON_ROW), cannon) != 0
    moves = state.wave_wait == 0
    columns = _columns(wave, wave_x)
    turns = moves & (columns & jnp.where(state.wave_right, 1 << SIZE - 1, 1) != 0)
    lowest = wave_y + sum((wave >> r * WAVE_COLUMNS != 0).astype(jnp.int32) for r in range(1, WAVE_ROWS))
    lost |= turns & (lowest == SIZE - 1)
    wave_right = state.wave_right ^ turns
    wave_y = wave_y + turns
    wave_x = wave_x + jnp.where(moves & ~turns, jnp.where(wave_right, 1, -1), 0)
    lost |= moves & (_alien(wave, wave_y, wave_x, jnp.asarray(CANNON_ROW), cannon) != 0)
    every = jnp.minimum(jax.lax.population_count(wave), state.slowest)

    alien_fires = state.alien_shot_wait == 0
    shooter_y, shooter_x = _shooter(wave, wave_y, wave_x, cannon)
    hit = _bit_of(wave, wave_y, wave_x, shot_y, shot_x)
    old_hit = _bit_of(wave, wave_y, wave_x, old_shot_y, old_shot_x)
    wave = wave & ~(hit | old_hit)
    cleared = wave == 0
    faster = cleared & (state.slowest > FASTEST) if ramping else jnp.asarray(False)
    new = State(
        cannon=cannon,
        shot_wait=jnp.maximum(jnp.where(fires, SHOT_STEPS, state.shot_wait) - 1, 0),
        shot_x=shot_x,
        shot_y=jnp.where(hit != 0, NO_SHOT, jnp.maximum(shot_y, NO_SHOT)),
        old_shot_x=old_shot_x,
        old_shot_y=jnp.where(old_hit != 0, NO_SHOT, jnp.maximum(old_shot_y, NO_SHOT)),
        alien_shot_x=jnp.where(alien_fires, shooter_x, state.alien_shot_x),
        alien_shot_y=jnp.where(alien_fires, shooter_y, jnp.minimum(alien_shot_y, NO_ALIEN_SHOT)),
        alien_shot_wait=jnp.where(alien_fires, ALIEN_SHOT_STEPS, state.alien_shot_wait) - 1,
        wave=jnp.where(cleared, FULL_WAVE, wave),
        wave_x=jnp.where(cleared, WAVE_X, wave_x),
        wave_y=jnp.where(cleared, WAVE_Y, wave_y),
        wave_right=wave_right,
        wave_wait=jnp.where(moves, every, state.wave_wait) - 1,
        slowest=state.slowest - faster,
    )
    return new, (hit != 0).astype(jnp.float32) + (old_hit != 0).astype(jnp.float32), lost


def _bit_of(wave: Array, wave_y: Array, wave_x: Array, y: Array, x: Array) -> Array:
    """The wave's bit of the alien at (y, x); empty where there is none or the row is off the board."""
    row = y - wave_y
    row = jnp.where(row < 0, row + SIZE, row)
    index = jnp.clip(row * WAVE_COLUMNS + x - wave_x, 0, WAVE_ROWS * WAVE_COLUMNS - 1)
    return jnp.where(y >= 0, _alien(wave, wave_y, wave_x, y, x) << index, 0)


def observe(state: State) -> Bool[Array, "10 10 6"]:
    """Cannon, aliens, aliens again in the channel of their direction, our bullets, theirs."""
    aliens = _alien(state.wave, state.wave_y, state.wave_x, ROWS, COLUMNS)
    leftward = jnp.where(state.wave_right, 0, aliens)
    return paint(
        spot(jnp.asarray(CANNON_ROW), state.cannon),
        aliens,
        leftward,
        aliens - leftward,
        spot(state.shot_y, state.shot_x) | spot(state.old_shot_y, state.old_shot_x),
        spot(state.alien_shot_y, state.alien_shot_x),
    )


GAME = Game(
    name="space_invaders",
    channels=("cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet"),
    minimal_actions=(NONE, LEFT, RIGHT, FIRE),
    count_width=256,
    state=State,
    draw=draw,
    init=init,
    transition=transition,
    observe=observe,
)
