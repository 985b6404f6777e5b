"""Our games as Gymnasium environments, and the delay wrapper on any Gymnasium environment."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from highway_rl.envs import minatar
from highway_rl.integrations.gymnasium import BoardGame, BoardGames, DelayReward

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")  # v1 is no successor of v0

NAMES = {"asterix": "Asterix", "breakout": "Breakout", "freeway": "Freeway", "seaquest": "Seaquest"}
NAMES["space_invaders"] = "SpaceInvaders"


class Scripted(gymnasium.Env):
    """Pays what the list says, then ends."""

    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, rewards):
        self.rewards, self.t = rewards, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return 0, {}

    def step(self, action):
        self.t += 1
        return self.t, self.rewards[self.t - 1], self.t == len(self.rewards), False, {}


KNOWN = ("out of date", "different from the unwrapped version")


def complaints_of(env, **options):
    """Runs the checker; returns its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env, **options)
    return [str(warning.message) for warning in caught]


def run(env):
    observations, paid = [env.reset(seed=0)[0]], []
    while True:
        obs, reward, terminated, truncated, _ = env.step(0)
        observations.append(obs)
        paid.append(reward)
        if terminated or truncated:
            return observations, paid


@pytest.mark.parametrize("game", minatar.GAMES)
def test_check_env(game):
    """Its complaints: that v1 is newer than v0, and about making the environment anew to try the render modes."""
    env = gymnasium.make(f"highway_rl/{NAMES[game]}-v0", render_mode="rgb_array")
    complaints = complaints_of(env.unwrapped)
    assert all(any(known in text for known in KNOWN) for text in complaints), complaints
    assert env.action_space.n == 6
    env.reset(seed=1)
    assert env.render().shape == (240, 240, 3)


def test_minimal_actions_and_errors():
    env = gymnasium.make("highway_rl/Breakout-v1")
    assert env.action_space.n == 3
    bare = BoardGame("breakout")
    with pytest.raises(RuntimeError, match="reset"):
        bare.step(0)
    bare.reset(seed=0)
    for bad in (6, -1, 1.5):
        with pytest.raises(ValueError, match=r"action=.*: give a whole number from 0 to 5"):
            bare.step(bad)
    with pytest.raises(ValueError, match="render_mode='human': give None or"):
        BoardGame("breakout", render_mode="human")
    with pytest.raises(ValueError, match="num_envs=0: give"):
        BoardGames("breakout", 0)


def test_vector_games_keep_final_observations():
    envs = gymnasium.make_vec("highway_rl/Breakout-v0", num_envs=8, render_mode="rgb_array")
    boards, _ = envs.reset(seed=3)
    assert envs.observation_space.contains(boards)
    ended = 0
    for _ in range(60):
        boards, rewards, terminated, truncated, info = envs.step(envs.action_space.sample())
        assert boards.shape == (8, 10, 10, 4)
        assert rewards.dtype == np.float64
        assert not truncated.any()
        if terminated.any():
            np.testing.assert_array_equal(info["_final_obs"], terminated)
            # the ball of a lost game lies in the bottom row, that of a new one does not
            assert info["final_obs"][terminated][:, 9, :, 1].any(axis=-1).all()
            assert not boards[terminated][:, 9, :, 1].any()
            ended += terminated.sum()
    assert ended > 0
    assert len(envs.render()) == 8
    with pytest.raises(ValueError, match=r"actions has shape \(3,\): give \(8,\)"):
        envs.unwrapped.step(np.zeros(3, int))


def test_same_seed_same_game():
    env = BoardGame("asterix")
    histories = []
    for seed in (7, 7, 8):
        env.reset(seed=seed)
        histories.append(np.stack([env.step(0)[0] for _ in range(16)]))
    np.testing.assert_array_equal(histories[0], histories[1])
    assert (histories[0] != histories[2]).any()


def test_delay_reward_on_any_environment():
    rewards = [0.0, 1.0, 0.0, 2.0, 1.0]
    observations, paid = run(DelayReward(Scripted(rewards), width=4))
    assert paid == [0, 0, 0, 0, 4]
    assert [int(np.argmax(o["feature"])) for o in observations] == [0, 0, 1, 1, 2, 3]
    observations, paid = run(DelayReward(Scripted(rewards), 2, feature="score", width=4))
    assert paid == [0, 1, 0, 2, 1]
    assert [int(np.argmax(o["feature"])) for o in observations] == [0, 0, 0, 0, 0, 0]
    _, paid = run(DelayReward(Scripted([1.0] * 50), range(1, 9), width=4))
    assert sum(paid) == 50
    assert len(set(paid)) > 3
    for bad in ({"width": 0}, {"width": 2, "feature": "x"}, {"width": 2, "until": -1}, {"width": 2, "until": range(0)}):
        with pytest.raises(ValueError, match=r"(width|feature|until)=.*: give"):
            DelayReward(Scripted(rewards), **bad)


def test_delay_reward_passes_check_env():
    env = DelayReward(BoardGame("breakout"), width=64)
    complaints = complaints_of(env, skip_render_check=True)
    assert all(any(known in text for known in KNOWN) for text in complaints), complaints


def test_tasks_refuse_what_is_not_there():
    """Actions, steps before a reset or after the end, options."""
    env = gymnasium.make("highway_rl/TraceBack-v0", delay=3, disable_env_checker=True).unwrapped
    with pytest.raises(RuntimeError, match="call reset before step"):
        env.step(0)
    env.reset(seed=0)
    for action in (9, -1, 1.7):
        with pytest.raises(ValueError, match=r"action=.*: give a whole number from 0 to 3"):
            env.step(action)
    while not env.step(0)[2]:
        pass
    with pytest.raises(RuntimeError, match="the episode has ended"):
        env.step(0)
    with pytest.raises(ValueError, match="trace-back has no option 'foo'"):
        gymnasium.make("highway_rl/TraceBack-v0", foo=2)
