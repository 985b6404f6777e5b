"""The delayed-reward tasks as Gymnasium environments: `gymnasium.make("highway_rl/TraceBack-v0", delay=20)`.

Importing this module, or `highway_rl.integrations.gymnasium`, makes them known to Gymnasium.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np

from highway_rl import checks
from highway_rl.envs.registry import TASKS, make_task

IDS = {name: "".join(part.capitalize() for part in name.split("-")) for name in TASKS}


class GymDiscrete(gymnasium.Env[np.int64, np.int64]):
    """A pure environment behind Gymnasium's interface; the state's number is the observation."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, task: str, render_mode: None = None, **options: Any) -> None:
        if render_mode is not None:
            raise checks.refusal("render_mode", render_mode, "None, there is nothing to draw")
        self.env = make_task(task, **options)
        self.observation_space = gymnasium.spaces.Discrete(self.env.num_states)
        self.action_space = gymnasium.spaces.Discrete(self.env.spec.num_actions)
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)
        self._key = jax.random.key(0)
        self._ended = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state, obs = self._reset(self._next_key())
        self._ended = False
        return np.int64(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._ended:
            raise RuntimeError("the episode has ended or not begun: call reset before step")
        new = self._step(self._state, checks.actions(action, self.env.spec.num_actions), self._next_key())
        self._state, self._ended = new.state, bool(new.terminated | new.truncated)
        return np.int64(new.obs), float(new.reward), bool(new.terminated), bool(new.truncated), {}

    def _next_key(self) -> Any:
        self._key, key = jax.random.split(self._key)
        return key


def register() -> None:
    """Make the tasks known to Gymnasium, once."""
    for task, name in IDS.items():
        if f"highway_rl/{name}-v0" not in gymnasium.registry:
            gymnasium.register(f"highway_rl/{name}-v0", entry_point=f"{__name__}:GymDiscrete", kwargs={"task": task})


register()
