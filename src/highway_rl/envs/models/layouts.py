"""Layouts of rooms chained through doors, drawn at random in the manner of gym-minigrid's MultiRoom."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, UInt8

from highway_rl import checks
from highway_rl.envs.models.tables import seeded

Cell = tuple[int, int]

MOVES: tuple[Cell, ...] = ((0, 1), (1, 0), (0, -1), (-1, 0))
"""(row, column) steps of the headings right, down, left, up: turning right adds one."""

SMALLEST_GRID, SMALLEST_ROOM = 25, 4
TRIES_PER_ROOM, TRIES_PER_GRID = 8, 1500

OUTSIDE, FLOOR, WALL = (255, 255, 255), (235, 235, 235), (100, 100, 100)
START, GOAL = (40, 90, 220), (40, 170, 60)
DOORS = ((220, 50, 50), (240, 200, 40), (150, 60, 190), (240, 140, 30), (30, 180, 200))


class Room(NamedTuple):
    """A rectangle of cells, walls included."""

    top: int
    left: int
    height: int
    width: int

    def interior(self) -> tuple[slice, slice]:
        """The cells inside the walls, as an index into a grid."""
        return slice(self.top + 1, self.top + self.height - 1), slice(self.left + 1, self.left + self.width - 1)

    def overlaps(self, other: Room) -> bool:
        """Whether the two rectangles share a cell."""
        return (
            self.top < other.top + other.height
            and other.top < self.top + self.height
            and self.left < other.left + other.width
            and other.left < self.left + self.width
        )


class Layout(NamedTuple):
    """Rooms 0, 1, … where door i joins rooms i and i + 1; one starts in the first and the goal is in the last.

    `walls` marks the walls, `free` the cells one can stand on (doors included); cells outside all rooms are neither.
    """

    walls: Bool[np.ndarray, "h w"]
    free: Bool[np.ndarray, "h w"]
    rooms: tuple[Room, ...]
    doors: tuple[Cell, ...]
    start: Cell
    heading: int
    goal: Cell


def random_layout(
    *, rooms: int = 4, room_size: int = 10, min_room_size: int = 4, goal: str = "corner", seed: int = 0
) -> Layout:
    """A layout with exactly the requested number of rooms.

    The sides of a room, walls included, are uniform in {min_room_size, …, room_size}; the next room hangs on one of
    the three walls without the entry and shares that wall, with the door at a uniform place of it. Chains that get
    stuck are drawn again. The grid is 25 × 25; each time many chains in a row were stuck it grows by a fifth.
    The start is a uniform cell and heading. The goal is the corner of the last room farthest from its
    door (`goal="corner"`) or a uniform cell of it (`"random"`).
    """
    checks.whole("rooms", rooms, 2, 50)
    checks.whole("room_size", room_size, SMALLEST_ROOM, 20)
    checks.whole("min_room_size", min_room_size, SMALLEST_ROOM, room_size)
    checks.choice("goal", goal, ("corner", "random"))
    rng = seeded(seed)
    side, placed, doors = _chain_of_rooms(rng, rooms, (min_room_size, room_size))
    walls, free = np.zeros((2, side, side), bool)
    for room in placed:
        walls[room.top : room.top + room.height, room.left : room.left + room.width] = True
    for room in placed:
        free[room.interior()] = True
    free[tuple(np.transpose(doors))] = True
    end = _far_corner(placed[-1], doors[-1]) if goal == "corner" else _random_cell(rng, placed[-1])
    start, heading = _random_cell(rng, placed[0]), int(rng.integers(4))
    return Layout(walls & ~free, free, tuple(placed), tuple(doors), start, heading, end)


def _chain_of_rooms(rng: np.random.Generator, rooms: int, sides: tuple[int, int]) -> tuple[int, list[Room], list[Cell]]:
    side, tries = SMALLEST_GRID, 0
    while True:
        placed, doors = _try_chain(rng, rooms, sides, side)
        if len(placed) == rooms:
            return side, placed, doors
        tries += 1
        if tries % TRIES_PER_GRID == 0:
            side += side // 5


def _try_chain(
    rng: np.random.Generator, rooms: int, sides: tuple[int, int], side: int
) -> tuple[list[Room], list[Cell]]:
    """Places one room after the other until all stand or every try for the next one failed."""
    top, left = rng.integers(0, side - 2, 2).tolist()
    height, width = rng.integers(sides[0], sides[1] + 1, 2).tolist()
    placed, entry = [Room(top, left, height, width)], 2
    doors: list[Cell] = []
    if not _fits(placed[0], [], side):
        return [], []
    while len(placed) < rooms:
        for draw in rng.random((TRIES_PER_ROOM, 5)).tolist():
            wall = (entry + 1 + int(3 * draw[0])) % 4
            room, door = _next_room(placed[-1], wall, sides, draw[1:])
            if _fits(room, placed[:-1], side):
                break
        else:
            return placed, doors
        placed.append(room)
        doors.append(door)
        entry = (wall + 2) % 4
    return placed, doors


def _next_room(last: Room, wall: int, sides: tuple[int, int], draw: list[float]) -> tuple[Room, Cell]:
    """A room of random sides behind a door in the given wall (a heading) of the last room; draws are in [0, 1)."""
    tall, wide, along, beside = draw
    fewest, sizes = sides[0], sides[1] - sides[0] + 1
    height, width = fewest + int(sizes * tall), fewest + int(sizes * wide)
    row_step, column_step = MOVES[wall]
    if row_step:
        row = last.top + (last.height - 1 if row_step > 0 else 0)
        column = last.left + 1 + int((last.width - 2) * along)
        top = row if row_step > 0 else row - height + 1
        left = column - 1 - int((width - 2) * beside)
    else:
        row = last.top + 1 + int((last.height - 2) * along)
        column = last.left + (last.width - 1 if column_step > 0 else 0)
        top = row - 1 - int((height - 2) * beside)
        left = column if column_step > 0 else column - width + 1
    return Room(top, left, height, width), (row, column)


def _fits(room: Room, others: list[Room], side: int) -> bool:
    top, left, height, width = room
    if top < 0 or left < 0 or top + height > side or left + width > side:
        return False
    return not any(room.overlaps(other) for other in others)


def _random_cell(rng: np.random.Generator, room: Room) -> Cell:
    row, column = rng.integers(1, (room.height - 1, room.width - 1)).tolist()
    return room.top + row, room.left + column


def _far_corner(room: Room, door: Cell) -> Cell:
    rows, columns = room.interior()
    corners = [(row, column) for row in (rows.start, rows.stop - 1) for column in (columns.start, columns.stop - 1)]
    return max(corners, key=lambda cell: abs(cell[0] - door[0]) + abs(cell[1] - door[1]))


def layout_picture(layout: Layout, *, cell_size: int = 8) -> UInt8[np.ndarray, "y x 3"]:
    """An RGB picture: walls grey, each door in another colour than the one before, start blue, goal green.

    The start is marked by a square inside its cell; every other cell has one colour.
    """
    checks.whole("cell_size", cell_size, 1, 256)
    colours = np.full((*layout.walls.shape, 3), OUTSIDE, np.uint8)
    colours[layout.free] = FLOOR
    colours[layout.walls] = WALL
    for number, door in enumerate(layout.doors):
        colours[door] = DOORS[number % len(DOORS)]
    colours[layout.goal] = GOAL
    picture = colours.repeat(cell_size, 0).repeat(cell_size, 1)
    top, left = (cell_size * place for place in layout.start)
    margin = cell_size // 4
    inside = slice(margin, cell_size - margin)
    picture[top : top + cell_size, left : left + cell_size][inside, inside] = START
    return picture
