"""An environment's own observations and actions, for an agent that has left it."""

from __future__ import annotations

from typing import Any

import numpy as np

from highway_rl import checks
from highway_rl.envs.host import written
from highway_rl.envs.host.spaces import NoObservation, acting, seeing
from highway_rl.envs.host.worlds import one_of


class Own:
    """From what Gymnasium's `reset` and `step` return to an agent's arrays; from its numbers to what `step` takes."""

    def __init__(self, spaces: str) -> None:
        self.observation, self.action = written.read(spaces)
        self.acting = acting(self.action, "the environment")
        self.plain = type(self.action).__name__ == "Discrete" and self.acting.action(0) == 0

    def same(self, spaces: str, name: str) -> None:
        """Refuses an environment with other spaces."""
        for what, mine, theirs in zip(
            ("observations", "actions"), (self.observation, self.action), written.read(spaces), strict=True
        ):
            if mine != theirs:
                raise ValueError(
                    f"{name} has {what} {checks.one_line(theirs)}, the agent {checks.one_line(mine)}: give an"
                    " environment like the one it was trained on"
                )

    def arrays(self, obs: Any) -> tuple[list[np.ndarray], bool]:
        """The arrays of one observation or of a batch of them, with a first axis, and whether there was only one."""
        seen: Any = seeing(self.observation)
        try:
            return [x[None] for x in seen.leaves(obs)], True
        except NoObservation as error:
            problem = error
        try:
            count = len(_first(obs))
            each = [seen.leaves(one_of(obs, i)) for i in range(count)]
            return [np.stack(leaf) for leaf in zip(*each, strict=True)], False
        except (NoObservation, TypeError, IndexError, KeyError, ValueError):
            raise ValueError(f"{problem}: give an observation of {checks.one_line(self.observation)}") from None

    def actions(self, numbers: Any) -> Any:
        """The environment's own action for a number, or for each of an array."""
        if self.plain:
            return numbers
        if isinstance(numbers, int):
            return self.acting.action(numbers)
        return np.stack([self.acting.action(int(number)) for number in numbers])

    def numbers(self, actions: Any) -> Any:
        """The numbers of a list of the environment's own actions."""
        if self.plain:
            return actions
        every = [np.asarray(self.acting.action(i)) for i in range(self.acting.number)]
        found = [next((i for i, one in enumerate(every) if np.array_equal(one, mine)), None) for mine in actions]
        if None in found:
            given = checks.one_line(actions[found.index(None)])
            raise ValueError(f"action {given} is none of the environment's: give one of {checks.one_line(self.action)}")
        return found


def _first(obs: Any) -> Any:
    """Any array of an observation."""
    while isinstance(obs, dict | tuple):
        obs = next(iter(obs.values())) if isinstance(obs, dict) else obs[0]
    return obs
