"""Freeway: walk a chicken up across eight lanes of cars.

After a move the chicken rests for three steps. Each crossing pays 1, puts it back at the bottom and gives every car a
new speed and direction. A car on the chicken, before or after the car's own move, sends it back to the bottom.
A car of speed s moves every s + 1 steps and wraps around. The game ends after 2501 steps, and in no other way.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from highway_rl.envs import keys
from highway_rl.envs.minatar.common import DOWN, LANES, NONE, ROW, SIZE, UP, Game, paint, spot, spread, steer
from highway_rl.envs.minatar.words import bits
from highway_rl.types import record

SPEEDS = 5
CHICKEN_X, BOTTOM = 4, SIZE - 1
REST = 3
CLOCK = 2500


@record
class State:
    """One car to each of the rows 1 to 8, entries 0 and 9 being idle; `car_wait` counts the steps until it moves."""

    chicken: Int[Array, ""] = bits(4)
    rest: Int[Array, ""] = bits(2)
    clock: Int[Array, ""] = bits(13, signed=True)
    car_x: Int[Array, "10"] = bits(4, rows=True)
    car_wait: Int[Array, "10"] = bits(3, rows=True)
    car_speed: Int[Array, "10"] = bits(3, rows=True)
    car_right: Bool[Array, "10"] = bits(1, rows=True)


@record
class Draws:
    """Speeds from 1 (fastest) to 5 and directions for the cars, row by row, used at the start and at a crossing."""

    speed: Int[Array, "10"]
    right: Bool[Array, "10"]


def draw(key: PRNGKeyArray) -> Draws:
    """Every speed and direction is as likely."""
    speed, right, _, _ = keys.words(key, (SIZE,))
    return Draws(speed=1 + keys.below(speed, SPEEDS), right=right >> 31 != 0)


def init(draws: Draws) -> State:
    """All cars in the leftmost column, the chicken resting at the bottom."""
    return State(
        chicken=jnp.asarray(BOTTOM, jnp.int32),
        rest=jnp.asarray(REST, jnp.int32),
        clock=jnp.asarray(CLOCK, jnp.int32),
        car_x=jnp.zeros(SIZE, jnp.int32),
        car_wait=draws.speed,
        car_speed=draws.speed,
        car_right=draws.right,
    )


def transition(state: State, action: Array, draws: Draws) -> tuple[State, Array, Array]:
    """The chicken moves, a crossing is paid, then the cars move. Only the car in the chicken's lane can hit it."""
    tries = (state.rest == 0) & ((action == UP) | (action == DOWN))
    climbed = steer(state.chicken, jnp.where(tries, action, NONE), UP, DOWN, 0, BOTTOM)
    rest = jnp.where(tries, REST, state.rest)
    crossed = climbed == 0

    speed = jnp.where(crossed, draws.speed, state.car_speed)
    right = jnp.where(crossed, draws.right, state.car_right)
    wait = jnp.where(crossed, draws.speed, state.car_wait)
    moves = wait == 0
    x = state.car_x + jnp.where(moves, jnp.where(right, 1, -1), 0)
    x = jnp.where(x < 0, SIZE - 1, jnp.where(x >= SIZE, 0, x))

    own_lane = LANES & (climbed == ROW)
    hit = jnp.any(own_lane & ((state.car_x == CHICKEN_X) | (x == CHICKEN_X)))
    clock = state.clock - 1
    new = State(
        chicken=jnp.where(crossed | hit, BOTTOM, climbed),
        rest=jnp.maximum(rest - 1, 0),
        clock=clock,
        car_x=x,
        car_wait=jnp.where(moves, speed, wait - 1),
        car_speed=speed,
        car_right=right,
    )
    return new, crossed.astype(jnp.float32), clock < 0


def observe(state: State) -> Bool[Array, "10 10 7"]:
    """Chicken, cars, and the cell behind each car in the channel of its speed."""
    behind = state.car_x + jnp.where(state.car_right, -1, 1)
    behind = jnp.where(behind < 0, SIZE - 1, jnp.where(behind >= SIZE, 0, behind))
    trail = 1 << behind
    trails = [jnp.where(LANES & (state.car_speed == speed), trail, 0) for speed in range(1, SPEEDS + 1)]
    cars = jnp.where(LANES, 1 << state.car_x, 0)
    return paint(spot(state.chicken, jnp.asarray(CHICKEN_X)), *(spread(rows) for rows in (cars, *trails)))


GAME = Game(
    name="freeway",
    channels=("chicken", "car", *(f"speed{s}" for s in range(1, SPEEDS + 1))),
    minimal_actions=(NONE, UP, DOWN),
    count_width=100,
    state=State,
    draw=draw,
    init=init,
    transition=transition,
    observe=observe,
    starts=None,
    horizon=CLOCK + 1,
)
