"""Families of large models for `solver.py`, each of any size: a function of the number of states and the discount."""

from __future__ import annotations

import numpy as np

from highway_rl import MDP, envs


def garnet(states: int, discount: float) -> MDP:
    """Random successors anywhere: mixes within a few steps."""
    return envs.make("garnet", states=states, discount=discount)


def local(states: int, discount: float) -> MDP:
    """A ring on which 4 actions have 5 random successors at most 10 places away: mixes slowly."""
    rng = np.random.default_rng(1)
    shape = (states, 4, 5)
    successor = (np.arange(states)[:, None, None] + rng.integers(-10, 11, shape)) % states
    probability = rng.exponential(size=shape)
    return MDP.from_table(
        rng.uniform(size=shape[:2]), successor, probability / probability.sum(-1, keepdims=True), discount, check=False
    )


def maze(states: int, discount: float) -> MDP:
    """A maze with loops; a move slips to either side with chance 0.05 each; every step costs 1."""
    side = round(states**0.5)
    return envs.make("maze", height=side, width=side, slip=0.1, braid=0.3, discount=discount)


def rooms(states: int, discount: float) -> MDP:
    """A row of rooms joined by doors, deterministic; entering the goal pays 1."""
    count = max(4, round((states / 4) ** 0.5 / 4))
    size = round((states / count) ** 0.5)
    height, width = size, count * (size + 1)
    wall = np.zeros((height, width), bool)
    rng = np.random.default_rng(2)
    for room in range(1, count):
        wall[:, room * (size + 1) - 1] = True
        wall[rng.integers(height), room * (size + 1) - 1] = False
    number = np.where(wall, -1, np.cumsum(~wall).reshape(wall.shape) - 1)
    y, x = np.nonzero(~wall)
    moves = []
    for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        ahead = number[np.clip(y + down, 0, height - 1), np.clip(x + right, 0, width - 1)]
        moves.append(np.where(ahead < 0, number[y, x], ahead))
    successor = np.stack(moves, 1)
    goal = len(y) - 1
    successor[goal] = goal
    reward = (successor == goal).astype(float)
    reward[goal] = 0
    return MDP.from_table(reward, successor[..., None], np.ones((*successor.shape, 1)), discount, check=False)


def pendulum(states: int, discount: float) -> MDP:
    """Swing a pendulum up: angle × speed on a grid, 9 torques, four corners by bilinear weights."""
    side = round(states**0.5)
    angle = np.linspace(-np.pi, np.pi, side, endpoint=False)
    speed = np.linspace(-8, 8, side)
    torque = np.linspace(-2, 2, 9)
    th, om, u = np.meshgrid(angle, speed, torque, indexing="ij")
    reward = -(th**2 + 0.1 * om**2 + 0.001 * u**2).reshape(-1, 9)
    om = np.clip(om + 0.05 * (15 * np.sin(th) + 3 * u), -8, 8)
    th = th + 0.05 * om
    i, j = (th + np.pi) / (2 * np.pi) * side, (om + 8) / 16 * (side - 1)
    i0, j0 = np.floor(i).astype(int), np.minimum(np.floor(j).astype(int), side - 2)
    fi, fj = i - i0, j - j0
    corners = [(i0 + a) % side * side + j0 + b for a in (0, 1) for b in (0, 1)]
    weights = [(fi if a else 1 - fi) * (fj if b else 1 - fj) for a in (0, 1) for b in (0, 1)]
    successor = np.stack(corners, -1).reshape(-1, 9, 4)
    return MDP.from_table(reward, successor, np.stack(weights, -1).reshape(successor.shape), discount, check=False)


def chain(states: int, discount: float) -> MDP:
    """A row of states, on or back, slipping with chance 0.3; the goal at the end pays 1."""
    return envs.make("chain", length=states, slip=0.3, discount=discount)


def queues(states: int, discount: float) -> MDP:
    """Two queues in series, each served fast or slow: an action for each pair of rates, costs for waiting."""
    side = round(states**0.5)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    total = 0.9 + 1.2 + 1.2
    successor, probability, reward = [], [], []
    for first in (0.6, 1.2):
        for second in (0.6, 1.2):
            up = np.where(a < side - 1, (a + 1) * side + b, a * side + b)
            on = np.where((a > 0) & (b < side - 1), (a - 1) * side + b + 1, a * side + b)
            off = np.where(b > 0, a * side + b - 1, a * side + b)
            successor.append(np.stack([up, on, off, a * side + b], -1))
            chance = np.array([0.9, first, second, 2.4 - first - second]) / total
            probability.append(np.broadcast_to(chance, successor[-1].shape))
            reward.append(-(a + b) / side - 0.3 * (first > 1) - 0.3 * (second > 1))
    return MDP.from_table(np.stack(reward, 1), np.stack(successor, 1), np.stack(probability, 1), discount, check=False)


def torus(states: int, discount: float) -> MDP:
    """A slippery walk on a torus with random rewards and no end."""
    side = round(states**0.5)
    y, x = np.divmod(np.arange(side * side), side)
    near = np.stack(
        [y * side + (x + 1) % side, (y + 1) % side * side + x, y * side + (x - 1) % side, (y - 1) % side * side + x], 1
    )
    directions = (np.arange(4)[:, None] + (0, 1, 3)) % 4
    successor = near[:, directions]
    reward = np.repeat(np.random.default_rng(3).normal(size=(side * side, 1)), 4, axis=1)
    return MDP.from_table(reward, successor, np.broadcast_to([0.8, 0.1, 0.1], successor.shape), discount, check=False)


FAMILIES = {
    "garnet": garnet,
    "slow-mixing": local,
    "maze": maze,
    "rooms": rooms,
    "pendulum": pendulum,
    "chain": chain,
    "queues": queues,
    "torus": torus,
}
