"""Multi-Room: find the way through a chain of rooms, as an exact table in three sizes of state.

Paper: the model-based experiment; reward 1000 at the goal and 0.001 for finding the exit door of a room. The paper
leaves the state, the room size and the meaning of "finding" open, hence the options.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from highway_rl import checks
from highway_rl.envs.models.layouts import MOVES, Cell, Layout, Room, layout_picture, random_layout
from highway_rl.envs.models.tables import Outcome, Table, reachable_table

__all__ = ["ACTIONS", "Layout", "MultiRoom", "Place", "Room", "layout_picture", "multi_room", "random_layout"]

ACTIONS = {
    "positions": ("right", "down", "left", "up"),
    "headings": ("turn left", "turn right", "forward"),
    "doors": ("turn left", "turn right", "forward", "toggle"),
}
"""The names of the actions by kind of state."""


class Place(NamedTuple):
    """What one state means; a part that the state does not hold is -1."""

    cell: Cell
    heading: int
    opened: int
    found: int


class MultiRoom(NamedTuple):
    """A table, the layout it was made from, and the meaning of its states.

    State 0 is the start, `end` the absorbing state entered with the goal cell; its place has the goal's cell.
    """

    table: Table
    layout: Layout
    end: int
    cells: Int[np.ndarray, "s 2"]
    headings: Int[np.ndarray, " s"]
    opened: Int[np.ndarray, " s"]
    found: Int[np.ndarray, " s"]

    def place(self, state: int | np.integer) -> Place:
        """The cell, heading and numbers of doors opened and found that the state stands for."""
        row, column = self.cells[state].tolist()
        return Place((row, column), int(self.headings[state]), int(self.opened[state]), int(self.found[state]))


def multi_room(
    *,
    rooms: int = 4,
    room_size: int = 10,
    min_room_size: int = 4,
    state: str = "positions",
    door_reward: str = "repeat",
    goal: str = "corner",
    goal_reward: float = 1000.0,
    exit_reward: float = 0.001,
    seed: int = 0,
) -> MultiRoom:
    """The deterministic model of all states reachable from the start of a random layout.

        r(s, a) = goal_reward                 when a enters the goal cell; the successor is the absorbing end
                  exit_reward · 1{counted}    when a enters, from room i, the door to room i + 1
                  0                           otherwise

    state        "positions": the cell; four moves, doors stand open, a move against a wall stays
                 "headings": cell × heading; turn left, turn right, forward
                 "doors": × number of doors opened; all start closed, a closed door blocks, `toggle` in front of it
                 opens it for good
    door_reward  "repeat": every entry counts; "once": the first entry of each door, the state then also holds
                 the number of doors found so far

    The rooms form a chain, so door i is opened, and found, before door i + 1: a number says which.
    Rooms, their sizes, goal and seed are those of `random_layout`.
    """
    checks.choice("state", state, tuple(ACTIONS))
    checks.choice("door_reward", door_reward, ("repeat", "once"))
    goal_reward, exit_reward = checks.number("goal_reward", goal_reward), checks.number("exit_reward", exit_reward)
    layout = random_layout(rooms=rooms, room_size=room_size, min_room_size=min_room_size, goal=goal, seed=seed)
    rules = _Rules(_floor_map(layout), state, door_reward, goal_reward, exit_reward, _shape(layout, state, door_reward))
    heading = 0 if state == "positions" else layout.heading
    start = np.ravel_multi_index((rules.floor.number[layout.start], heading, 0, 0), rules.shape)
    table, codes = reachable_table(rules.step, int(start), rules.end + 1)

    ends = codes == rules.end
    cell, *parts = np.unravel_index(np.where(ends, 0, codes), rules.shape)
    headings, opened, found = (
        np.where(ends | (size == 1), -1, part) for part, size in zip(parts, rules.shape[1:], strict=True)
    )
    cells = np.where(ends[:, None], layout.goal, rules.floor.cells[cell])
    return MultiRoom(table, layout, int(ends.argmax()), cells, headings, opened, found)


class _FloorMap(NamedTuple):
    """The free cells in reading order with their neighbours by heading (a wall: the cell itself).

    `door` is the number of the door in the cell (-1: none), `exits` whether a move enters the door ahead of its room.
    """

    cells: Int[np.ndarray, "c 2"]
    number: Int[np.ndarray, "h w"]
    neighbour: Int[np.ndarray, "c 4"]
    door: Int[np.ndarray, " c"]
    exits: Bool[np.ndarray, "c 4"]
    goal: int


def _floor_map(layout: Layout) -> _FloorMap:
    cells = np.argwhere(layout.free)
    number = np.full(layout.free.shape, -1)
    number[layout.free] = np.arange(len(cells))
    ahead = number[tuple((cells[:, None] + MOVES).transpose(2, 0, 1))]
    neighbour = np.where(ahead >= 0, ahead, np.arange(len(cells))[:, None])
    door, room = np.full((2, len(cells)), -1)
    door[number[tuple(np.transpose(layout.doors))]] = np.arange(len(layout.doors))
    for index, rectangle in enumerate(layout.rooms):
        room[number[rectangle.interior()]] = index
    exits = (door[neighbour] >= 0) & (door[neighbour] == room[:, None])
    return _FloorMap(cells, number, neighbour, door, exits, int(number[layout.goal]))


def _shape(layout: Layout, state: str, door_reward: str) -> tuple[int, int, int, int]:
    """How many values each part of the state takes: cell, heading, doors opened, doors found."""
    headings = 1 if state == "positions" else len(MOVES)
    opened = len(layout.rooms) if state == "doors" else 1
    found = len(layout.rooms) if door_reward == "once" else 1
    return int(layout.free.sum()), headings, opened, found


class _Rules(NamedTuple):
    """What the actions do, on states coded as one number (`numpy.ravel_multi_index`); the last code is the end."""

    floor: _FloorMap
    state: str
    door_reward: str
    goal_reward: float
    exit_reward: float
    shape: tuple[int, int, int, int]

    @property
    def end(self) -> int:
        return int(np.prod(self.shape))

    def step(self, codes: Int[np.ndarray, " n"]) -> Outcome:
        """The reward and the successor code of every action."""
        ends = codes == self.end
        cell, heading, opened, found = np.unravel_index(np.where(ends, 0, codes), self.shape)
        if self.state == "positions":
            outcomes = [self._move(cell, heading, direction, opened, found) for direction in range(len(MOVES))]
        else:
            outcomes = [self._stay(cell, (heading + turn) % len(MOVES), opened, found) for turn in (-1, 1)]
            outcomes.append(self._move(cell, heading, heading, opened, found))
        if self.state == "doors":
            door = self.floor.door[self.floor.neighbour[cell, heading]]
            outcomes.append(self._stay(cell, heading, opened + (door == opened), found))
        reward, successor = (np.stack(part, 1) for part in zip(*outcomes, strict=True))
        return np.where(ends[:, None], 0.0, reward), np.where(ends[:, None], self.end, successor)

    def _move(
        self,
        cell: Int[np.ndarray, " n"],
        heading: Int[np.ndarray, " n"],
        direction: int | Int[np.ndarray, " n"],
        opened: Int[np.ndarray, " n"],
        found: Int[np.ndarray, " n"],
    ) -> tuple[Float64[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """One cell ahead, unless a wall or a closed door is there."""
        target = self.floor.neighbour[cell, direction]
        door, counted = self.floor.door[target], self.floor.exits[cell, direction]
        if self.state == "doors":
            closed = door >= opened
            target, counted = np.where(closed, cell, target), counted & ~closed
        if self.door_reward == "once":
            counted = counted & (door == found)
            found = found + counted
        at_goal = target == self.floor.goal
        reward = np.where(at_goal, self.goal_reward, self.exit_reward * counted)
        _, successor = self._stay(target, heading, opened, found)
        return reward, np.where(at_goal, self.end, successor)

    def _stay(self, *parts: Int[np.ndarray, " n"]) -> tuple[Float64[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """No reward, and the code of the state with the given parts."""
        return np.zeros(len(parts[0])), np.ravel_multi_index(parts, self.shape)
