"""Rewards that are withheld, for worlds of any form and as a Gymnasium wrapper: what `envs.wrappers.delay_reward` does,
on the host."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, MultiBinary

from highway_rl.envs.host.worlds import Came, Leaves
from highway_rl.envs.wrappers import SIZES, amounts, as_delay, check_delay


def with_feature(space: Space, feature: str, width: int) -> Dict:
    """The space of observations that tell what is owed."""
    return Dict({"obs": space, "feature": Box(-1, 1, SIZES.shape) if feature == "amount" else MultiBinary(width)})


class Late:
    """Worlds whose rewards are paid later, and whose observations say what was earned (see `wrappers.delay_reward`)."""

    def __init__(self, worlds: Any, until: Any, feature: str, width: int, seed: int) -> None:
        self.worlds, self.until, self.feature, self.width = worlds, until, feature, width
        self.count = worlds.count
        self.rng = np.random.default_rng(seed)
        self.earned, self.owed = np.zeros(self.count, np.int64), np.zeros(self.count)
        self.due = self._next()

    def _next(self) -> np.ndarray:
        """Steps until each environment's next payment; 0 is never."""
        if isinstance(self.until, range):
            return np.array(self.until)[self.rng.integers(len(self.until), size=self.count)]
        return np.full(self.count, 0 if self.until == "end" else int(self.until))

    def _seen(self, leaves: Leaves, earned: np.ndarray, owed: np.ndarray) -> Leaves:
        """The feature first: the keys of a dict are in order, and "feature" comes before "obs"."""
        if self.feature == "amount":
            return [amounts(owed.astype(np.float32)), *leaves]
        place = earned if self.feature == "count" else owed.astype(np.int64)
        return [np.arange(self.width) == np.clip(place, 0, self.width - 1)[:, None], *leaves]

    def reset(self) -> Leaves:
        return self._seen(self.worlds.reset(), self.earned, self.owed)

    def send(self, actions: np.ndarray) -> None:
        self.worlds.send(actions)

    def receive(self) -> Came:
        came = self.worlds.receive()
        ended = came.terminated | came.truncated
        self.earned += came.reward != 0
        self.owed += came.reward
        pays = ended | (self.due == 1)
        reward = np.where(pays, self.owed, 0).astype(np.float32)
        self.due = np.where(pays, self._next(), self.due - (came.real & (self.due > 0)))
        left = np.where(pays, 0, self.owed)
        after = self._seen(came.after, self.earned, self.owed if self.until == "end" else left)
        self.earned, self.owed = np.where(ended, 0, self.earned), left
        here = self._seen(came.here, self.earned, self.owed)
        if self.until == "end":
            came = came._replace(terminated=ended, truncated=np.zeros_like(ended))
        return came._replace(after=after, here=here, reward=reward)

    def close(self) -> None:
        self.worlds.close()


class DelayReward(gymnasium.Wrapper):
    """Withholds the rewards of any Gymnasium environment; see `highway_rl.envs.wrappers.delay_reward`.

    The observation becomes {"obs": the old one, "feature": a one-hot place for the count or the score so far, or the
    amount owed as `highway_rl.envs.wrappers.amounts`}.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        until: Literal["end"] | int | range = "end",
        *,
        feature: Literal["count", "score", "amount"] = "count",
        width: int = 64,
    ) -> None:
        super().__init__(env)
        until = as_delay(until)
        check_delay(until, feature, width)
        self.until, self.feature, self.width = until, feature, width
        self.observation_space = with_feature(env.observation_space, feature, width)
        self._count, self._owed, self._due = 0, 0.0, 0

    def _next_due(self) -> int:
        if isinstance(self.until, range):
            return int(self.until[self.np_random.integers(len(self.until))])
        return 0 if self.until == "end" else int(self.until)

    def _observed(self, obs: Any, owed: float) -> dict[str, Any]:
        if self.feature == "amount":
            return {"obs": obs, "feature": amounts(np.float32(owed))}
        value = self._count if self.feature == "count" else int(owed)
        feature = np.zeros(self.width, np.int8)
        feature[min(max(value, 0), self.width - 1)] = 1
        return {"obs": obs, "feature": feature}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict[str, Any], dict]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._count, self._owed, self._due = 0, 0.0, self._next_due()
        return self._observed(obs, 0.0), info

    def step(self, action: Any) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._count += float(reward) != 0
        self._owed += float(reward)
        owed, paid = self._owed, 0.0
        if terminated or truncated or self._due == 1:
            self._owed, paid, self._due = 0.0, owed, self._next_due()
        else:
            self._due -= self._due > 0
        if self.until == "end":
            return self._observed(obs, owed), paid, terminated or truncated, False, info
        return self._observed(obs, self._owed), paid, terminated, truncated, info
