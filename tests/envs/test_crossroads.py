"""The task of the demo: what it pays and shows, and its film."""

import itertools

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from highway_rl.envs.films import film_name, write_film
from highway_rl.envs.host.crossroads import Crossroads
from highway_rl.envs.registry import make_env
from highway_rl.runs.episode import pictures


def test_it_is_an_environment_of_gymnasium():
    check_env(Crossroads(), skip_render_check=True)
    with pytest.raises(ValueError, match=r"town=16: give .* 15"):
        Crossroads(town=16)
    with pytest.raises(ValueError, match="render_mode"):
        Crossroads(render_mode="human")


def test_one_road_pays_at_its_end_and_every_place_looks_different():
    env = Crossroads(ways=3, length=5, town=7)
    paid, seen = {}, set()
    for first, second in itertools.product(range(3), repeat=2):
        places, rewards, ended = [env.reset()[0]], [], False
        for action in (first, second, 0, 2, 1, 0, 0):
            assert not ended
            obs, reward, ended, cut, _ = env.step(action)
            places.append(obs)
            rewards.append(reward)
        assert (ended, cut, rewards[:-1]) == (True, False, [0.0] * 6)
        paid[3 * first + second] = rewards[-1]
        seen |= set(places[:-1])
    assert paid == {road: float(road == 7) for road in range(9)}
    assert seen == set(range(env.observation_space.n))


def test_an_inn_pays_on_all_roads_of_the_first_way():
    env = Crossroads(ways=3, length=2, town=7, inn=0.7)
    paid = []
    for first, second in itertools.product(range(3), repeat=2):
        env.reset()
        paid.append([env.step(action)[1] for action in (first, second, 0, 0)])
    assert [x[-1] for x in paid] == [0.7] * 3 + [0, 0, 0, 0, 1, 0]
    assert all(x[:-1] == [0, 0, 0] for x in paid)
    with pytest.raises(ValueError, match="town=2: give"):
        Crossroads(ways=3, town=2, inn=0.7)


def test_its_film(tmp_path):
    """One picture a step and one before; in each somebody stands somewhere else."""
    frames, fps = pictures(make_env("highway_rl.envs.host.crossroads:Crossroads"), lambda obs: 2, 0, 1_000)
    assert (len(frames), fps) == (43, 12)
    assert all(np.any(a != b) for a, b in itertools.pairwise(frames))
    short, _ = pictures(make_env("highway_rl.envs.host.crossroads:Crossroads"), lambda obs: 2, 0, 10)
    assert len(short) == 11
    image = pytest.importorskip("PIL.Image")
    with image.open(write_film(tmp_path / "new" / "film.gif", frames, fps)) as film:
        assert film.n_frames == 43
    with pytest.raises(ValueError, match=r"film.png': give a file name that ends in .gif"):
        film_name("film.png")


def test_what_draws_nothing_says_so():
    class Blind(Crossroads):
        def render(self):
            return None

    with pytest.raises(ValueError, match=r"draws nothing with render_mode='rgb_array': give one"):
        pictures(make_env_of(Blind), lambda obs: 0, 0, 3)


def make_env_of(kind):
    from highway_rl.envs.host import host_env

    return host_env(kind, "blind")
