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

import jax.numpy as jnp
from jaxtyping import Array, Bool

from highway_rl.envs.keys import join
from highway_rl.envs.minatar.bitplanes import (
    ALL,
    PLACES,
    Planes,
    add_one,
    choose,
    constant,
    equal,
    everywhere,
    newest,
    oldest,
    on_board,
    take_one,
)
from highway_rl.envs.minatar.common import (
    DOWN,
    FIRE,
    LEFT,
    NONE,
    RIGHT,
    ROW,
    SIZE,
    UP,
    Game,
    hold,
    paint,
    row_masks,
    spread,
    steer,
)
from highway_rl.envs.minatar.seaquest_state import (
    DIVER_STEPS,
    DIVER_WAIT,
    ENEMY_SHOT_STEPS,
    FASTEST_WAIT,
    MAX_OXYGEN,
    NO_BULLET,
    SHOT_STEPS,
    Diver,
    Draws,
    Enemies,
    Shot,
    State,
    draw,
    init,
    tenths,
)
from highway_rl.envs.minatar.words import pack, unpack

CREW = 6
LAST_ROW = SIZE - 2


def _start(right: Array) -> Array:
    return jnp.where(right, 0, SIZE - 1)


def _ahead(x: Array, right: Array) -> Array:
    return x + jnp.where(right, 1, -1)


def _inside(x: Array) -> Array:
    return (x >= 0) & (x < SIZE)


def _swim(x: Planes, right: Array, entries: Array | int) -> list[Array]:
    """These entries one cell ahead; columns 10 and 15 are off the board."""
    return take_one(add_one(x, entries & right), entries & ~right)


def _spawn_enemy(state: State, draws: Draws) -> tuple[Enemies, Array]:
    """An enemy may appear, unless one in its row swims the other way."""
    old = state.enemies
    against = old.alive & equal(old.y, draws.enemy_row) & (old.right ^ everywhere(draws.enemy_right))
    appears = hold((state.spawn_wait == 0) & (against == 0))
    here = jnp.where(appears, 1 << state.next_enemy, 0)
    put = lambda value, planes: choose(here, constant(value, len(planes)), planes)  # noqa: E731
    new = Enemies(
        alive=old.alive | here,
        shoots=put(draws.enemy_shoots, [old.shoots])[0],
        right=put(draws.enemy_right, [old.right])[0],
        x=put(_start(draws.enemy_right), old.x),
        y=put(draws.enemy_row, old.y),
        wait=put(state.move_wait, old.wait),
        load=put(ENEMY_SHOT_STEPS, old.load),
        bullet=put(NO_BULLET, old.bullet),
    )
    following = state.next_enemy + appears
    return new, jnp.where(following == PLACES, 0, following)


def _met(shot: Shot, x: Planes, y: Planes, able: Array, first: Array) -> Array:
    """The enemies able and in the bullet's cell: those of the kind that comes first, or else all."""
    cell = able & equal(x, shot.x) & equal(y, shot.y) & everywhere(shot.alive)
    return jnp.where(cell & first != 0, cell & first, cell)


def _swim_diver(diver: Diver, crew: Array, x: Array, y: Array) -> tuple[Diver, Array]:
    """A diver swims on, unless it meets us, before or after, and there is room."""
    moves = diver.wait == 0
    ahead = jnp.where(moves, _ahead(diver.x, diver.right), diver.x)
    boards = diver.alive & (diver.y == y) & ((diver.x == x) | (ahead == x)) & (crew < CREW)
    wait = jnp.where(moves, DIVER_WAIT, diver.wait - 1)
    return Diver(diver.alive & ~boards & _inside(ahead), diver.right, ahead, diver.y, wait), crew + boards


def _divers(state: State, draws: Draws, x: Array, y: Array) -> tuple[Diver, Diver, Array]:
    """A diver may appear; both swim, and the newer boards first."""
    appears = state.diver_spawn_wait == 0
    start = _start(draws.diver_right)
    fresh = Diver(jnp.asarray(True), draws.diver_right, start, draws.diver_row, jnp.asarray(DIVER_WAIT))
    diver = unpack(Diver, jnp.where(appears, pack(fresh), state.diver))
    old_diver = unpack(Diver, jnp.where(appears, state.diver, state.old_diver))
    diver, crew = _swim_diver(diver, state.crew, x, y)
    old_diver, crew = _swim_diver(old_diver, crew, x, y)
    return diver, old_diver, crew


def _fly(shot: Shot) -> Shot:
    x = _ahead(shot.x, shot.right)
    return dataclasses.replace(shot, x=x, alive=shot.alive & _inside(x))


def transition(
    state: State, action: Array, draws: Draws, *, ramping: bool = True, spare_oxygen: int = 0
) -> tuple[State, Array, Array]:
    """Things appear, we act, our bullets fly, then divers, enemies and their bullets move, and last we breathe.

    The oxygen may run out to `spare_oxygen` = 0 in versions from 1.0.11 on, and to -1 before.
    """
    sea, following = _spawn_enemy(state, draws)
    x = steer(state.x, action, LEFT, RIGHT, 0, SIZE - 1)
    y = steer(state.y, action, UP, DOWN, 0, LAST_ROW)
    right = jnp.where(action == LEFT, False, jnp.where(action == RIGHT, True, state.right))
    fires = (action == FIRE) & (state.shot_wait == 0)
    shots = [
        _fly(unpack(Shot, jnp.where(fires, pack(Shot(jnp.asarray(True), right, x, y)), state.shot))),
        _fly(unpack(Shot, jnp.where(fires, state.shot, state.old_shot))),
    ]

    hits = hold(join([oldest(_met(shot, sea.x, sea.y, sea.alive, ~sea.shoots), following) for shot in shots]))
    alive = sea.alive & ~(hits[0] | hits[1])
    shots = [dataclasses.replace(s, alive=s.alive & (hit == 0)) for s, hit in zip(shots, hits, strict=True)]
    kills = [*hits]
    diver, old_diver, crew = _divers(state, draws, x, y)

    moves = equal(sea.wait, 0)
    ahead = _swim(sea.x, sea.right, moves)
    unloaded = equal(sea.load, 0)
    bullet = choose(alive & sea.shoots & unloaded, ahead, sea.bullet)
    flown = choose(on_board(bullet), _swim(bullet, sea.right, ALL), constant(NO_BULLET, 4))
    touched = alive & (equal(sea.x, x) | equal(ahead, x)) | equal(bullet, x) | equal(flown, x)
    lost = equal(sea.y, y) & touched != 0

    alive &= on_board(ahead)
    arrived = alive & moves & ~(equal(sea.y, y) & equal(ahead, x))
    hits = hold(join([newest(_met(shot, ahead, sea.y, arrived, sea.shoots), following) for shot in shots]))
    shots = [dataclasses.replace(s, alive=s.alive & (hit == 0)) for s, hit in zip(shots, hits, strict=True)]
    kills += [*hits]
    sea = dataclasses.replace(
        sea,
        alive=alive & ~(hits[0] | hits[1]),
        x=ahead,
        wait=choose(moves, constant(state.move_wait, 3), take_one(sea.wait, ALL)),
        load=choose(unloaded, constant(ENEMY_SHOT_STEPS, 4), take_one(sea.load, ALL)),
        bullet=choose(on_board(flown), flown, constant(NO_BULLET, 4)),
    )

    new = State(
        x=x,
        y=y,
        right=right,
        surfaced=state.surfaced,
        oxygen=state.oxygen,
        crew=crew,
        shot_wait=jnp.maximum(jnp.where(fires, SHOT_STEPS, state.shot_wait) - 1, 0),
        shot=pack(shots[0]),
        old_shot=pack(shots[1]),
        enemies=sea,
        next_enemy=following,
        diver=pack(diver),
        old_diver=pack(old_diver),
        spawn_every=state.spawn_every,
        spawn_wait=jnp.where(state.spawn_wait == 0, state.spawn_every, state.spawn_wait) - 1,
        diver_spawn_wait=jnp.where(state.diver_spawn_wait == 0, DIVER_STEPS, state.diver_spawn_wait) - 1,
        move_wait=state.move_wait,
        ramp_level=state.ramp_level,
    )
    new, paid, drowned = _breathe(new, ramping, spare_oxygen)
    return new, paid + sum((hit != 0).astype(jnp.float32) for hit in kills), lost | drowned


def _breathe(state: State, ramping: bool, spare_oxygen: int) -> tuple[State, Array, Array]:
    """Uses oxygen below the surface; coming up pays for six divers, takes divers, refills and raises the difficulty."""
    below = state.y > 0
    comes_up = ~below & ~state.surfaced
    refused = comes_up & (state.crew == 0)
    up = comes_up & ~refused
    full = up & (state.crew == CREW)
    paid = jnp.where(full, tenths(state.oxygen), 0).astype(jnp.float32)
    rises = up & ((state.spawn_every > 1) | (state.move_wait > FASTEST_WAIT)) if ramping else jnp.asarray(False)
    new = dataclasses.replace(
        state,
        surfaced=jnp.where(below, False, state.surfaced | up),
        oxygen=jnp.where(up, MAX_OXYGEN, state.oxygen - below),
        crew=jnp.where(full, 0, state.crew) - up,
        spawn_every=state.spawn_every - (rises & (state.spawn_every > 1)),
        move_wait=state.move_wait - (rises & (state.move_wait > FASTEST_WAIT) & (state.ramp_level & 1 == 1)),
        ramp_level=state.ramp_level + rises,
    )
    return new, paid, refused | (state.oxygen <= -spare_oxygen)


def observe(state: State, *, spare_oxygen: int = 0) -> Bool[Array, "10 10 10"]:
    """Submarine's front and back, our bullets, cells behind the swimmers, bullets, fish, submarines, bars, divers.

    An enemy is in a cell if it is among those of the cell's row and among those of its column.
    """
    sea = state.enemies
    shots = [unpack(Shot, word) for word in (state.shot, state.old_shot)]
    divers = [unpack(Diver, word) for word in (state.diver, state.old_diver)]
    spots = lambda things: row_masks([(t.alive, t.y, t.x) for t in things])  # noqa: E731
    trails = row_masks([(d.alive, d.y, _ahead(d.x, ~d.right)) for d in divers])
    front = row_masks([(True, state.y, state.x)])
    back = row_masks([(True, state.y, _ahead(state.x, ~state.right))])

    bar = tenths(state.oxygen)
    bar = jnp.where(bar < 0, SIZE - 1, bar) if spare_oxygen else jnp.maximum(bar, 0)
    crew = jnp.clip(state.crew, 0, CREW)
    bars = (1 << bar) - 1 | ((1 << crew) - 1) << (2 * SIZE - 1 - crew)

    here = sea.alive & equal(sea.x, ROW)
    sets = [
        equal(sea.y, ROW),
        sea.alive & equal(_swim(sea.x, ~sea.right, ALL), ROW),
        equal(sea.bullet, ROW),
        here & ~sea.shoots,
        here & sea.shoots,
        front | back << SIZE | spots(shots) << 2 * SIZE,
        trails | spots(divers) << SIZE,
        jnp.where(ROW == SIZE - 1, bars, 0),
    ]
    held = hold(join([entries[:, None] for entries in sets]))
    rows, behind, bullets, fish, subs, ours, diving, gauges = (held[:, i] for i in range(len(sets)))
    among = lambda columns: (rows[:, None] & columns != 0).astype(jnp.int32)  # noqa: E731
    mask = lambda word, i: spread(word >> SIZE * i)  # noqa: E731
    return paint(
        *(mask(ours, i) for i in range(3)),
        mask(diving, 0) | among(behind),
        *(among(columns) for columns in (bullets, fish, subs)),
        *(mask(gauges, i) for i in range(2)),
        mask(diving, 1),
    )


GAME = Game(
    name="seaquest",
    channels=(
        *("sub_front", "sub_back", "friendly_bullet", "trail", "enemy_bullet", "enemy_fish", "enemy_sub"),
        *("oxygen_gauge", "diver_gauge", "diver"),
    ),
    minimal_actions=(NONE, LEFT, UP, RIGHT, DOWN, FIRE),
    count_width=128,
    state=State,
    draw=draw,
    init=init,
    transition=transition,
    observe=observe,
)
