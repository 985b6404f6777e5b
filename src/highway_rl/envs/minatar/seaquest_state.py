"""What Seaquest remembers: its records, each thing packed into one word, and the empty sea."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from highway_rl.envs import keys
from highway_rl.envs.minatar.common import bits
from highway_rl.types import record

MAX_OXYGEN = 200
SPAWN_STEPS, DIVER_STEPS = 20, 30
MOVE_WAIT, FASTEST_WAIT, DIVER_WAIT = 5, 2, 5
SHOT_STEPS, ENEMY_SHOT_STEPS = 5, 10
ENEMIES, DIVERS, SHOTS = 30, 2, 2
NO_BULLET, BULLET_SHIFT = 15, 19


@record
class Enemies:
    """Fish, and submarines that shoot; packed in 23 bits.

    `wait` counts the steps to the next move and `load` those to the next shot. `bullet` is the column of the enemy's
    bullet, which outlives it in its row and direction: it is gone before the next shot and before the place is reused.
    """

    alive: Bool[Array, "30"] = bits(1)
    shoots: Bool[Array, "30"] = bits(1)
    right: Bool[Array, "30"] = bits(1)
    x: Int[Array, "30"] = bits(4)
    y: Int[Array, "30"] = bits(4)
    wait: Int[Array, "30"] = bits(4)
    load: Int[Array, "30"] = bits(4)
    bullet: Int[Array, "30"] = bits(4)


@record
class Divers:
    """Where the divers are and when they move; packed in 14 bits."""

    alive: Bool[Array, "2"] = bits(1)
    right: Bool[Array, "2"] = bits(1)
    x: Int[Array, "2"] = bits(4)
    y: Int[Array, "2"] = bits(4)
    wait: Int[Array, "2"] = bits(4)


@record
class Shots:
    """Our bullets; packed in 10 bits."""

    alive: Bool[Array, "2"] = bits(1)
    right: Bool[Array, "2"] = bits(1)
    x: Int[Array, "2"] = bits(4)
    y: Int[Array, "2"] = bits(4)


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
    shots: Int[Array, "2"]
    enemies: Int[Array, "30"]
    next_enemy: Int[Array, ""]
    divers: Int[Array, "2"]
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
    nothing = lambda n: jnp.zeros(n, jnp.int32)  # noqa: E731
    return State(
        x=number(5),
        y=number(0),
        right=jnp.asarray(False),
        surfaced=jnp.asarray(True),
        oxygen=number(MAX_OXYGEN),
        crew=number(0),
        shot_wait=number(0),
        shots=nothing(SHOTS),
        enemies=jnp.full(ENEMIES, NO_BULLET << BULLET_SHIFT, jnp.int32),
        next_enemy=number(0),
        divers=nothing(DIVERS),
        spawn_every=number(SPAWN_STEPS),
        spawn_wait=number(SPAWN_STEPS),
        diver_spawn_wait=number(DIVER_STEPS),
        move_wait=number(MOVE_WAIT),
        ramp_level=number(0),
    )
