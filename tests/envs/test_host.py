"""Gymnasium's environments: what is seen, in every form and mode; what fails says which one and what came."""

import os
import signal
import sys
import time

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from highway_rl.envs.host import Own, host_env, written
from highway_rl.envs.host.make import again
from highway_rl.envs.host.prepare import ready
from highway_rl.envs.host.processes import Apart
from highway_rl.envs.host.spaces import NoObservation, acting, seeing
from highway_rl.envs.host.worlds import Failed, Here
from highway_rl.envs.registry import make_env
from highway_rl.envs.wrappers import late_discount
from highway_rl.integrations.gymnasium import DelayReward, ShowTime
from highway_rl.runs import Config

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a process cannot import tests


class Clock(gymnasium.Env):
    """Shows its episode's number and how many steps it has made; ends after `length`, or is cut there."""

    def __init__(self, length=3, cut=False, wrong=None, at=2):
        self.observation_space, self.action_space = Box(0, 100, (2,), np.float32), Discrete(3, start=5)
        self.length, self.cut, self.wrong, self.at = length, cut, wrong, at
        self.episode, self.time, self.total = -1, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.show(), {}

    def show(self):
        return np.array([self.episode, self.time], np.float32)

    def step(self, action):
        assert 5 <= action < 8
        self.time, self.total = self.time + 1, self.total + 1
        obs, reward = self.show(), float(self.time)
        if self.wrong and self.total == self.at:
            if self.wrong == "raises":
                raise ZeroDivisionError("no more oil")
            if self.wrong == "hangs":
                time.sleep(60)
            if self.wrong == "dies":
                os._exit(7)
            obs = {"nan": obs * np.nan, "shape": np.zeros(3, np.float32), "text": "x", "outside": obs + 1000}.get(
                self.wrong, obs
            )
            reward = {"reward": np.nan, "none": None}.get(self.wrong, reward)
        ended = self.time == self.length
        return obs, reward, ended and not self.cut, ended and self.cut, {}


def cut_clock():
    return Clock(cut=True)


def in_mode(mode):
    def make(num_envs):
        return SyncVectorEnv([cut_clock] * num_envs, autoreset_mode=mode)

    return make


def walk(worlds, turns, action=1):
    """The steps of the first environment: (episode, time) acted on, (episode, time) that followed, reward, ended."""
    here, found = worlds.reset()[0], []
    for _ in range(turns):
        worlds.send(np.full(worlds.count, action))
        came = worlds.receive()
        if came.real[0]:
            found.append((*here[0], *came.after[0][0], came.reward[0], bool(came.terminated[0] | came.truncated[0])))
        here = came.here[0]
    worlds.close()
    return found


STEPS = [(0, 0, 0, 1, 1, False), (0, 1, 0, 2, 2, False), (0, 2, 0, 3, 3, True), (1, 0, 1, 1, 1, False)]


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("count", [1, 2])
def test_episodes_are_the_same_in_every_mode(mode, count):
    """Final observations are the true ones; the call in which NEXT_STEP begins anew is no step."""
    env = host_env(in_mode(mode), "clocks")
    assert walk(env.start(count, 0), 5)[:4] == STEPS


@pytest.mark.parametrize("workers", ["sync", "async"])
def test_episodes_are_the_same_in_every_form(workers):
    assert walk(host_env(cut_clock, "clock", workers=workers).start(2, 0), 4) == STEPS


def test_the_forms_of_a_known_environment_agree():
    """CartPole here and in processes, with the same seeds and actions."""
    both = [make_env("CartPole-v1", workers=workers).start(2, 3) for workers in ("sync", "async")]
    first, second = ([world.reset()[0]] for world in both)
    for turn in range(40):
        for rows, world in zip((first, second), both, strict=True):
            world.send(np.array([turn % 2, turn % 3 > 0], int))
            came = world.receive()
            rows += [came.after[0], came.here[0], came.reward, came.terminated]
    for world in both:
        world.close()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("workers", ["sync", "async"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("raises", "environment 1 of 2: it raised ZeroDivisionError: no more oil"),
        ("nan", "environment 1 of 2: obs is float32 .* with what is no number"),
        ("shape", r"environment 1 of 2: obs is float32 \[0.0, 0.0, 0.0\], not float32 of shape \(2,\)"),
        ("text", "environment 1 of 2: obs is 'x', not float32"),
        ("reward", "environment 1 of 2: its reward is nan"),
        ("none", "environment 1 of 2: its reward is None"),
    ],
)
def test_what_fails_says_which_and_what_came(workers, wrong, said):
    worlds = _two(workers, Clock, lambda: Clock(wrong=wrong))
    with pytest.raises(Failed, match=said):
        walk(worlds, 3)
    worlds.close()


def test_one_environment_cannot_be_two():
    """A function that makes the same object again; two at once would end each other's episodes."""
    one = Clock()
    with pytest.raises(ValueError, match="made the same Clock twice: give a function that makes a new one"):
        _two("sync", lambda: one, lambda: one)
    worlds = _two("sync", lambda: one, Clock)  # whoever was refused has left it
    with pytest.raises(ValueError, match="clock made the same Clock twice"):
        _two("sync", Clock, lambda: one)
    worlds.close()
    _two("sync", lambda: one, Clock).close()
    with pytest.raises(ValueError, match="same Clock twice"):
        make_env(Config(lambda: one).task)


def _two(workers, *makers, timeout=20.0):
    one = Clock()
    how = seeing(one.observation_space), acting(one.action_space, "clock"), "clock"
    return Here(makers, (0, 1), *how) if workers == "sync" else Apart(makers, (0, 1), *how, timeout)


@pytest.mark.parametrize(
    ("wrong", "said"), [("hangs", "it said nothing for 1 seconds"), ("dies", "its process ended with exit code 7")]
)
def test_a_process_that_is_gone_is_named(wrong, said):
    worlds = _two("async", Clock, lambda: Clock(wrong=wrong), timeout=1.0)
    with pytest.raises(Failed, match=f"clock, environment 1 of 2: {said}"):
        walk(worlds, 3)
    worlds.close()


def test_a_number_outside_the_space_is_said_once_and_used():
    worlds = host_env(lambda: Clock(wrong="outside"), "clock").start(1, 0)
    with pytest.warns(UserWarning, match="environment 0.*outside its observation space") as said:
        found = walk(worlds, 3)
    assert len(said) == 1
    assert found[1][3] == 1002


@pytest.mark.parametrize("feature", ["count", "score", "amount"])
@pytest.mark.parametrize(("until", "cut"), [("end", False), ("end", True), (2, False), (2, True), (range(1, 4), False)])
def test_late_rewards_are_those_of_the_wrapper(until, cut, feature):
    """What is paid, and what is shown of it, step by step beside the Gymnasium wrapper; draws of a range differ."""
    made = host_env(lambda: Clock(length=5, cut=cut), "clock", delay=until, feature=feature, width=20)
    assert made.spec.discount == late_discount(None)
    worlds = made.start(1, 0)
    env = DelayReward(Clock(length=5, cut=cut), until, feature=feature, width=20)
    shown, _ = env.reset(seed=0)
    here = worlds.reset()
    total = 0.0
    for _ in range(15):
        np.testing.assert_array_equal(here[1][0], shown["obs"])
        worlds.send(np.array([0]))
        came = worlds.receive()
        total += came.reward[0]
        if isinstance(until, range):
            here = came.here
            shown = {"obs": here[1][0]}
            continue
        np.testing.assert_array_equal(here[0][0], shown["feature"])
        shown, reward, terminated, truncated, _ = env.step(5)
        assert (came.reward[0], came.terminated[0], came.truncated[0]) == (reward, terminated, truncated)
        assert not (terminated and cut) or until == "end"
        np.testing.assert_array_equal(came.after[0][0], shown["feature"])
        if terminated or truncated:
            shown, _ = env.reset()
        here = came.here
    assert total == 3 * 15


def test_every_space_is_seen():
    space = Dict(
        {
            "picture": Box(0, 255, (2, 3, 1), np.uint8),
            "pair": Tuple([Discrete(3, start=1), MultiDiscrete([2, 3])]),
            "bits": MultiBinary(4),
            "half": Box(-1, 1, (2,), np.float16),
            "double": Box(-np.inf, np.inf, (), np.float64),
            "words": Text(5),
        }
    )
    seen = seeing(space)
    assert {
        name: str(leaf.dtype) if hasattr(leaf, "dtype") else [str(x.dtype) for x in leaf]
        for name, leaf in seen.like.items()
    } == {
        "bits": "bool",
        "double": "float32",
        "half": "float16",
        "pair": ["bool", "bool"],
        "picture": "uint8",
    }
    for seed in range(20):
        space.seed(seed)
        obs = space.sample()
        bits, double, half, one, two, picture = seen.leaves(obs)
        np.testing.assert_array_equal(bits, obs["bits"])
        assert double == np.float32(obs["double"])
        np.testing.assert_array_equal(half, obs["half"])
        assert np.flatnonzero(one).tolist() == [obs["pair"][0] - 1]
        assert np.flatnonzero(two).tolist() == [obs["pair"][1][0], 2 + obs["pair"][1][1]]
        np.testing.assert_array_equal(picture, obs["picture"])
    with pytest.raises(NoObservation, match=r"obs\['pair'\]\[0\] is 9, not below \[3\] from \[1\]"):
        seen.leaves({**obs, "pair": (9, obs["pair"][1])})
    with pytest.raises(NoObservation, match="obs is a dict with 'bits'"):
        seen.leaves({"bits": obs["bits"]})


def test_joint_actions_are_all_of_them_once():
    for space in (MultiDiscrete([2, 3], start=[1, 5]), MultiBinary([2, 2]), Discrete(4, start=-2)):
        acts = acting(space, "x")
        chosen = [acts.action(i) for i in range(acts.number)]
        assert all(
            space.contains(one) for one in map(space.dtype.type if isinstance(space, Discrete) else np.asarray, chosen)
        )
        assert len({np.asarray(one).tobytes() for one in chosen}) == acts.number


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: _with(action=Box(-1, 1, (2,))), "agents here choose among a few: give it Discrete actions"),
        (lambda: _with(action=MultiDiscrete([100, 100])), "10,000 joint actions"),
        (lambda: _with(observation=Sequence(Discrete(2))), "obs is a Sequence space: give Box"),
        (lambda: _with(observation=Text(4)), "shows nothing but text: give"),
    ],
)
def test_what_cannot_be_learned_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        host_env(make, "mine")


def _with(action=None, observation=None):
    env = Clock()
    env.action_space, env.observation_space = action or env.action_space, observation or env.observation_space
    return env


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("CartPol-v1", {}, "unknown environment 'CartPol-v1': did you mean 'CartPole-v1'"),
        ("CartPole", {}, "unknown environment 'CartPole': did you mean 'CartPole-v"),
        ("cartpole", {}, "unknown environment 'cartpole': .*'?CartPole-v1"),
        ("gymnasium.envs.classic_control:CartPol-v1", {}, "CartPol-v1"),
        ("FrozenLake-v1", {"workers": "vector"}, "no vector form of its own: give workers 'sync' or 'async'"),
        ("CartPole-v1", {"num_envs": 4}, "num_envs is a setting of the run.*: give --setting num_envs"),
        ("CartPole-v99", {}, "give one of these"),
        ("MountainCarContinuous-v0", {}, "give it Discrete actions"),
        ("CartPole-v1", {"wind": 3}, "cannot be made, TypeError says .*wind"),
        ("CartPole-v1", {"workers": "many"}, "workers='many': give one of sync, async, vector"),
        ("CartPole-v1", {"timeout": 0}, "timeout=0: give"),
        ("CartPole-v1", {"delay": 0}, "delay=0: give"),
    ],
)
def test_a_newcomers_mistakes_are_answered(name, options, said):
    with pytest.raises(ValueError, match=said):
        make_env(name, **options)


def test_gymnasium_s_own_module_and_id():
    assert make_env("gymnasium.envs.classic_control:CartPole-v1").spec.num_actions == 2


class Exits(Clock):
    def step(self, action):
        raise SystemExit(4)


def test_an_environment_that_exits_has_failed():
    worlds = host_env(Exits, "mine").start(1, 0)
    worlds.reset()
    worlds.send(np.zeros(1, int))
    with pytest.raises(Failed, match="mine, environment 0 of 1: it raised SystemExit: 4"):
        worlds.receive()


def limited(limit=8):
    return gymnasium.wrappers.TimeLimit(Clock(length=100), limit)


@pytest.mark.parametrize("workers", ["sync", "async"])
def test_the_time_is_a_bar_that_is_full_at_the_cut(workers):
    """In every form, also in the last observation; and the next episode begins with an empty one."""
    worlds = host_env(limited, "limited", workers=workers, show_time=True).start(2, 0)
    shown = [worlds.reset()[1]]
    for _ in range(9):
        worlds.send(np.zeros(2, int))
        came = worlds.receive()
        shown.append(came.after[1])
        assert came.truncated.all() == (len(shown) == 9)
    worlds.close()
    assert np.array(shown).shape == (10, 2, ShowTime.PARTS)
    np.testing.assert_allclose(
        np.array(shown)[:, 0].sum(axis=1) / ShowTime.PARTS, [*np.arange(9) / 8, 1 / 8], rtol=1e-6
    )
    assert all((np.diff(one[0]) <= 0).all() for one in shown)  # places fill one after the other


def test_the_time_beside_what_is_owed():
    """The wrapper shows what training sees, and an agent's own environment is made with it."""
    made = make_env("CartPole-v1", show_time=True, delay="end")
    assert {key: part.shape for key, part in made.spec.observation["obs"].items()} == {"obs": (4,), "time": (25,)}
    assert make_env("CartPole-v1", delay="end").spec.observation["obs"].shape == (4,)
    env = DelayReward(ShowTime(gymnasium.make("CartPole-v1")), "end", feature="amount")
    assert made.one().observation_space == env.observation_space


def test_where_the_time_cannot_be_shown():
    with pytest.raises(ValueError, match=r"cut off.*: give max_episode_steps"):
        host_env(Clock, "clock", show_time=True)
    with pytest.raises(ValueError, match=r"clocks makes vectors.*: leave it out"):
        host_env(in_mode(AutoresetMode.NEXT_STEP), "clocks", show_time=True)
    with pytest.raises(ValueError, match=r"CartPole-v1 makes vectors.*: give workers 'sync' or 'async'"):
        make_env("CartPole-v1", workers="vector", show_time=True)
    with pytest.raises(ValueError, match="show_time='late': give true or false"):
        make_env("CartPole-v1", show_time="late")


def test_a_form_that_a_task_does_not_have_is_refused():
    with pytest.raises(ValueError, match="one environment at a time: give workers 'sync' or 'async'"):
        host_env(Clock, "clock", workers="vector")
    vector = in_mode(AutoresetMode.NEXT_STEP)
    with pytest.raises(ValueError, match=r"a vector of environments.*: leave workers='async' out"):
        host_env(vector, "clocks", workers="async")
    assert host_env(vector, "clocks", workers="vector").one().num_envs == 1
    with pytest.raises(ValueError, match=r"clocks makes vectors.*: make one of yours"):
        host_env(vector, "clocks", delay="end").one()


@pytest.mark.parametrize(("name", "package"), [("ALE/Pong-v5", "ale-py"), ("MiniGrid-Empty-5x5-v0", "minigrid")])
def test_a_missing_package_is_named(name, package, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(ValueError, match=f"install it with `pip install {package}`"):
        make_env(name)


def test_a_process_that_does_not_begin_says_so(monkeypatch):
    """A Python that ends at once, before it has said anything; nothing hangs."""
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(Failed, match="environment 0 of 2: its process ended with exit code 1"):
        host_env(cut_clock, "clock", workers="async").start(2, 0)


class Grid(gymnasium.Env):
    """What a MiniGrid environment shows, and the module it says it is of."""

    __module__ = "minigrid.envs.grid"
    observation_space = Dict({"image": Box(0, 255, (2, 2, 3), np.uint8), "direction": Discrete(4), "mission": Text(9)})
    action_space = Discrete(7)
    step_count, max_steps = 0, 40

    def look(self):
        return {"image": np.array([[[1, 0, 0], [4, 5, 1]]] * 2, np.uint8), "direction": 3, "mission": "open"}

    def reset(self, *, seed=None, options=None):
        self.step_count = 0
        return self.look(), {}

    def step(self, action):
        self.step_count += 1
        return self.look(), 0.0, False, self.step_count == self.max_steps, {}


class Looks(gymnasium.ObservationWrapper):
    """Another view of it, of one's own."""

    def __init__(self, env, space, look):
        super().__init__(env)
        self.observation_space, self.observation = space, look


def test_minigrids_cells_are_places_and_views_of_ones_own_stay_what_they_are():
    env = ready(Grid())
    seen, _ = env.reset()
    assert env.observation_space.contains(seen)
    assert np.flatnonzero(seen["image"][0, 1]).tolist() == [4, 11 + 5, 11 + 6 + 1]
    bars = [seen["time"], *(env.step(0)[0]["time"] for _ in range(40))]
    np.testing.assert_allclose(np.sum(bars, axis=1), np.arange(41) / 4)  # ten places for forty steps
    np.testing.assert_allclose(bars[6], [1, 0.5, *[0] * 8])
    assert env.reset()[0]["time"].sum() == 0
    for space, look in (
        (Box(0, 255, (2, 2, 3), np.uint8), lambda seen: seen["image"]),
        (Dict({"grid": Discrete(9)}), lambda seen: {"grid": 1}),
        (Dict({"image": Box(0, 255, (2, 2, 3), np.uint8)}), lambda seen: {"image": seen["image"]}),
    ):
        own = Looks(Grid(), space, look)
        assert ready(own) is own


# ---- what newcomers give -------------------------------------------------------------------------------------------


class Paid(gymnasium.RewardWrapper):
    def reward(self, reward):
        return -5.0


def test_an_environment_that_is_given_is_made_again_with_all_that_made_it():
    assert again(gymnasium.make("CartPole-v1").spec) == "CartPole-v1"
    short = again(gymnasium.make("CartPole-v1", max_episode_steps=7).spec)()
    assert short.spec.max_episode_steps == 7
    doubled = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda r: 2 * r)
    env = again(doubled.spec)()
    env.reset(seed=0)
    assert env.step(0)[1] == 2.0
    with pytest.raises(ValueError, match=r"CartPole-v1 is inside Paid, .*: give a function .* lambda: Paid\(gymnasium"):
        again(Paid(gymnasium.make("CartPole-v1")).spec)


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (Box(0, 255, (3,), np.uint8), np.array([0.1, 0.5, 0.9], np.float32)),
        (Box(0, 255, (3,), np.uint8), np.array([300, -1, 256])),
        (Box(0, 255, (3,), np.uint8), np.array([np.nan, 1, 2])),
        (MultiBinary(3), np.array([7, -3, 0])),
    ],
)
def test_numbers_that_bytes_and_bits_cannot_hold_are_no_observation(space, shown):
    seen = seeing(space)
    with pytest.raises(NoObservation, match=r"obs is \[.*\], not whole numbers from 0 to (1|255)"):
        seen.leaves(shown)
    assert np.array_equal(seen.leaves(np.array([1.0, 0.0, 1.0]))[0], [1, 0, 1])
    assert seen.leaves(np.array([1, 0, 1], np.int8))[0].dtype == seen.like.dtype


class NoSeed(Clock):
    def reset(self):
        return super().reset()


class FourOfFive(Clock):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class ShowsAlone(Clock):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0][:0].tolist() + [0.0, 1.0, 2.0]


@pytest.mark.parametrize("kind", [NoSeed, FourOfFive, ShowsAlone])
@pytest.mark.parametrize("workers", ["sync", "async"])
def test_the_old_way_to_reset_and_step_is_known(kind, workers):
    worlds = host_env(kind, "mine", workers=workers).start(1, 0)

    def step():
        worlds.reset()
        worlds.send(np.zeros(1, int))
        worlds.receive()

    with pytest.raises(Failed, match=r"mine, environment 0 of 1: .*before 0\.26: let reset.*shimmy"):
        step()
    worlds.close()


def test_an_environment_without_spaces_is_told_so():
    class Bare(gymnasium.Env):
        pass

    with pytest.raises(ValueError, match="mine has no observation_space: give it one of"):
        host_env(Bare, "mine")


@pytest.mark.parametrize("delay", ["2-3", (2, 3), [2, 3], range(2, 4)])
def test_delays_as_people_write_them(delay):
    assert DelayReward(Clock(), delay).until == range(2, 4)
    assert make_env("CartPole-v1", delay=delay).spec.name == "CartPole-v1-delay"


def test_ctrl_c_reaches_whoever_began_the_processes_alone():
    worlds = host_env(Clock, "mine", workers="async").start(2, 0)
    worlds.reset()
    for process in worlds.processes:
        process.send_signal(signal.SIGINT)
    for _ in range(5):
        worlds.send(np.zeros(2, int))
        assert worlds.receive().real.all()
    worlds.close()
    assert all(process.returncode is not None for process in worlds.processes)


def test_own_actions_and_their_numbers():
    own = Own(written.write(Box(0, 1, (2,)), MultiDiscrete([2, 3])))
    assert own.numbers([own.actions(i) for i in range(6)]) == list(range(6))
    assert Own(written.write(Box(0, 1, (2,)), Discrete(3, start=-1))).numbers([-1, 0, 1]) == [0, 1, 2]
    with pytest.raises(ValueError, match=r"action \[5 5\] is none of the environment's: give one of MultiDiscrete"):
        own.numbers([np.array([5, 5])])


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ((Dict(a=Box(0, 1, (2,))), Discrete(2)), (Dict(b=Box(0, 1, (2,))), Discrete(2))),
        ((Box(0, 1, (2,)), Discrete(6)), (Box(0, 1, (2,)), MultiDiscrete([2, 3]))),
        ((Box(0, 1, (2,)), Discrete(6)), (Box(0, 9, (2,)), Discrete(6))),
        ((Box(0, 1, (2,)), Discrete(3)), (Box(0, 1, (2,)), Discrete(3, start=5))),
    ],
)
def test_other_spaces_are_refused_and_both_are_said(mine, theirs):
    own = Own(written.write(*mine))
    own.same(written.write(*mine), "same")
    with pytest.raises(ValueError, match=r"other has (observations|actions) .*, the agent .*: give an environment"):
        own.same(written.write(*theirs), "other")
