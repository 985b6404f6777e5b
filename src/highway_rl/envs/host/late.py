"""Rewards that are withheld, for worlds of any form: what `envs.wrappers.delay_reward` does, on arrays of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from highway_rl.envs.host.worlds import Came, Leaves


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
        if self.feature == "amount":
            return [*leaves, (np.sign(owed) * np.log1p(np.abs(owed))).astype(np.float32)[:, None]]
        place = earned if self.feature == "count" else owed.astype(np.int64)
        return [*leaves, np.arange(self.width) == np.clip(place, 0, self.width - 1)[:, None]]

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
        return came._replace(after=after, here=here, reward=reward)

    def close(self) -> None:
        self.worlds.close()
