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
- their bullets do nothing but fly and hit, so one mask a row and direction holds them all.
So of all the loops in which entries meet one another, only who is hit by a bullet of ours is left: when the bullet
moves, the oldest fish in its cell, else the oldest submarine; when the enemies move, the newest submarine that comes
onto its cell, else the newest fish.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from highway_rl.envs import keys
from highway_rl.envs.minatar.common import (
    COLUMNS,
    DOWN,
    FIRE,
    FULL_ROW,
    LEFT,
    NONE,
    RIGHT,
    ROW,
    ROWS,
    SIZE,
    UP,
    Game,
    bit,
    paint,
    spot,
    spread,
    steer,
)
from highway_rl.types import record

MAX_OXYGEN = 200
CREW = 6
LAST_ROW = SIZE - 2
SPAWN_STEPS, DIVER_STEPS = 20, 30
MOVE_WAIT, FASTEST_WAIT, DIVER_WAIT = 5, 2, 5
SHOT_STEPS, ENEMY_SHOT_STEPS = 5, 10
ENEMIES, DIVERS, SHOTS = 30, 2, 2
INDEX = np.arange(ENEMIES, dtype=np.int32)


@record
class Enemies:
    """Fish, and submarines that shoot. `wait` counts the steps to the next move, `load` those to the next shot."""

    alive: Bool[Array, "30"]
    shoots: Bool[Array, "30"]
    right: Bool[Array, "30"]
    x: Int[Array, "30"]
    y: Int[Array, "30"]
    wait: Int[Array, "30"]
    load: Int[Array, "30"]


@record
class Divers:
    """Where the divers are and when they move."""

    alive: Bool[Array, "2"]
    right: Bool[Array, "2"]
    x: Int[Array, "2"]
    y: Int[Array, "2"]
    wait: Int[Array, "2"]


@record
class Shots:
    """Our bullets."""

    alive: Bool[Array, "2"]
    right: Bool[Array, "2"]
    x: Int[Array, "2"]
    y: Int[Array, "2"]


@record
class State:
    """The board, with masks of the enemies' bullets for each row and direction."""

    x: Int[Array, ""]
    y: Int[Array, ""]
    right: Bool[Array, ""]
    surfaced: Bool[Array, ""]
    oxygen: Int[Array, ""]
    crew: Int[Array, ""]
    shot_wait: Int[Array, ""]
    shots: Shots
    enemies: Enemies
    next_enemy: Int[Array, ""]
    bullets_left: Int[Array, "10"]
    bullets_right: Int[Array, "10"]
    divers: Divers
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
    no, zero = (lambda n: jnp.zeros(n, bool)), (lambda n: jnp.zeros(n, jnp.int32))
    return State(
        x=number(5),
        y=number(0),
        right=jnp.asarray(False),
        surfaced=jnp.asarray(True),
        oxygen=number(MAX_OXYGEN),
        crew=number(0),
        shot_wait=number(0),
        shots=Shots(no(SHOTS), no(SHOTS), zero(SHOTS), zero(SHOTS)),
        enemies=Enemies(*(no(ENEMIES) for _ in range(3)), *(zero(ENEMIES) for _ in range(4))),
        next_enemy=number(0),
        bullets_left=zero(SIZE),
        bullets_right=zero(SIZE),
        divers=Divers(no(DIVERS), no(DIVERS), *(zero(DIVERS) for _ in range(3))),
        spawn_every=number(SPAWN_STEPS),
        spawn_wait=number(SPAWN_STEPS),
        diver_spawn_wait=number(DIVER_STEPS),
        move_wait=number(MOVE_WAIT),
        ramp_level=number(0),
    )


def _start(right: Array) -> Array:
    return jnp.where(right, 0, SIZE - 1)


def _ahead(x: Array, right: Array) -> Array:
    return x + jnp.where(right, 1, -1)


def _on_board(x: Array) -> Array:
    return (x >= 0) & (x < SIZE)


def _put_first(put: Array, new: PyTree, old: PyTree) -> PyTree:
    """Where `put`, the new entry before the first of two old ones; else the old ones."""
    first = np.arange(2) == 0
    return jax.tree.map(lambda n, o: jnp.where(put, jnp.where(first, n, o[:1]), o), new, old)


def _spawn_enemy(state: State, draws: Draws) -> tuple[Enemies, Array]:
    """An enemy may appear, unless one in its row swims the other way."""
    old = state.enemies
    against = old.alive & (old.y == draws.enemy_row) & (old.right != draws.enemy_right)
    appears = (state.spawn_wait == 0) & ~jnp.any(against)
    new = Enemies(
        alive=jnp.asarray(True),
        shoots=draws.enemy_shoots,
        right=draws.enemy_right,
        x=_start(draws.enemy_right),
        y=draws.enemy_row,
        wait=state.move_wait,
        load=jnp.asarray(ENEMY_SHOT_STEPS, jnp.int32),
    )
    here = appears & (INDEX == state.next_enemy)
    enemies = jax.tree.map(lambda n, o: jnp.where(here, n, o), new, old)
    following = state.next_enemy + appears
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
    start = _start(draws.diver_right)
    new = Divers(jnp.asarray(True), draws.diver_right, start, draws.diver_row, jnp.asarray(DIVER_WAIT, jnp.int32))
    divers = _put_first(state.diver_spawn_wait == 0, new, state.divers)
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


def _fly(bullets: Array, firing: Array, player: Array, right: bool) -> tuple[Array, Array]:
    """The enemies' bullets of one direction after new ones join and all fly on; and whether one met us."""
    before = bullets | firing
    after = (before << 1 if right else before >> 1) & FULL_ROW
    return after, jnp.any((before | after) & player != 0)


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
    shots = _put_first(fires, Shots(jnp.asarray(True), right, x, y), state.shots)
    flown = _ahead(shots.x, shots.right)
    shots = dataclasses.replace(shots, alive=shots.alive & _on_board(flown), x=flown)

    age = next_enemy - 1 - INDEX
    age = jnp.where(age < 0, age + ENEMIES, age)
    oldest_fish_first = 1 + age + jnp.where(enemies.shoots, 0, ENEMIES)
    shots, enemies, kills = _shoot_down(shots, enemies, enemies.alive, oldest_fish_first)
    divers, crew = _move_divers(state, draws, x, y)

    moves = enemies.wait == 0
    near = enemies.alive & (enemies.y == y)
    ahead = jnp.where(moves, _ahead(enemies.x, enemies.right), enemies.x)
    lost = jnp.any(near & ((enemies.x == x) | (ahead == x)))
    firing = jnp.where(enemies.alive & enemies.shoots & (enemies.load == 0), bit(ahead), 0)
    firing = _either(jnp.where(enemies.y == ROWS, firing << jnp.where(enemies.right, SIZE, 0), 0))
    enemies = dataclasses.replace(
        enemies,
        alive=enemies.alive & _on_board(ahead),
        x=ahead,
        wait=jnp.where(moves, state.move_wait, enemies.wait - 1),
        load=jnp.where(enemies.load == 0, ENEMY_SHOT_STEPS, enemies.load - 1),
    )
    arrived = enemies.alive & moves & ~(near & (ahead == x))
    newest_submarine_first = ENEMIES - age + jnp.where(enemies.shoots, ENEMIES, 0)
    shots, enemies, more = _shoot_down(shots, enemies, arrived, newest_submarine_first)
    player = jnp.where(ROW == y, 1 << x, 0)
    bullets_left, shot_left = _fly(state.bullets_left, firing & FULL_ROW, player, right=False)
    bullets_right, shot_right = _fly(state.bullets_right, firing >> SIZE, player, right=True)

    new = State(
        x=x,
        y=y,
        right=right,
        surfaced=state.surfaced,
        oxygen=state.oxygen,
        crew=crew,
        shot_wait=jnp.maximum(jnp.where(fires, SHOT_STEPS, state.shot_wait) - 1, 0),
        shots=shots,
        enemies=enemies,
        next_enemy=next_enemy,
        bullets_left=bullets_left,
        bullets_right=bullets_right,
        divers=divers,
        spawn_every=state.spawn_every,
        spawn_wait=jnp.where(state.spawn_wait == 0, state.spawn_every, state.spawn_wait) - 1,
        diver_spawn_wait=jnp.where(state.diver_spawn_wait == 0, DIVER_STEPS, state.diver_spawn_wait) - 1,
        move_wait=state.move_wait,
        ramp_level=state.ramp_level,
    )
    new, paid, drowned = _breathe(new, ramping, spare_oxygen)
    return new, kills + more + paid, lost | shot_left | shot_right | drowned


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
    enemies, divers, shots = state.enemies, state.divers, state.shots
    shift = jnp.where(enemies.shoots, SIZE, 0)
    behind = bit(_ahead(enemies.x, ~enemies.right)) << 2 * SIZE
    here = jnp.where(enemies.alive, (bit(enemies.x) << shift) | behind, 0)
    crowd = _either(jnp.where(enemies.y == ROWS, here, 0))

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
        spread(state.bullets_left | state.bullets_right),
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
