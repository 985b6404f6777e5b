"""Multi-Room: the layouts hang together and the three kinds of state follow the rules."""

import numpy as np
import pytest

from highway_rl.envs.models.layouts import DOORS, FLOOR, GOAL, MOVES, OUTSIDE, START, WALL
from highway_rl.envs.models.multiroom import ACTIONS, layout_picture, multi_room, random_layout
from highway_rl.envs.models.tables import absorbing_states, reachable_table

KINDS = [(state, door_reward) for state in ACTIONS for door_reward in ("repeat", "once")]


def outline(room):
    """All cells of a room, walls included."""
    rows, columns = range(room.top, room.top + room.height), range(room.left, room.left + room.width)
    return {(row, column) for row in rows for column in columns}


def is_inside(cell, room):
    """Whether the cell lies within the walls of the room."""
    rows, columns = room.interior()
    return rows.start <= cell[0] < rows.stop and columns.start <= cell[1] < columns.stop


def shortest_path(table, distance, end):
    """The (state, action, successor) triples of one shortest path from state 0 to the end."""
    path, state = [], end
    while state:
        sources, actions = np.nonzero(table.successor[..., 0] == state)
        best = np.flatnonzero(distance[sources] == distance[state] - 1)[0]
        path.append((int(sources[best]), int(actions[best]), int(state)))
        state = sources[best]
    return path[::-1]


@pytest.mark.parametrize("room_size", [4, 6, 10])
@pytest.mark.parametrize("rooms", [2, 3, 7, 12, 20])
def test_layout_is_a_chain_of_rooms(rooms, room_size):
    layout = random_layout(rooms=rooms, room_size=room_size, seed=rooms)
    assert len(layout.rooms) == rooms
    assert len(layout.doors) == len(set(layout.doors)) == rooms - 1
    assert not (layout.walls & layout.free).any()
    cells = [outline(room) for room in layout.rooms]
    for i, room in enumerate(layout.rooms):
        assert 4 <= room.height <= room_size
        assert 4 <= room.width <= room_size
        assert layout.free[room.interior()].all()
        for j in range(i + 1, rooms):
            passable = [cell for cell in cells[i] & cells[j] if layout.free[cell]]
            assert passable == ([layout.doors[i]] if j == i + 1 else [])
    interior = sum((room.height - 2) * (room.width - 2) for room in layout.rooms)
    assert layout.free.sum() == interior + rooms - 1
    assert layout.walls.sum() == len(set.union(*cells)) - layout.free.sum()


def test_a_room_is_left_through_another_wall_than_it_was_entered():
    for seed in range(100):
        layout = random_layout(rooms=6, seed=seed)
        for room, entry, leave in zip(layout.rooms[1:-1], layout.doors, layout.doors[1:], strict=False):
            same_row = entry[0] == leave[0] and entry[0] in (room.top, room.top + room.height - 1)
            same_column = entry[1] == leave[1] and entry[1] in (room.left, room.left + room.width - 1)
            assert not same_row
            assert not same_column


def test_all_requested_numbers_of_rooms_fit():
    sizes = {random_layout(rooms=rooms, room_size=size).walls.shape for rooms in (2, 20) for size in range(4, 11)}
    assert (25, 25) in sizes
    assert all(height == width <= 45 for height, width in sizes)
    assert {random_layout(rooms=12, seed=seed).walls.shape for seed in range(5)} == {(25, 25)}


def test_start_and_goal_are_in_the_first_and_last_room():
    for seed in range(20):
        layout = random_layout(rooms=3, seed=seed)
        first, last = layout.rooms[0], layout.rooms[-1]
        for cell, room in ((layout.start, first), (layout.goal, last)):
            assert is_inside(cell, room)
        assert layout.goal[0] in (last.top + 1, last.top + last.height - 2)
        assert layout.goal[1] in (last.left + 1, last.left + last.width - 2)
        to_goal = np.abs(np.subtract(layout.goal, layout.doors[-1])).sum()
        assert to_goal >= (last.height + last.width - 4) / 2
        assert 0 <= layout.heading < len(MOVES)


def test_seeds_decide_everything():
    for goal in ("corner", "random"):
        one, same, other = (multi_room(goal=goal, seed=seed) for seed in (1, 1, 2))
        for left, right in zip(one.table, same.table, strict=True):
            np.testing.assert_array_equal(left, right)
        assert one.layout.rooms == same.layout.rooms != other.layout.rooms
    goals = {random_layout(rooms=2, goal="random", seed=seed).goal for seed in range(10)}
    assert len(goals) > 3


@pytest.mark.parametrize(("state", "door_reward"), KINDS)
def test_table(state, door_reward, check_table, distances):
    model = multi_room(rooms=5, room_size=6, state=state, door_reward=door_reward, seed=3)
    check_table(model.table)
    assert model.table.reward.shape[1] == len(ACTIONS[state])
    assert np.flatnonzero(absorbing_states(model.table)).tolist() == [model.end]
    distance = distances(model.table)
    assert (distance >= 0).all()
    assert (np.diff(distance) >= 0).all(), "breadth-first order"
    enters = (model.table.successor[..., 0] == model.end) & (np.arange(len(distance)) != model.end)[:, None]
    np.testing.assert_array_equal(model.table.reward == 1000, enters)
    assert model.place(model.end).cell == model.layout.goal
    start = model.place(0)
    assert start.cell == model.layout.start
    assert start.heading == (-1 if state == "positions" else model.layout.heading)
    assert start.opened == (0 if state == "doors" else -1)
    assert start.found == (0 if door_reward == "once" else -1)
    places = [model.place(s) for s in range(len(distance)) if s != model.end]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(("state", "door_reward"), KINDS)
def test_each_door_pays_once_on_a_shortest_path(state, door_reward, distances):
    model = multi_room(rooms=6, room_size=7, state=state, door_reward=door_reward, seed=5)
    path = shortest_path(model.table, distances(model.table), model.end)
    rewards = [float(model.table.reward[source, action]) for source, action, _ in path]
    assert rewards[-1] == 1000
    assert [reward for reward in rewards[:-1] if reward] == [0.001] * 5
    paid = [model.place(target).cell for source, action, target in path if model.table.reward[source, action] == 0.001]
    assert paid == list(model.layout.doors)


@pytest.mark.parametrize(("door_reward", "payments"), [("repeat", 2), ("once", 1)])
def test_stepping_back_and_on_again(door_reward, payments):
    model = multi_room(rooms=2, door_reward=door_reward, seed=1)
    table = model.table
    source, action = (int(part[0]) for part in np.nonzero(table.reward == 0.001))
    paid, state = 0, source
    for move in (action, (action + 2) % 4, action):
        paid += table.reward[state, move] == 0.001
        state = table.successor[state, move, 0]
    assert model.place(state).cell == model.layout.doors[0]
    assert paid == payments


@pytest.mark.parametrize("state", ACTIONS)
def test_doors_pay_only_from_their_own_room(state):
    for door_reward in ("repeat", "once"):
        model = multi_room(rooms=3, room_size=5, state=state, door_reward=door_reward)
        sources, actions = np.nonzero(model.table.reward == 0.001)
        for source, action in zip(sources, actions, strict=True):
            target = model.table.successor[source, action, 0]
            door = model.layout.doors.index(model.place(target).cell)
            assert is_inside(model.place(source).cell, model.layout.rooms[door])
            if door_reward == "once":
                assert (model.place(source).found, model.place(target).found) == (door, door + 1)


def test_moves_of_positions():
    model = multi_room(rooms=3, seed=1)
    free, places = model.layout.free, {model.place(s).cell: s for s in range(len(model.cells))}
    for cell, state in places.items():
        for action, move in enumerate(MOVES):
            ahead = cell[0] + move[0], cell[1] + move[1]
            expected = places[ahead] if free[ahead] and state != model.end else state
            assert model.table.successor[state, action, 0] == expected


def test_states_are_numbered_by_parent_and_action():
    def step(codes):
        return np.zeros((codes.size, 2)), np.stack([codes * 0 + 4, codes // 2], 1)

    table, codes = reachable_table(step, 5, 6)
    assert codes.tolist() == [5, 4, 2, 1, 0]
    assert table.successor[..., 0].tolist() == [[1, 2], [1, 2], [1, 3], [1, 4], [1, 4]]


def test_turns_forward_and_toggle():
    model = multi_room(rooms=3, room_size=5, state="doors", seed=2)
    left, right, forward, toggle = range(4)
    doors = model.layout.doors
    successor = model.table.successor[..., 0]
    for state in range(len(successor)):
        if state == model.end:
            continue
        place = model.place(state)
        assert successor[successor[state, left], right] == state
        assert model.place(successor[state, right]) == place._replace(heading=(place.heading + 1) % 4)
        ahead = tuple(np.add(place.cell, MOVES[place.heading]).tolist())
        faces_closed = place.opened < len(doors) and ahead == doors[place.opened]
        assert model.place(successor[state, toggle]) == place._replace(opened=place.opened + faces_closed)
        blocked = faces_closed or not model.layout.free[ahead]
        if ahead != model.layout.goal:
            expected = place if blocked else place._replace(cell=ahead)
            assert model.place(successor[state, forward]) == expected


def test_kinds_of_state_agree_on_the_way(distances):
    lengths = {}
    for state in ACTIONS:
        model = multi_room(rooms=4, room_size=6, state=state, seed=4)
        lengths[state] = distances(model.table)[model.end]
    assert lengths["positions"] < lengths["headings"]
    assert lengths["doors"] == lengths["headings"] + 3, "one toggle a door"


@pytest.mark.long
@pytest.mark.parametrize(("rooms", "cells", "steps"), [(2, 48, 9), (4, 92, 22), (6, 132, 34), (8, 169, 49)])
def test_sizes_are_those_of_gym_minigrid(rooms, cells, steps, distances):
    """Means over gym-minigrid's own layouts, room size 10 and a random goal."""
    models = [multi_room(rooms=rooms, goal="random", seed=seed) for seed in range(30)]
    assert np.mean([model.layout.free.sum() for model in models]) == pytest.approx(cells, rel=0.15)
    assert np.mean([distances(model.table)[model.end] for model in models]) == pytest.approx(steps, rel=0.2)


@pytest.mark.parametrize("rooms", [2, 7, 12])
def test_smallest_rooms_have_four_cells(rooms):
    assert random_layout(rooms=rooms, room_size=4).free.sum() == 5 * rooms - 1
    assert len(multi_room(rooms=rooms, room_size=4).table.reward) == 5 * rooms - 1


def test_rewards_are_options():
    table = multi_room(rooms=2, goal_reward=7.0, exit_reward=-2.0).table
    assert set(np.unique(table.reward)) == {-2.0, 0.0, 7.0}


def test_picture():
    layout = random_layout(rooms=8, seed=6)
    picture = layout_picture(layout, cell_size=4)
    assert picture.dtype == np.uint8
    assert picture.shape == (100, 100, 3)
    corner = picture[::4, ::4]
    doors = tuple(np.transpose(layout.doors))
    assert (corner[layout.walls] == WALL).all()
    assert (corner[~layout.walls & ~layout.free] == OUTSIDE).all()
    assert (corner[layout.start] == FLOOR).all()
    assert (picture[1::4, 1::4][layout.start] == START).all()
    assert (corner[layout.goal] == GOAL).all()
    assert {tuple(colour) for colour in corner[doors].tolist()} <= set(DOORS)
    assert (corner[doors][1:] != corner[doors][:-1]).any(1).all()
    assert (layout_picture(layout, cell_size=1)[layout.start] == START).all()
    assert WALL[0] == WALL[1] == WALL[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rooms": 1}, "rooms=1: give a whole number from 2 to 50"),
        ({"room_size": 3}, "room_size=3: give a whole number from 4 to 20"),
        ({"state": "cells"}, "state='cells': give one of positions, headings, doors"),
        ({"door_reward": "never"}, "door_reward='never': give one of repeat, once"),
        ({"goal": "middle"}, "goal='middle': give one of corner, random"),
        ({"seed": -1}, "seed=-1: give a whole number from 0 to 9223372036854775807"),
        ({"goal_reward": float("nan")}, "goal_reward=nan: give a number from -1e+30 to 1e+30"),
        ({"exit_reward": float("inf")}, "exit_reward=inf: give a number from -1e+30 to 1e+30"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=": give ") as error:
        multi_room(**options)
    assert str(error.value) == message
