"""Asterix: take the gold, avoid the enemies.

Gold and enemies cross the board, at most one to each of the eight middle rows. Touching gold pays 1 and removes it;
touching an enemy ends the game. Things are met twice a step: after the player's move, and again after their own.
Every 102 steps they appear more often (every 10 steps at first, every step at last), and every second time they also
move faster (every 5 steps at first, every step at last).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from highway_rl.envs import keys
from highway_rl.envs.minatar.common import (
    DOWN,
    FULL_ROW,
    LANES,
    LEFT,
    NONE,
    RIGHT,
    ROW,
    SIZE,
    UP,
    Game,
    hold,
    paint,
    spot,
    spread,
    steer,
)
from highway_rl.envs.minatar.words import bits
from highway_rl.types import record

FIRST_ROW, LAST_ROW = 1, SIZE - 2
RAMP_STEPS = 100
SPAWN_STEPS, MOVE_STEPS = 10, 5


@record
class State:
    """`thing` holds ten row masks, with one bit where its thing is and none where the row is empty."""

    player_x: Int[Array, ""] = bits(4)
    player_y: Int[Array, ""] = bits(4)
    spawn_every: Int[Array, ""] = bits(4)
    spawn_wait: Int[Array, ""] = bits(4)
    move_every: Int[Array, ""] = bits(3)
    move_wait: Int[Array, ""] = bits(3)
    ramp_wait: Int[Array, ""] = bits(8, signed=True)
    ramp_level: Int[Array, ""] = bits(5)
    thing: Int[Array, "10"] = bits(10, rows=True)
    right: Bool[Array, "10"] = bits(1, rows=True)
    gold: Bool[Array, "10"] = bits(1, rows=True)


@record
class Draws:
    """The thing that appears: its direction, its kind, and which of k free lanes it takes, ⌊slot·k⌋."""

    right: Bool[Array, ""]
    gold: Bool[Array, ""]
    slot: Float[Array, ""]


def draw(key: PRNGKeyArray) -> Draws:
    """Each direction is as likely, one thing in three is gold, each free lane is as likely."""
    right, gold, slot, _ = hold(keys.join(keys.words(key)))
    return Draws(right=right >> 31 != 0, gold=keys.chance(gold, 1 / 3), slot=keys.fraction(slot))


def init(draws: Draws) -> State:
    """An empty board and the player in its middle."""
    del draws
    number = lambda n: jnp.asarray(n, jnp.int32)  # noqa: E731
    return State(
        player_x=number(5),
        player_y=number(5),
        thing=jnp.zeros(SIZE, jnp.int32),
        right=jnp.zeros(SIZE, bool),
        gold=jnp.zeros(SIZE, bool),
        spawn_every=number(SPAWN_STEPS),
        spawn_wait=number(SPAWN_STEPS),
        move_every=number(MOVE_STEPS),
        move_wait=number(MOVE_STEPS),
        ramp_wait=number(RAMP_STEPS),
        ramp_level=number(0),
    )


def _spawn(state: State, draws: Draws) -> tuple[Array, Array, Array]:
    """The lanes after a thing may have appeared: the j-th free lane is the one with j free lanes before it."""
    free = LANES & (state.thing == 0)
    free_mask = jnp.sum(jnp.where(free, 1 << ROW, 0))
    before = jax.lax.population_count(free_mask & ((1 << ROW) - 1))
    chosen = (draws.slot * jax.lax.population_count(free_mask)).astype(jnp.int32)
    here = (state.spawn_wait == 0) & free & (before == chosen)
    thing = jnp.where(here, jnp.where(draws.right, 1, 1 << SIZE - 1), state.thing)
    return thing, jnp.where(here, draws.right, state.right), jnp.where(here, draws.gold, state.gold)


def transition(state: State, action: Array, draws: Draws, *, ramping: bool = True) -> tuple[State, Array, Array]:
    """A thing may appear, the player moves and meets its lane, the things move and meet the player, the ramp rises."""
    thing, right, gold = _spawn(state, draws)
    x = steer(state.player_x, action, LEFT, RIGHT, 0, SIZE - 1)
    y = steer(state.player_y, action, UP, DOWN, FIRST_ROW, LAST_ROW)
    player = jnp.where(y == ROW, 1 << x, 0)

    first = thing & player != 0
    thing = jnp.where(first & gold, 0, thing)
    moves = state.move_wait == 0
    thing = jnp.where(moves, jnp.where(right, thing << 1, thing >> 1) & FULL_ROW, thing)
    second = moves & (thing & player != 0)
    thing = jnp.where(second & gold, 0, thing)
    met = first | second
    gained = jnp.sum(jnp.where(first & gold, 1.0, 0.0) + jnp.where(second & gold, 1.0, 0.0))

    new = State(
        player_x=x,
        player_y=y,
        thing=thing,
        right=right,
        gold=gold,
        spawn_every=state.spawn_every,
        spawn_wait=jnp.where(state.spawn_wait == 0, state.spawn_every, state.spawn_wait) - 1,
        move_every=state.move_every,
        move_wait=jnp.where(moves, state.move_every, state.move_wait) - 1,
        ramp_wait=state.ramp_wait,
        ramp_level=state.ramp_level,
    )
    return (_ramp(new) if ramping else new), gained, jnp.any(met & ~gold)


def _ramp(state: State) -> State:
    """Counts down, then raises the difficulty; nothing more happens at full difficulty."""
    rises = (state.spawn_every > 1) | (state.move_every > 1)
    due = rises & (state.ramp_wait < 0)
    faster = due & (state.move_every > 1) & (state.ramp_level & 1 == 1)
    return dataclasses.replace(
        state,
        spawn_every=state.spawn_every - (due & (state.spawn_every > 1)),
        move_every=state.move_every - faster,
        ramp_level=state.ramp_level + due,
        ramp_wait=jnp.where(due, RAMP_STEPS, state.ramp_wait - rises),
    )


def observe(state: State) -> Bool[Array, "10 10 4"]:
    """Player, enemies, the cell behind each thing, gold."""
    behind = jnp.where(state.right, state.thing >> 1, state.thing << 1) & FULL_ROW
    enemy = jnp.where(state.gold, 0, state.thing)
    gold = jnp.where(state.gold, state.thing, 0)
    return paint(spot(state.player_y, state.player_x), *(spread(rows) for rows in (enemy, behind, gold)))


GAME = Game(
    name="asterix",
    channels=("player", "enemy", "trail", "gold"),
    minimal_actions=(NONE, LEFT, UP, RIGHT, DOWN),
    count_width=64,
    state=State,
    draw=draw,
    init=init,
    transition=transition,
    observe=observe,
)
