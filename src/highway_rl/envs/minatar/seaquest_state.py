"""What Seaquest remembers: its records, each thing packed into one word, and the empty sea."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from highway_rl.envs import keys
from highway_rl.envs.minatar.bitplanes import ALL, Entries, Planes
from highway_rl.envs.minatar.common import hold
from highway_rl.envs.minatar.words import bits, whole
from highway_rl.types import record

MAX_OXYGEN = 200
SPAWN_STEPS, DIVER_STEPS = 20, 30
MOVE_WAIT, FASTEST_WAIT, DIVER_WAIT = 5, 2, 5
SHOT_STEPS, ENEMY_SHOT_STEPS = 5, 10
NO_BULLET = 15


@record
class Enemies:
    """Thirty places for fish, and for submarines that shoot, as bit planes.

    `wait` counts the steps to the next move and `load` those to the next shot. `bullet` is the column of the enemy's
    bullet, which outlives it in its row and direction: it is gone before the next shot and before the place is reused.
    """

    alive: Entries
    shoots: Entries
    right: Entries
    x: Planes
    y: Planes
    wait: Planes
    load: Planes
    bullet: Planes


_PLANES: Any = (
    {"alive": 0, "shoots": 0, "right": 0} | {n: [0] * 4 for n in ("x", "y", "load", "bullet")} | {"wait": [0] * 3}
)


@record
class Shot:
    """A bullet of ours; packed in 10 bits."""

    alive: Bool[Array, ""] = bits(1)
    right: Bool[Array, ""] = bits(1)
    x: Int[Array, ""] = bits(4)
    y: Int[Array, ""] = bits(4)


@record
class Diver(Shot):
    """A diver crosses like a bullet, but waits between its moves; packed in 14 bits."""

    wait: Int[Array, ""] = bits(4)


@record
class State:
    """Everything the game remembers."""

    x: Int[Array, ""] = bits(4)
    y: Int[Array, ""] = bits(4)
    right: Bool[Array, ""] = bits(1)
    surfaced: Bool[Array, ""] = bits(1)
    shot_wait: Int[Array, ""] = bits(3)
    next_enemy: Int[Array, ""] = bits(5)
    spawn_every: Int[Array, ""] = bits(5)
    spawn_wait: Int[Array, ""] = bits(5)
    diver_spawn_wait: Int[Array, ""] = bits(5)
    move_wait: Int[Array, ""] = bits(3)
    ramp_level: Int[Array, ""] = bits(5)
    oxygen: Int[Array, ""] = bits(10, signed=True)
    shot: Int[Array, ""] = bits(10)
    old_shot: Int[Array, ""] = bits(10)
    diver: Int[Array, ""] = bits(14)
    old_diver: Int[Array, ""] = bits(14)
    crew: Int[Array, ""] = bits(31, signed=True)
    enemies: Enemies = whole(Enemies(**_PLANES))


@record
class Draws:
    """The enemy and the diver that appear if their time has come: direction, row 1 to 8, kind of enemy."""

    enemy_right: Bool[Array, ""]
    enemy_shoots: Bool[Array, ""]
    enemy_row: Int[Array, ""]
    diver_right: Bool[Array, ""]
    diver_row: Int[Array, ""]


def draw(key: PRNGKeyArray) -> Draws:
    """Every row and direction is as likely; one enemy in three is a submarine."""
    enemy, kind, diver, _ = hold(keys.join(keys.words(key)))
    return Draws(
        enemy_right=enemy >> 31 != 0,
        enemy_shoots=keys.chance(kind, 1 / 3),
        enemy_row=1 + ((enemy >> 28) & 7).astype(jnp.int32),
        diver_right=diver >> 31 != 0,
        diver_row=1 + ((diver >> 28) & 7).astype(jnp.int32),
    )


def tenths(oxygen: Array) -> Array:
    """How many tenths of the bar are full: oxygen · 10 // MAX_OXYGEN for -1 to 200, without a slow division."""
    return oxygen * 205 >> 12


def init(draws: Draws) -> State:
    """An empty sea, the submarine at the surface with full oxygen."""
    del draws
    number = lambda n: jnp.asarray(n, jnp.int32)  # noqa: E731
    none, no = number(0), jnp.asarray(False)
    enemies = Enemies(none, none, none, [none] * 4, [none] * 4, [none] * 3, [none] * 4, [number(ALL)] * 4)
    return State(
        x=number(5),
        y=none,
        right=no,
        surfaced=~no,
        shot_wait=none,
        next_enemy=none,
        spawn_every=number(SPAWN_STEPS),
        spawn_wait=number(SPAWN_STEPS),
        diver_spawn_wait=number(DIVER_STEPS),
        move_wait=number(MOVE_WAIT),
        ramp_level=none,
        oxygen=number(MAX_OXYGEN),
        shot=none,
        old_shot=none,
        diver=none,
        old_diver=none,
        crew=none,
        enemies=enemies,
    )
