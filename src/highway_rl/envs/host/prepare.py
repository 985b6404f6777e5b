"""One environment, made ready: from an id or a function, with the usual preprocessing where an environment has one.

These functions travel to processes, so they are plain functions of a module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np


def by_id(name: str, options: dict[str, Any]) -> gymnasium.Env:
    """What `gymnasium.make` gives, made ready. The passive checker is left out: every step is checked anyway."""
    if name.startswith("ALE/"):
        import ale_py

        gymnasium.register_envs(ale_py)
        options = {"frameskip": 1, "repeat_action_probability": 0.0, **options}
        env = gymnasium.make(name, disable_env_checker=True, **options)
        playing = gymnasium.wrappers.AtariPreprocessing(env, terminal_on_life_loss=False)
        return Stacked(playing, 4)
    if name.startswith(("MiniGrid-", "BabyAI-")):
        import minigrid

        gymnasium.register_envs(minigrid)
    return ready(gymnasium.make(name, disable_env_checker=True, **options))


def by_call(make: Callable[..., Any], options: dict[str, Any]) -> Any:
    """What the function returns, made ready."""
    return ready(make(**options))


def ready(env: Any) -> Any:
    """MiniGrid's cells as one-hot places, and its time; any other environment, or a view of one's own, as it is."""
    inside = getattr(env, "unwrapped", None)
    if any(cls.__module__.startswith("minigrid.") for cls in type(inside).__mro__):
        space = env.observation_space
        parts: Any = space.spaces if isinstance(space, gymnasium.spaces.Dict) else {}
        if {"image", "direction"} <= set(parts) and parts["image"].shape[2:] == (3,):
            return Cells(env)
    return env


class Cells(gymnasium.ObservationWrapper):
    """MiniGrid's picture, three numbers a cell (what it is, its colour, its state), as 11 + 6 + 4 truth values; and its
    time, as a bar that fills. What a goal pays falls with the time, 1 − 0.9·t/T: unseen, that would be luck."""

    PLACES, PARTS = (11, 6, 4), 10

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        inner: Any = env.observation_space
        shape = (*inner["image"].shape[:2], sum(self.PLACES))
        bits: Any = bool
        self.observation_space = gymnasium.spaces.Dict(
            {
                "image": gymnasium.spaces.Box(0, 1, shape, bits),
                "direction": inner["direction"],
                "time": gymnasium.spaces.Box(0, 1, (self.PARTS,), np.float32),
            }
        )

    def observation(self, observation: Any) -> Any:
        image = observation["image"]
        parts = [image[..., i, None] == np.arange(n) for i, n in enumerate(self.PLACES)]
        inside: Any = self.unwrapped
        return {
            "image": np.concatenate(parts, axis=-1),
            "direction": observation["direction"],
            "time": bar(inside.step_count / inside.max_steps, self.PARTS),
        }


def bar(share: float, parts: int) -> np.ndarray:
    """A share of the whole as `parts` places that fill one after the other.

    >>> bar(0.375, 4).tolist()
    [1.0, 0.5, 0.0, 0.0]
    """
    return np.clip(parts * share - np.arange(parts), 0, 1).astype(np.float32)


def limit_of(env: gymnasium.Env) -> Any:
    """The wrapper that counts steps and cuts episodes off, if there is one."""
    inside: Any = env
    while isinstance(inside, gymnasium.Wrapper):
        if isinstance(inside, gymnasium.wrappers.TimeLimit):
            return inside
        inside = inside.env
    return None


def timed(make: Callable[[], Any]) -> ShowTime:
    """What the function makes, with its time shown."""
    return ShowTime(make())


class ShowTime(gymnasium.ObservationWrapper):
    """The observation with the time beside it, as a bar that is full at the step where the episode is cut off.

    Where rewards are withheld to the end, a cut pays them: unseen, when that comes is luck. Gymnasium's
    TimeAwareObservation has one number in place of the bar, and counts steps that Atari's limit does not.
    """

    PARTS = 25

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.limit = limit_of(env)
        if self.limit is None:
            raise ValueError(
                "show_time=true needs to know when episodes are cut off, and this environment does not say: give"
                " max_episode_steps where Gymnasium makes it, or put gymnasium.wrappers.TimeLimit around it"
            )
        time = gymnasium.spaces.Box(0, 1, (self.PARTS,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"obs": env.observation_space, "time": time})

    def observation(self, observation: Any) -> dict[str, Any]:
        share = self.limit._elapsed_steps / self.limit._max_episode_steps
        return {"obs": observation, "time": bar(share, self.PARTS)}


class Stacked(gymnasium.Wrapper):
    """The last frames of a picture, as its channels; at the beginning of an episode all are the first one."""

    def __init__(self, env: gymnasium.Env, count: int) -> None:
        super().__init__(env)
        self.count = count
        space: Any = env.observation_space
        self.observation_space = gymnasium.spaces.Box(0, 255, (*space.shape[:2], count), np.uint8)
        self.frames = np.zeros(self.observation_space.shape, np.uint8)

    def reset(self, **options: Any) -> Any:
        frame, info = self.env.reset(**options)
        self.frames = np.repeat(frame[..., None], self.frames.shape[2], axis=2)
        return self.frames, info

    def step(self, action: Any) -> Any:
        frame, *rest = self.env.step(action)
        self.frames = np.concatenate([self.frames[..., 1:], frame[..., None]], axis=2)
        return self.frames, *rest
