"""A task to show and to copy from: a Gymnasium environment of numpy alone, whose reward comes late."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from highway_rl import checks

GROUND, ROAD, TOWN, WALKER = (236, 238, 240), (200, 204, 208), (0, 158, 115), (213, 94, 0)
INN = (230, 159, 0)


class Crossroads(gymnasium.Env):
    """Two crossroads, then a long way. Late: the end of the right road pays 1, the end of any other nothing.

    At each of the first two steps the action chooses one of `ways` roads; from then on every action walks on, for
    `length` steps. The observation is the number of the place, each with its own: nothing there tells a good road from
    a bad one before its end.

    With `inn` > 0 there is one at the end of every road of the first way, which pays that much for certain. The way to
    the town is then worth more only to those who take the second turn right, too: on average, over what was tried, it
    is worth less.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012

    def __init__(
        self, ways: int = 4, length: int = 40, town: int = 9, inn: float = 0.0, render_mode: str | None = None
    ) -> None:
        checks.whole("ways", ways, 2)
        checks.whole("length", length, 1)
        self.inn = checks.number("inn", inn, 0.0, 1.0)
        checks.whole("town", town, ways if self.inn else 0, ways**2 - 1)
        if render_mode is not None:
            checks.choice("render_mode", render_mode, ("rgb_array",))
        self.ways, self.length, self.town, self.render_mode = ways, length, town, render_mode
        self.observation_space = Discrete(1 + ways + ways**2 * length)
        self.action_space = Discrete(ways)
        self.road, self.steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.road, self.steps = 0, 0
        return self._place(), {}

    def _place(self) -> int:
        """The first crossroads, the second ones, then road by road."""
        if self.steps < 2:
            return self.steps * (1 + self.road)
        return 1 + self.ways + self.road * self.length + min(self.steps - 2, self.length - 1)

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict]:
        if self.steps < 2:
            self.road = self.road * self.ways + int(action)
        self.steps += 1
        ended = self.steps == 2 + self.length
        paid = 1.0 if self.road == self.town else self.inn if self.road < self.ways else 0.0
        return self._place(), paid if ended else 0.0, ended, False, {}

    def render(self) -> np.ndarray:
        """The roads from above, one below the other, the town at the end of one, and whoever walks there."""
        roads, width = self.ways**2, self.length + 3
        board = np.full((roads, width, 3), GROUND, np.uint8)
        board[:, 2:] = board[self.ways // 2 :: self.ways, 1] = board[roads // 2, 0] = ROAD
        board[: self.ways, -1] = INN if self.inn else ROAD
        board[self.town, -1] = TOWN
        row = (roads // 2, self.ways // 2 + self.ways * self.road, self.road)[min(self.steps, 2)]
        board[row, self.steps] = WALKER
        picture = np.kron(board, np.ones((8, 8, 1), np.uint8))
        picture[::8] = picture[1::8] = GROUND
        return picture
