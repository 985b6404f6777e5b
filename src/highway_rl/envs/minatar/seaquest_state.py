"""What Seaquest remembers: its records, each thing packed into one word, and the empty sea."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from highway_rl.envs import keys
from highway_rl.envs.minatar.bitplanes import ALL, Entries, Planes
from highway_rl.envs.minatar.common import bits
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


WIDTHS = {"alive": 1, "shoots": 1, "right": 1, "x": 4, "y": 4, "wait": 3, "load": 4, "bullet": 4}


def stack(enemies: Enemies) -> Int[Array, "22"]:
    """All planes in one array."""
    planes: list[Entries] = []
    for name, width in WIDTHS.items():
        value = getattr(enemies, name)
        planes += [value] if width == 1 else value
    return keys.join(planes)


def unstack(planes: Int[Array, "22"]) -> Enemies:
    """The record that `stack` made one array of."""
    values, first = {}, 0
    for name, width in WIDTHS.items():
        values[name] = planes[first] if width == 1 else [planes[first + b] for b in range(width)]
        first += width
    return Enemies(**values)


@record
class Diver:
    """A diver and when it moves; packed in 14 bits."""

    alive: Bool[Array, ""] = bits(1)
    right: Bool[Array, ""] = bits(1)
    x: Int[Array, ""] = bits(4)
    y: Int[Array, ""] = bits(4)
    wait: Int[Array, ""] = bits(4)


@record
class Shot:
    """A bullet of ours; packed in 10 bits."""

    alive: Bool[Array, ""] = bits(1)
    right: Bool[Array, ""] = bits(1)
    x: Int[Array, ""] = bits(4)
    y: Int[Array, ""] = bits(4)


@record
class State:
    """The submarine, and everything around it as packed words."""

    x: Int[Array, ""]
    y: Int[Array, ""]
    right: Bool[Array, ""]
    surfaced: Bool[Array, ""]
    oxygen: Int[Array, ""]
    crew: Int[Array, ""]
    shot_wait: Int[Array, ""]
    shot: Int[Array, ""]
    old_shot: Int[Array, ""]
    enemies: Int[Array, "22"]
    next_enemy: Int[Array, ""]
    diver: Int[Array, ""]
    old_diver: Int[Array, ""]
    spawn_every: Int[Array, ""]
    spawn_wait: Int[Array, ""]
    diver_spawn_wait: Int[Array, ""]
    move_wait: Int[Array, ""]
    ramp_level: Int[Array, ""]


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
    enemy, kind, diver, _ = keys.words(key)
    return Draws(
        enemy_right=enemy >> 31 != 0,
        enemy_shoots=keys.chance(kind, 1 / 3),
        enemy_row=1 + ((enemy >> 28) & 7).astype(jnp.int32),
        diver_right=diver >> 31 != 0,
        diver_row=1 + ((diver >> 28) & 7).astype(jnp.int32),
    )


def init(draws: Draws) -> State:
    """An empty sea, the submarine at the surface with full oxygen."""
    del draws
    number = lambda n: jnp.asarray(n, jnp.int32)  # noqa: E731
    return State(
        x=number(5),
        y=number(0),
        right=jnp.asarray(False),
        surfaced=jnp.asarray(True),
        oxygen=number(MAX_OXYGEN),
        crew=number(0),
        shot_wait=number(0),
        shot=number(0),
        old_shot=number(0),
        enemies=jnp.where(np.arange(sum(WIDTHS.values())) >= sum(WIDTHS.values()) - WIDTHS["bullet"], ALL, 0),
        next_enemy=number(0),
        diver=number(0),
        old_diver=number(0),
        spawn_every=number(SPAWN_STEPS),
        spawn_wait=number(SPAWN_STEPS),
        diver_spawn_wait=number(DIVER_STEPS),
        move_wait=number(MOVE_WAIT),
        ramp_level=number(0),
    )
