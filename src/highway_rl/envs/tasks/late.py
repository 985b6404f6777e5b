"""Small tasks with a late reward, of seven kinds, such as a newcomer may have one of their own.

Here the two grids, the lock and the umbrella; the three that keep books until the end are in `late_more`. All are pure
JAX, in float32, and all but the umbrella pay exactly 0 before their end. Where a task has a fixed length, the
observation tells the time and the end is termination; where it is only cut, as the grids are, the end is truncation.

`KNOWN` has the expected undiscounted return of optimal and of uniformly random play at the default sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from highway_rl import checks
from highway_rl.envs.models.tables import seeded
from highway_rl.envs.tasks.delayed import MOVES
from highway_rl.envs.tasks.late_more import harvest, hot, inventory_year, maintenance
from highway_rl.types import Env, Spec, Step, record


def moves(free: Bool[np.ndarray, "n n"]) -> Int[np.ndarray, "cells 4"]:
    """next[cell, action] on a board: a move off it or into a wall stays."""
    side = free.shape[0]
    at = np.stack(np.divmod(np.arange(side * side), side), -1)[:, None]
    to = np.clip(at + MOVES, 0, side - 1)
    to = np.where(free[to[..., 0], to[..., 1], None], to, at)
    return (to[..., 0] * side + to[..., 1]).astype(np.int32)


@record
class Walk:
    """Where on the board, what else is known (which depends on the task), and the time."""

    cell: Array
    extra: Array
    time: Array


def key_door(side: int = 6) -> Env:
    """Fetch the key, open the door with it, reach the goal. Late: 1 at the goal, and nothing before it.

    A wall with one door splits a square board. The walk starts before the door, the key lies at the top of the same
    column, the goal behind the wall at the bottom; the door opens when it is entered with the key, which then stays in
    it. The shortest way has side + ⌊side/2⌋ + 1 steps, 10 by default. Cut after 10·side²/3 steps.

    Optimal return: 1. Random play: 0.105 by default. Observation: the cell, has-key, door-open, all bits.
    """
    side = checks.whole("side", side, 4, 100)
    middle, horizon, cells = side // 2, 10 * side**2 // 3, side * side
    free = np.ones((side, side), bool)
    free[:, middle] = np.arange(side) == middle
    table = jnp.asarray(moves(free))
    door, key_at, start, goal = (
        row * side + column
        for row, column in ((middle, middle), (0, middle - 1), (middle, middle - 1), (side - 1, middle + 1))
    )

    def observe(state: Walk) -> Array:  # extra: 0 without the key, 1 with it, 2 when it is in the open door
        return jnp.concatenate([hot(state.cell, cells), (state.extra == jnp.arange(1, 3, dtype=jnp.int32))])

    def reset(key: PRNGKeyArray) -> tuple[Walk, Array]:
        del key
        state = Walk(jnp.int32(start), jnp.int32(0), jnp.int32(0))
        return state, observe(state)

    def step(state: Walk, action: Array, key: PRNGKeyArray) -> Step:
        del key
        there = table[state.cell, action]
        there = jnp.where((there == door) & (state.extra == 0), state.cell, there)
        extra = jnp.where(there == key_at, jnp.maximum(state.extra, 1), state.extra)
        new = Walk(there, jnp.where(there == door, 2, extra), state.time + 1)
        won = there == goal
        return Step(new, observe(new), won.astype(jnp.float32), won, ~won & (new.time >= horizon))

    shape = jax.ShapeDtypeStruct((cells + 2,), bool)
    return Env(Spec(f"key-door-{side}", shape, 4, horizon=horizon), reset, step)


def carved(side: int, seed: int) -> Bool[np.ndarray, "n n"]:
    """Which cells of a maze are free: a random tree over the cells of even row and column, dug depth first."""
    draw = seeded(seed)
    free = np.zeros((side, side), bool)
    free[0, 0] = True
    path = [np.zeros(2, int)]
    while path:
        near = [cell for cell in path[-1] + 2 * MOVES if np.all((cell >= 0) & (cell < side)) and not free[tuple(cell)]]
        if near:
            new = near[draw.integers(len(near))]
            free[tuple(new)] = free[tuple((new + path[-1]) // 2)] = True
            path.append(new)
        else:
            path.pop()
    return free


def shortest(table: Int[np.ndarray, "cells 4"], start: int, goal: int) -> int:
    """How many moves lead from one cell to another that can be reached."""
    seen, steps = {start}, 0
    while goal not in seen:
        seen, steps = seen | set(table[list(seen)].ravel().tolist()), steps + 1
    return steps


def maze(side: int = 7, sticky: float = 0.1, seed: int = 5) -> Env:
    """A maze with sticky actions. Late: 1 at the goal, and nothing before it.

    The maze is one of `side` × `side` cells, walls included, and depends on the seed alone; it leads from one corner to
    the opposite one. With probability `sticky` the move of the step before is made again instead of the one chosen.
    Cut after 0.7·ℓ² steps, where ℓ is the length of the shortest way, 12 by default: a random walk covers a distance in
    about its square, so that it arrives about as often in any of these mazes.

    Optimal return: 1 minus less than 10⁻⁶ by default. Random play: 0.155 by default. Observation: the cell and the
    move of the step before, all bits; at the start there was none.
    """
    side, sticky = checks.whole("side", side, 3, 99), checks.number("sticky", sticky, 0.0, 0.99)
    if side % 2 == 0:
        raise checks.refusal("side", side, "an odd number")
    cells = side * side
    ways = moves(carved(side, seed))
    horizon = 7 * shortest(ways, 0, cells - 1) ** 2 // 10
    table = jnp.asarray(ways)

    def observe(state: Walk) -> Array:
        return jnp.concatenate([hot(state.cell, cells), hot(state.extra, 4)])

    def reset(key: PRNGKeyArray) -> tuple[Walk, Array]:
        del key
        state = Walk(jnp.int32(0), jnp.int32(-1), jnp.int32(0))
        return state, observe(state)

    def step(state: Walk, action: Array, key: PRNGKeyArray) -> Step:
        again = jax.random.bernoulli(key, sticky) & (state.extra >= 0)
        move = jnp.where(again, state.extra, jnp.asarray(action, jnp.int32))
        new = Walk(table[state.cell, move], move, state.time + 1)
        won = new.cell == cells - 1
        return Step(new, observe(new), won.astype(jnp.float32), won, ~won & (new.time >= horizon))

    shape = jax.ShapeDtypeStruct((cells + 4,), bool)
    return Env(Spec(f"late-maze-{side}", shape, 4, horizon=horizon), reset, step)


@record
class Dial:
    """The time, and whether every choice so far was right."""

    time: Array
    right: Array


def lock(digits: int = 3, num_actions: int = 4, wait: int = 40, shown: bool = True) -> Env:
    """Dial a combination, then wait. Late: the last of `wait` idle steps pays 1 if every digit was right, else 0.

    The right action at place i is (i² + 1) mod num_actions. Not `shown`, nothing tells whether the choices so far were
    right, and the observation is no longer Markov, though the time alone is enough to act on.

    Optimal return: 1. Random play: num_actions^−digits. Observation: the time and the bit, all bits.
    """
    digits, num_actions = checks.whole("digits", digits, 1, 100), checks.whole("num_actions", num_actions, 2, 100)
    wait, shown = checks.whole("wait", wait, 1, 10**5), checks.flag("shown", shown)
    horizon = digits + wait

    def observe(state: Dial) -> Array:
        return jnp.concatenate([hot(state.time, horizon + 1), jnp.atleast_1d(state.right)[: int(shown)]])

    def reset(key: PRNGKeyArray) -> tuple[Dial, Array]:
        del key
        state = Dial(jnp.int32(0), jnp.asarray(True))
        return state, observe(state)

    def step(state: Dial, action: Array, key: PRNGKeyArray) -> Step:
        del key
        good = (state.time**2 + 1) % num_actions == jnp.asarray(action, jnp.int32)
        new = Dial(state.time + 1, state.right & (good | (state.time >= digits)))
        over = new.time >= horizon
        return Step(new, observe(new), (over & new.right).astype(jnp.float32), over, jnp.zeros_like(over))

    shape = jax.ShapeDtypeStruct((horizon + 1 + shown,), bool)
    return Env(Spec(f"lock-{digits}", shape, num_actions, horizon=horizon), reset, step)


@record
class Outing:
    """The time, whether it will rain, and the choice: −1 before it, then 0 (left at home) or 1 (taken)."""

    time: Array
    rain: Array
    taken: Array


def umbrella(length: int = 30, noise: float = 1.0) -> Env:
    """One choice at the start: take the umbrella (1) or not (0). Late: the last step pays 1 if that was right, else −1.

    Rain is a fair coin that the observation tells. All actions but the first change nothing, and every step between the
    first and the last pays +noise or −noise, as likely: what the choice earns drowns in what it has no part in. With
    noise 0 nothing is random but the rain.

    Optimal return: 1 in expectation. Random play: 0. Observation: rain, not rain, left, taken, time/length.
    """
    length, noise = checks.whole("length", length, 2, 10**5), checks.number("noise", noise, 0.0, 1e6)

    def observe(state: Outing) -> Array:
        bits = jnp.stack([state.rain == 1, state.rain == 0, state.taken == 0, state.taken == 1])
        return jnp.append(bits.astype(jnp.float32), state.time.astype(jnp.float32) / length)

    def reset(key: PRNGKeyArray) -> tuple[Outing, Array]:
        state = Outing(jnp.int32(0), jax.random.bernoulli(key).astype(jnp.int32), jnp.int32(-1))
        return state, observe(state)

    def step(state: Outing, action: Array, key: PRNGKeyArray) -> Step:
        first = state.time == 0
        new = Outing(state.time + 1, state.rain, jnp.where(first, jnp.asarray(action, jnp.int32), state.taken))
        over = new.time >= length
        luck = jnp.where(first, 0.0, jnp.where(jax.random.bernoulli(key), noise, -noise))
        reward = jnp.where(over, jnp.where(new.taken == new.rain, 1.0, -1.0), luck)
        return Step(new, observe(new), reward.astype(jnp.float32), over, jnp.zeros_like(over))

    shape = jax.ShapeDtypeStruct((5,), jnp.float32)
    return Env(Spec(f"umbrella-{length}", shape, 2, horizon=length), reset, step)


class Known(NamedTuple):
    """Expected undiscounted return of optimal and of uniformly random play."""

    best: float
    random: float


KNOWN = {
    "key-door": Known(1.0, 0.1046),
    "lock": Known(1.0, 4.0**-3),
    "inventory-year": Known(1.0209, -0.6660),
    "maintenance": Known(0.9946, 0.3453),
    "late-maze": Known(1.0, 0.1547),
    "umbrella": Known(1.0, 0.0),
    "harvest": Known(1.0, 0.1924),
}

LATE: dict[str, Callable[..., Env]] = {
    "key-door": key_door,
    "lock": lock,
    "inventory-year": inventory_year,
    "maintenance": maintenance,
    "late-maze": maze,
    "umbrella": umbrella,
    "harvest": harvest,
}
