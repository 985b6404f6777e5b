"""The late tasks against their rules written again, in plain Python: every state, every outcome, backward induction."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import cache, lru_cache
from math import comb
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.envs.tasks import late
from highway_rl.types import Env

Outcomes = list[tuple[float, tuple, float]]  # probability, next place (() where it is over), what it earns
MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]
GRIDS = ("key-door", "late-maze")
NAMES = list(late.LATE)


class Rules(NamedTuple):
    """A task told again: where it starts, what may follow, and where a state of the environment is."""

    starts: list[tuple[float, tuple]]
    follow: Callable[[tuple, int], Outcomes]
    fields: tuple[str, ...]


def find(picture: list[str], what: str) -> tuple[int, int]:
    return next((r, line.index(what)) for r, line in enumerate(picture) if what in line)


def beside(picture: list[str], cell: tuple[int, int], action: int) -> tuple[int, int]:
    row, column = cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]
    inside = 0 <= row < len(picture) and 0 <= column < len(picture)
    return (row, column) if inside and picture[row][column] != "#" else cell


KEY_DOOR = ["..k#..", "...#..", "...#..", "..sd..", "...#..", "...#g."]
MAZE = ["s#.....", ".#.#.#.", ".#.#.#.", ".###.##", "...#...", "##.###.", "......g"]


def key_door_rules() -> Rules:
    side = len(KEY_DOOR)

    def follow(place: tuple, action: int) -> Outcomes:
        at, phase = divmod(place[0], side), place[1]
        to = beside(KEY_DOOR, at, action)
        if KEY_DOOR[to[0]][to[1]] == "d":
            to, phase = (at, 0) if phase == 0 else (to, 2)
        if KEY_DOOR[to[0]][to[1]] == "k":
            phase = max(phase, 1)
        won = KEY_DOOR[to[0]][to[1]] == "g"
        return [(1.0, () if won else (to[0] * side + to[1], phase), float(won))]

    row, column = find(KEY_DOOR, "s")
    return Rules([(1.0, (row * side + column, 0))], follow, ("cell", "extra"))


def maze_rules() -> Rules:
    side = len(MAZE)

    def follow(place: tuple, action: int) -> Outcomes:
        chances = [(1.0, action)] if place[1] < 0 else [(0.9, action), (0.1, place[1])]
        out = []
        for chance, move in chances:
            row, column = beside(MAZE, divmod(place[0], side), move)
            won = MAZE[row][column] == "g"
            out.append((chance, () if won else (row * side + column, move), float(won)))
        return out

    return Rules([(1.0, (0, -1))], follow, ("cell", "extra"))


def lock_rules() -> Rules:
    code = [1, 2, 1]

    def follow(place: tuple, action: int) -> Outcomes:
        time, right = place
        right = right and (time >= len(code) or action == code[time])
        return [(1.0, (time + 1, right), float(right and time + 1 == len(code) + 40))]

    return Rules([(1.0, (0, True))], follow, ("time", "right"))


def umbrella_rules() -> Rules:
    def follow(place: tuple, action: int) -> Outcomes:
        time, rain, taken = place
        new = (time + 1, rain, action if time == 0 else taken)
        if time == 29:
            return [(1.0, new, 1.0 if taken == rain else -1.0)]
        return [(0.5, new, luck) for luck in ((0.0, 0.0) if time == 0 else (1.0, -1.0))]

    return Rules([(0.5, (0, rain, -1)) for rain in (0, 1)], follow, ("time", "rain", "taken"))


def inventory_rules() -> Rules:
    def follow(place: tuple, action: int) -> Outcomes:
        have, out = min(place[0] + action, 8), []
        for demand in range(5):
            sold = min(have, demand)
            profit = 5 * sold - 2 * action - (action > 0) - 0.25 * (have - sold)
            out.append((comb(4, demand) * 0.25**demand * 0.75 ** (4 - demand), (have - sold,), profit / 52))
        return out

    return Rules([(1.0, (0,))], follow, ("stock",))


def maintenance_rules() -> Rules:
    def follow(place: tuple, action: int) -> Outcomes:
        wear, still = place
        if still:
            return [(1.0, (wear, still - 1), 0.0)]
        if action == 0:
            fails, made = 0.08 * wear, 1 / 42
            grown = [(0.5 * (1 - fails), (min(w, 5), 0), made) for w in (wear, wear + 1)]
            return [(fails, (wear, 4), 0.0), *grown]
        return [(1.0, (max(wear - 2, 0), 0) if action == 1 else (0, 1), 0.0)]

    return Rules([(1.0, (0, 0))], follow, ("wear", "still"))


def harvest_rules() -> Rules:
    def follow(place: tuple, action: int) -> Outcomes:
        return [(1.0, (place[0] + action,), 0.0 if action else 1.3 ** place[0] / (4 * 1.3**16))]

    return Rules([(1.0, (0,))], follow, ("sown",))


RULES = dict(
    zip(
        ("key-door", "lock", "inventory-year", "maintenance", "late-maze", "umbrella", "harvest"),
        (key_door_rules, lock_rules, inventory_rules, maintenance_rules, maze_rules, umbrella_rules, harvest_rules),
        strict=True,
    )
)


@lru_cache
def solved(name: str) -> tuple[float, float, Callable[[tuple, int], int]]:
    """Optimal and random return of the rules, and the optimal action at a place with so many steps left."""
    spec, rules = late.LATE[name]().spec, RULES[name]()
    actions = range(spec.num_actions)

    @cache
    def values(place: tuple, left: int) -> tuple[float, float, int]:
        if left == 0 or place == ():
            return 0.0, 0.0, 0
        best, mean = np.zeros(spec.num_actions), np.zeros(spec.num_actions)
        for action in actions:
            for chance, new, earned in rules.follow(place, action):
                then = values(new, left - 1)
                best[action] += chance * (earned + then[0])
                mean[action] += chance * (earned + then[1])
        return float(best.max()), float(mean.mean()), int(best.argmax())

    totals = [sum(p * values(place, spec.horizon)[i] for p, place in rules.starts) for i in (0, 1)]
    return totals[0], totals[1], lambda place, left: values(place, left)[2]


class Played(NamedTuple):
    """What many episodes saw, [time, episode]; `alive` before each step."""

    reward: np.ndarray
    alive: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def returns(self) -> np.ndarray:
        return (self.reward * self.alive).sum(0)


def play(env: Env, count: int, seed: int, act: Callable[[Any, int, np.ndarray], np.ndarray] | None = None) -> Played:
    """Episodes up to the horizon: act(state, steps left, alive), or uniformly random."""
    draw = np.random.default_rng(seed)
    key = jax.random.key(seed)
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(key, count))
    step = jax.jit(jax.vmap(env.step))
    alive, rows = np.ones(count, bool), []
    for time in range(env.spec.horizon):
        action = act(state, env.spec.horizon - time, alive) if act else draw.integers(env.spec.num_actions, size=count)
        out = step(state, jnp.asarray(action, jnp.int32), jax.random.split(jax.random.fold_in(key, time), count))
        rows.append((np.asarray(out.reward, float), alive, np.asarray(out.terminated), np.asarray(out.truncated)))
        state, alive = out.state, alive & ~rows[-1][2] & ~rows[-1][3]
    return Played(*(np.array(column) for column in zip(*rows, strict=True)))


@lru_cache
def random_play(name: str) -> Played:
    return play(late.LATE[name](), 3000, seed=1)


@pytest.mark.parametrize("name", NAMES)
def test_the_known_returns_are_those_of_the_rules(name: str) -> None:
    best, mean, _ = solved(name)
    assert late.KNOWN[name] == pytest.approx((best, mean), abs=1e-4)
    assert abs(best - 1) < 0.05
    assert best - mean > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_random_play_gets_what_the_rules_say(name: str) -> None:
    returns = random_play(name).returns
    assert abs(returns.mean() - solved(name)[1]) < 4 * returns.std() / np.sqrt(returns.size)


@pytest.mark.parametrize("name", NAMES)
def test_the_optimal_policy_of_the_rules_earns_the_optimum(name: str) -> None:
    best, _, choose = solved(name)

    def act(state: Any, left: int, alive: np.ndarray) -> np.ndarray:
        places = np.stack([np.asarray(getattr(state, field)) for field in RULES[name]().fields], -1).tolist()
        return np.array([choose(tuple(place), left) if on else 0 for place, on in zip(places, alive, strict=True)])

    returns = play(late.LATE[name](), 1000, 2, act).returns
    assert abs(returns.mean() - best) < 4 * returns.std() / np.sqrt(returns.size) + 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_paid_before_the_end_and_every_episode_ends_once(name: str) -> None:
    seen = random_play(name)
    ends = (seen.terminated | seen.truncated) & seen.alive
    assert (ends.sum(0) == 1).all()
    assert not (seen.terminated & seen.truncated).any()
    if name != "umbrella":
        assert (seen.reward[seen.alive & ~ends] == 0).all()
    if name in GRIDS:
        assert (seen.reward == 1)[ends & seen.terminated].all()
        assert (seen.reward == 0)[ends & seen.truncated].all()
        assert not ends[:-1][seen.truncated[:-1] & seen.alive[:-1]].any()  # cut at the horizon, not before
        assert seen.terminated[:-1].any()
        assert seen.truncated[-1].any()
    else:
        assert ends[-1].all()
        assert not seen.truncated.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wide", [False, True])
def test_types_and_shapes_in_32_and_64_bits(name: str, wide: bool) -> None:
    with jax.enable_x64(wide):
        env = late.LATE[name]()
        keys = jax.random.split(jax.random.key(0), 3)
        state, obs = jax.vmap(env.reset)(keys)
        out = jax.jit(jax.vmap(env.step))(state, jnp.arange(3) % env.spec.num_actions, keys)
        shape, dtype = env.spec.observation.shape, env.spec.observation.dtype
        assert obs.shape == out.obs.shape == (3, *shape)
        assert obs.dtype == out.obs.dtype == dtype
        assert (out.reward.dtype, out.terminated.dtype, out.truncated.dtype) == (jnp.float32, jnp.bool_, jnp.bool_)
        assert out.reward.shape == out.terminated.shape == out.truncated.shape == (3,)
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(out.state), strict=True):
            assert (old.dtype, old.shape) == (new.dtype, new.shape)


@pytest.mark.parametrize("name", NAMES)
def test_the_key_decides_everything_random(name: str) -> None:
    env = late.LATE[name]()

    @jax.jit
    def seen(key: jax.Array) -> jax.Array:
        first, then = jax.random.split(key)
        state, obs = env.reset(first)

        def body(state: Any, time: jax.Array) -> tuple[Any, jax.Array]:
            out = env.step(state, time % env.spec.num_actions, jax.random.fold_in(then, time))
            return out.state, jnp.append(out.obs.astype(jnp.float32), out.reward)

        return jnp.append(jax.lax.scan(body, state, jnp.arange(20, dtype=jnp.int32))[1], obs.astype(jnp.float32))

    first, again, other = (seen(jax.random.key(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) == (name in ("key-door", "lock", "harvest"))


@pytest.mark.parametrize("name", GRIDS)
def test_a_goal_on_the_last_step_is_a_goal(name: str) -> None:
    env = late.LATE[name]()
    state, _ = env.reset(jax.random.key(0))
    below = {"key-door": 4 * 6 + 4, "late-maze": 5 * 7 + 6}[name]  # the goal lies below
    state = dataclasses.replace(state, cell=jnp.int32(below), time=jnp.int32(env.spec.horizon - 1))
    won, cut = (env.step(state, jnp.int32(action), jax.random.key(0)) for action in (2, 0))
    assert (float(won.reward), bool(won.terminated), bool(won.truncated)) == (1.0, True, False)
    assert (float(cut.reward), bool(cut.terminated), bool(cut.truncated)) == (0.0, False, True)


@pytest.mark.parametrize("side", [4, 5, 6, 9])
def test_the_shortest_way_through_the_door(side: int) -> None:
    env = late.key_door(side)
    state, _ = env.reset(jax.random.key(0))
    cells, extras = (jnp.asarray(part.ravel(), jnp.int32) for part in np.mgrid[: side**2, :3])
    every = late.Walk(cells, extras, jnp.zeros_like(cells))
    step = jax.jit(jax.vmap(jax.vmap(env.step, (None, 0, None)), (0, None, None)))
    out = step(every, jnp.arange(4, dtype=jnp.int32), jax.random.key(0))
    there, wins = np.asarray(out.state.cell * 3 + out.state.extra), np.asarray(out.terminated)
    seen, count = {int(state.cell * 3 + state.extra)}, 1
    while not wins[list(seen)].any():
        seen, count = seen | set(there[list(seen)].ravel().tolist()), count + 1
    assert count == side + side // 2 + 1


def test_the_key_and_the_door_are_seen() -> None:
    env = late.key_door()
    state, obs = env.reset(jax.random.key(0))
    step, seen = jax.jit(env.step), [obs]
    for action in [1, 0, 0, 0, 2, 2, 2, 1, 1]:  # the door is shut; then the key, back, into the door and through it
        out = step(state, jnp.int32(action), jax.random.key(0))
        state, seen = out.state, [*seen, out.obs]
    bits = [tuple(obs[-2:].tolist()) for obs in seen]
    assert bits == [(False, False)] * 4 + [(True, False)] * 4 + [(False, True)] * 2
    assert [int(obs[:-2].argmax()) for obs in seen] == [20, 20, 14, 8, 2, 8, 14, 20, 21, 22]
    assert all(obs[:-2].sum() == 1 for obs in seen)


def test_the_default_maze_is_the_one_drawn_here_and_others_are_trees_too() -> None:
    np.testing.assert_array_equal(late.carved(7, 5), [[cell != "#" for cell in line] for line in MAZE])
    assert solved("late-maze")[0] > 1 - 1e-6
    for side, seed in itertools.product((3, 9, 15), range(3)):
        free, rooms = late.carved(side, seed), (side // 2 + 1) ** 2
        assert free[::2, ::2].all()
        assert free.sum() == 2 * rooms - 1  # connected, as it was dug, and with one link fewer than rooms: a tree


@pytest.mark.parametrize(("side", "seed"), [(5, 0), (7, 1)])
def test_random_play_arrives_about_as_often_in_other_mazes(side: int, seed: int) -> None:
    assert 0.1 < play(late.maze(side, seed=seed), 1500, 5).returns.mean() < 0.25


def test_a_maze_without_stickiness_obeys_and_with_it_repeats() -> None:
    keys = jax.random.split(jax.random.key(0), 2000)
    for sticky in (0.0, 0.3):
        env = late.maze(sticky=sticky)
        state = late.Walk(jnp.int32(0), jnp.int32(1), jnp.int32(1))  # right, into the wall, was the last move
        out = jax.vmap(lambda key, env=env, state=state: env.step(state, jnp.int32(2), key))(keys)
        assert abs(float((out.state.extra == 1).mean(dtype=float)) - sticky) < 0.04 * (sticky > 0) + 1e-9
        np.testing.assert_array_equal(out.state.cell == 7, out.state.extra == 2)


@pytest.mark.parametrize(("digits", "actions", "wait"), [(1, 2, 1), (2, 3, 2), (4, 4, 1)])
def test_one_combination_opens_the_lock(digits: int, actions: int, wait: int) -> None:
    env = late.lock(digits, actions, wait)
    dialled = np.array(list(itertools.product(range(actions), repeat=digits)))
    seen = play(env, len(dialled), 0, lambda _, left, __: dialled[:, min(digits + wait - left, digits - 1)])
    assert dialled[seen.returns == 1].tolist() == [[(i * i + 1) % actions for i in range(digits)]]
    assert set(seen.returns) <= {0.0, 1.0}


def test_the_bit_of_the_lock_can_be_hidden() -> None:
    key = jax.random.key(0)
    for shown in (True, False):
        env = late.lock(2, 2, 3, shown)
        state, obs = env.reset(key)
        seen = [jnp.stack([env.step(state, jnp.int32(a), key).obs for a in (0, 1)])]
        assert obs.shape == env.spec.observation.shape == (6 + shown,)
        np.testing.assert_array_equal(seen[0][:, :6], [np.arange(6) == 1] * 2)
        assert seen[0][:, 6:].tolist() == ([[False], [True]] if shown else [[], []])


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_umbrella_pays_noise_between_and_the_choice_at_the_end(noise: float) -> None:
    env = late.umbrella(6, noise)
    seen = play(env, 2000, 6, lambda state, *_: np.asarray(state.rain) if noise else 1 - np.asarray(state.rain))
    assert (seen.reward[0] == 0).all()
    assert (np.abs(seen.reward[1:-1]) == noise).all()
    assert (seen.reward[-1] == (1 if noise else -1)).all()
    assert (np.abs(seen.reward[1:-1].mean(1)) <= 4 * noise / np.sqrt(2000)).all()


def test_of_all_plans_one_harvest_is_best() -> None:
    seasons = 10
    plans = np.array(list(itertools.product((0, 1), repeat=seasons)))
    returns = play(late.harvest(seasons), len(plans), 0, lambda _, left, __: plans[:, seasons - left]).returns
    order = np.argsort(returns)
    assert plans[order[-1]].tolist() == [1] * 6 + [0] * 4
    assert returns[order[-1]] == pytest.approx(1, abs=1e-5)
    assert returns[order[-2]] < 0.99
    assert returns.mean() == pytest.approx(0.5 * (1.15**seasons - 1) / 0.15 / (4 * 1.3**6), abs=1e-5)


def test_the_books_are_what_is_paid() -> None:
    for env in (late.inventory_year(5), late.maintenance(9), late.harvest(6)):
        state, _ = env.reset(jax.random.key(0))
        step = jax.jit(env.step)
        for time in range(env.spec.horizon):
            out = step(state, jnp.int32(1 if time == 0 else 0), jax.random.key(time))
            state = out.state
        assert float(out.obs[-1]) == float(out.reward) != 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("key-door", {"side": 3}),
        ("lock", {"digits": 0}),
        ("lock", {"num_actions": 1}),
        ("lock", {"wait": 0}),
        ("lock", {"shown": 1}),
        ("inventory-year", {"weeks": 0}),
        ("maintenance", {"days": 1.5}),
        ("late-maze", {"side": 8}),
        ("late-maze", {"sticky": 1.0}),
        ("late-maze", {"seed": -1}),
        ("umbrella", {"length": 1}),
        ("umbrella", {"noise": -1.0}),
        ("harvest", {"seasons": 3}),
    ],
)
def test_options_that_cannot_be_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))}=.*: give "):
        late.LATE[name](**options)
