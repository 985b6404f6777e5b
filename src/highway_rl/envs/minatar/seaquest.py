"""Seaquest: shoot fish and submarines, fetch divers, breathe in time.

Each enemy shot pays 1. Coming up with divers refills the oxygen, costs one diver and raises the difficulty; with six
divers it costs all of them and pays a tenth of the bar for each cell of oxygen left. Coming up without one ends the
game, as do an enemy, a bullet, and the end of the oxygen.

A quirk of the original is kept: after coming up with six divers the count stands at -1, and since only a count of 0
is refused, one may come up again and again from there.

How the lists of the original become fixed arrays:
- an enemy crosses in at most 10 (w + 1) steps, w being the wait between moves, and enemies appear every s steps; of
  all pairs (w, s) that occur, (2, 1) lets most be alive at once: 30, filled in turn, as a ring;
- a diver crosses in 59 steps and one appears every 30: 2, the newer first;
- a bullet of ours lives 9 steps and loading takes 5: 2, the newer first, never in one cell;
- a bullet of theirs is gone 9 steps after the shot and loading takes 11: one to each enemy's place.
So of all the loops in which entries meet one another, only who is hit by a bullet of ours is left: when the bullet
moves, the oldest fish in its cell, else the oldest submarine; when the enemies move, the newest submarine that comes
onto its cell, else the newest fish.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from highway_rl.envs.minatar.common import (
    COLUMNS,
    DOWN,
    FIRE,
    LEFT,
    NONE,
    RIGHT,
    ROWS,
    SIZE,
    UP,
    Game,
    bit,
    pack,
    paint,
    spot,
    spread,
    steer,
    unpack,
)
from highway_rl.envs.minatar.seaquest_state import (
    DIVER_STEPS,
    DIVER_WAIT,
    DIVERS,
    ENEMIES,
    ENEMY_SHOT_STEPS,
    FASTEST_WAIT,
    MAX_OXYGEN,
    NO_BULLET,
    SHOT_STEPS,
    SHOTS,
    Divers,
    Draws,
    Enemies,
    Shots,
    State,
    draw,
    init,
)

CREW = 6
LAST_ROW = SIZE - 2
INDEX = np.arange(ENEMIES, dtype=np.int32)


def _start(right: Array) -> Array:
    return jnp.where(right, 0, SIZE - 1)


def _ahead(x: Array, right: Array) -> Array:
    return x + jnp.where(right, 1, -1)


def _on_board(x: Array) -> Array:
    return (x >= 0) & (x < SIZE)


def _put_first(put: Array, new: Array, old: Array) -> Array:
    """Where `put`, the new word before the first of two old ones; else the old ones."""
    return jnp.where(put, jnp.where(np.arange(2) == 0, new, old[:1]), old)


def _spawn_enemy(state: State, draws: Draws) -> tuple[Enemies, Array]:
    """An enemy may appear, unless one in its row swims the other way."""
    old = unpack(Enemies, state.enemies)
    against = old.alive & (old.y == draws.enemy_row) & (old.right != draws.enemy_right)
    appears = (state.spawn_wait == 0) & ~jnp.any(against)
    new = Enemies(
        alive=True,
        shoots=draws.enemy_shoots,
        right=draws.enemy_right,
        x=_start(draws.enemy_right),
        y=draws.enemy_row,
        wait=state.move_wait,
        load=ENEMY_SHOT_STEPS,
        bullet=NO_BULLET,
    )
    here = appears & (INDEX == state.next_enemy)
    following = state.next_enemy + appears
    enemies = unpack(Enemies, jnp.where(here, pack(new), state.enemies))
    return enemies, jnp.where(following == ENEMIES, 0, following)


def _hit(shots: Shots, k: int, enemies: Enemies, able: Array, worth: Array) -> Array:
    """The one enemy that our k-th bullet meets: of those able and in its cell the one worth most."""
    worth = jnp.where(able & shots.alive[k] & (enemies.x == shots.x[k]) & (enemies.y == shots.y[k]), worth, 0)
    best = jnp.max(worth)
    return (worth == best) & (best > 0)


def _shoot_down(shots: Shots, enemies: Enemies, able: Array, worth: Array) -> tuple[Shots, Enemies, Array]:
    """Removes each pair of a bullet of ours and the enemy it meets; with the number of pairs."""
    hit = [_hit(shots, k, enemies, able, worth) for k in range(SHOTS)]
    spent = [jnp.any(h) for h in hit]
    shots = dataclasses.replace(shots, alive=shots.alive & ~jnp.where(np.arange(SHOTS) == 0, *spent))
    enemies = dataclasses.replace(enemies, alive=enemies.alive & ~(hit[0] | hit[1]))
    return shots, enemies, sum(s.astype(jnp.float32) for s in spent)


def _move_divers(state: State, draws: Draws, x: Array, y: Array) -> tuple[Divers, Array]:
    """A diver may appear; all swim; those that meet us come aboard while there is room, the newer first."""
    new = Divers(True, draws.diver_right, _start(draws.diver_right), draws.diver_row, DIVER_WAIT)
    divers = unpack(Divers, _put_first(state.diver_spawn_wait == 0, pack(new), state.divers))
    moves = divers.wait == 0
    ahead = jnp.where(moves, _ahead(divers.x, divers.right), divers.x)
    meets = divers.alive & (divers.y == y) & ((divers.x == x) | (ahead == x))
    first = (meets[0] & (state.crew < CREW)).astype(jnp.int32)
    boards = meets & (state.crew + np.arange(DIVERS) * first < CREW)
    divers = dataclasses.replace(
        divers,
        alive=divers.alive & ~boards & _on_board(ahead),
        x=ahead,
        wait=jnp.where(moves, DIVER_WAIT, divers.wait - 1),
    )
    return divers, state.crew + jnp.sum(boards.astype(jnp.int32))


def _either(masks: Int[Array, "... n"]) -> Int[Array, "..."]:
    """The union of masks over the last axis."""
    return jax.lax.reduce(masks, np.int32(0), jax.lax.bitwise_or, (masks.ndim - 1,))


def transition(
    state: State, action: Array, draws: Draws, *, ramping: bool = True, spare_oxygen: int = 0
) -> tuple[State, Array, Array]:
    """Things appear, we act, our bullets fly, then divers, enemies and their bullets move, and last we breathe.

    The oxygen may run out to `spare_oxygen` = 0 in versions from 1.0.11 on, and to -1 before.
    """
    enemies, next_enemy = _spawn_enemy(state, draws)
    x = steer(state.x, action, LEFT, RIGHT, 0, SIZE - 1)
    y = steer(state.y, action, UP, DOWN, 0, LAST_ROW)
    right = jnp.where(action == LEFT, False, jnp.where(action == RIGHT, True, state.right))
    fires = (action == FIRE) & (state.shot_wait == 0)
    shots = unpack(Shots, _put_first(fires, pack(Shots(True, right, x, y)), state.shots))
    flown = _ahead(shots.x, shots.right)
    shots = dataclasses.replace(shots, alive=shots.alive & _on_board(flown), x=flown)

    age = next_enemy - 1 - INDEX
    age = jnp.where(age < 0, age + ENEMIES, age)
    oldest_fish_first = 1 + age + jnp.where(enemies.shoots, 0, ENEMIES)
    shots, enemies, kills = _shoot_down(shots, enemies, enemies.alive, oldest_fish_first)
    divers, crew = _move_divers(state, draws, x, y)

    moves = enemies.wait == 0
    ahead = jnp.where(moves, _ahead(enemies.x, enemies.right), enemies.x)
    fired = enemies.alive & enemies.shoots & (enemies.load == 0)
    bullet = jnp.where(fired, ahead, enemies.bullet)
    flown_bullet = jnp.where(_on_board(bullet), _ahead(bullet, enemies.right), NO_BULLET)
    touched = enemies.alive & ((enemies.x == x) | (ahead == x)) | (bullet == x) | (flown_bullet == x)
    lost = jnp.any((enemies.y == y) & touched)
    enemies = dataclasses.replace(
        enemies,
        alive=enemies.alive & _on_board(ahead),
        x=ahead,
        wait=jnp.where(moves, state.move_wait, enemies.wait - 1),
        load=jnp.where(enemies.load == 0, ENEMY_SHOT_STEPS, enemies.load - 1),
        bullet=jnp.where(_on_board(flown_bullet), flown_bullet, NO_BULLET),
    )
    arrived = enemies.alive & moves & ~((enemies.y == y) & (ahead == x))
    newest_submarine_first = ENEMIES - age + jnp.where(enemies.shoots, ENEMIES, 0)
    shots, enemies, more = _shoot_down(shots, enemies, arrived, newest_submarine_first)

    new = State(
        x=x,
        y=y,
        right=right,
        surfaced=state.surfaced,
        oxygen=state.oxygen,
        crew=crew,
        shot_wait=jnp.maximum(jnp.where(fires, SHOT_STEPS, state.shot_wait) - 1, 0),
        shots=pack(shots),
        enemies=pack(enemies),
        next_enemy=next_enemy,
        divers=pack(divers),
        spawn_every=state.spawn_every,
        spawn_wait=jnp.where(state.spawn_wait == 0, state.spawn_every, state.spawn_wait) - 1,
        diver_spawn_wait=jnp.where(state.diver_spawn_wait == 0, DIVER_STEPS, state.diver_spawn_wait) - 1,
        move_wait=state.move_wait,
        ramp_level=state.ramp_level,
    )
    new, paid, drowned = _breathe(new, ramping, spare_oxygen)
    return new, kills + more + paid, lost | drowned


def _breathe(state: State, ramping: bool, spare_oxygen: int) -> tuple[State, Array, Array]:
    """Uses oxygen below the surface; coming up pays for six divers, takes divers, refills and raises the difficulty."""
    below = state.y > 0
    comes_up = ~below & ~state.surfaced
    refused = comes_up & (state.crew == 0)
    up = comes_up & ~refused
    full = up & (state.crew == CREW)
    paid = jnp.where(full, state.oxygen * 10 // MAX_OXYGEN, 0).astype(jnp.float32)
    rises = up & ((state.spawn_every > 1) | (state.move_wait > FASTEST_WAIT)) if ramping else jnp.asarray(False)
    new = dataclasses.replace(
        state,
        surfaced=jnp.where(below, False, state.surfaced | up),
        oxygen=jnp.where(up, MAX_OXYGEN, state.oxygen - below),
        crew=jnp.where(full, 0, state.crew) - up,
        spawn_every=state.spawn_every - (rises & (state.spawn_every > 1)),
        move_wait=state.move_wait - (rises & (state.move_wait > FASTEST_WAIT) & (state.ramp_level % 2 == 1)),
        ramp_level=state.ramp_level + rises,
    )
    return new, paid, refused | (state.oxygen <= -spare_oxygen)


def observe(state: State, *, spare_oxygen: int = 0) -> Bool[Array, "10 10 10"]:
    """Submarine's front and back, our bullets, cells behind the swimmers, bullets, fish, submarines, bars, divers."""
    enemies, divers, shots = unpack(Enemies, state.enemies), unpack(Divers, state.divers), unpack(Shots, state.shots)
    shift = jnp.where(enemies.shoots, SIZE, 0)
    behind = bit(_ahead(enemies.x, ~enemies.right)) << 2 * SIZE
    here = jnp.where(enemies.alive, (bit(enemies.x) << shift) | behind, 0)
    crowd = _either(jnp.where(enemies.y == ROWS, here, 0))
    bullets = _either(jnp.where(enemies.y == ROWS, bit(enemies.bullet), 0))

    def spots(things: Shots | Divers, x: Array) -> Array:
        return sum(spot(jnp.where(things.alive[k], things.y[k], SIZE), x[k]) for k in range(2))

    bar = state.oxygen * 10 // MAX_OXYGEN
    bar = jnp.where(bar < 0, SIZE - 1, bar) if spare_oxygen else jnp.maximum(bar, 0)
    bottom = ROWS == SIZE - 1
    trails = spots(divers, _ahead(divers.x, ~divers.right))
    return paint(
        spot(state.y, state.x),
        spot(state.y, _ahead(state.x, ~state.right)),
        spots(shots, shots.x),
        spread(crowd >> 2 * SIZE) | (trails != 0),
        spread(bullets),
        spread(crowd),
        spread(crowd >> SIZE),
        (bottom & (COLUMNS < bar)).astype(jnp.int32),
        (bottom & (COLUMNS >= SIZE - 1 - state.crew) & (COLUMNS < SIZE - 1)).astype(jnp.int32),
        (spots(divers, divers.x) != 0).astype(jnp.int32),
    )


GAME = Game(
    name="seaquest",
    channels=(
        "sub_front",
        "sub_back",
        "friendly_bullet",
        "trail",
        "enemy_bullet",
        "enemy_fish",
        "enemy_sub",
        "oxygen_gauge",
        "diver_gauge",
        "diver",
    ),
    minimal_actions=(NONE, LEFT, UP, RIGHT, DOWN, FIRE),
    count_width=128,
    draw=draw,
    init=init,
    transition=transition,
    observe=observe,
)
