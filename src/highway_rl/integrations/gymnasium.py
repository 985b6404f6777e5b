"""Gymnasium: our games as its environments, and wrappers for any of its environments: reward that comes late, time.

Importing this module registers `highway_rl/Breakout-v0` (all six actions), `-v1` (minimal ones) and so on. Gymnasium
also imports it for you: `gymnasium.make("highway_rl.integrations.gymnasium:highway_rl/Breakout-v0")`. `make_vec` steps
all boards in one compiled call; its mode "async" forks processes, which JAX does not survive, and is not needed.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector.utils import batch_space

from highway_rl import checks
from highway_rl.envs import minatar
from highway_rl.envs.host.late import DelayReward
from highway_rl.envs.host.prepare import ShowTime
from highway_rl.envs.minatar.render import rgb
from highway_rl.envs.wrappers import auto_reset, carry_over
from highway_rl.integrations import gymnasium_tasks as gym_discrete
from highway_rl.types import Env

__all__ = ["BoardGame", "BoardGames", "DelayReward", "ShowTime", "register"]


def _spaces(env: Env) -> tuple[Box, Discrete]:
    cells: Any = bool
    return Box(0, 1, env.spec.observation.shape, dtype=cells), Discrete(env.spec.num_actions)


class BoardGame(gymnasium.Env):
    """One game. A reset without a seed keeps the last action, as the original does; one with a seed starts afresh."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, game: str, render_mode: str | None = None, scale: int = 24, **options: Any) -> None:
        if render_mode not in (None, "rgb_array"):
            raise checks.refusal("render_mode", render_mode, "None or 'rgb_array'")
        self.render_mode, self.scale = render_mode, scale
        self.env = minatar.make(game, **options)
        self.observation_space, self.action_space = _spaces(self.env)
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)
        self._state: Any = None
        self._board: np.ndarray | None = None
        self._ended = True

    def _key(self) -> Any:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        state, board = self._reset(self._key())
        keeps = self._state is not None and seed is None
        self._state = carry_over(self._state, state) if keeps else state
        self._board, self._ended = np.asarray(board), False
        return self._board, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self._ended:
            raise RuntimeError("the episode has ended or not begun: call reset before step")
        out = self._step(self._state, checks.actions(action, self.env.spec.num_actions), self._key())
        self._state, self._board = out.state, np.asarray(out.obs)
        self._ended = bool(out.terminated)
        return self._board, float(out.reward), self._ended, False, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None or self._board is None:
            return None
        return rgb(self._board, self.scale)


class BoardGames(gymnasium.vector.VectorEnv):
    """Many boards of one game in one compiled step.

    Boards that end begin again in the same step; `info["final_obs"]` then holds the true last observations, and
    `info["_final_obs"]` says for which boards.
    """

    metadata = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": 15,
        "autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP,
    }

    def __init__(
        self, game: str, num_envs: int = 1, render_mode: str | None = None, scale: int = 24, **options: Any
    ) -> None:
        num_envs = checks.whole("num_envs", num_envs, 1)
        self.num_envs, self.render_mode, self.scale = num_envs, render_mode, scale
        self.env = auto_reset(minatar.make(game, **options))
        self.single_observation_space, self.single_action_space = _spaces(self.env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        def reset(key: Any) -> Any:
            return jax.vmap(self.env.reset)(jax.random.split(key, num_envs))

        def step(state: Any, actions: Any, key: Any) -> Any:
            return jax.vmap(self.env.step)(state, actions, jax.random.split(key, num_envs))

        self._reset, self._step = jax.jit(reset), jax.jit(step)
        self._state: Any = None

    def _key(self) -> Any:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def reset(self, *, seed: Any = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._state, boards = self._reset(self._key())
        return np.asarray(boards), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        if self._state is None:
            raise RuntimeError("no episode has begun: call reset before step")
        checked = checks.actions(actions, self.env.spec.num_actions)
        if checked.shape != (self.num_envs,):
            raise checks.wrong_shape("actions", checked, f"({self.num_envs},), one for each board")
        out = self._step(self._state, jnp.asarray(checked), self._key())
        self._state = out.state
        terminated, truncated = np.asarray(out.terminated), np.asarray(out.truncated)
        ended = terminated | truncated
        info = {"final_obs": np.asarray(out.obs), "_final_obs": ended} if ended.any() else {}
        return np.asarray(out.state.obs), np.asarray(out.reward, np.float64), terminated, truncated, info

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode is None or self._state is None:
            return None
        return tuple(rgb(board, self.scale) for board in np.asarray(self._state.obs))


def register() -> None:
    """Makes the games known to `gymnasium.make` and `gymnasium.make_vec`."""
    for game in minatar.GAMES:
        title = game.title().replace("_", "")
        for version, actions in ((0, "all"), (1, "minimal")):
            name = f"highway_rl/{title}-v{version}"
            if name not in gymnasium.registry:
                gymnasium.register(
                    name,
                    entry_point="highway_rl.integrations.gymnasium:BoardGame",
                    vector_entry_point="highway_rl.integrations.gymnasium:BoardGames",
                    kwargs={"game": game, "actions": actions},
                )


register()
gym_discrete.register()
