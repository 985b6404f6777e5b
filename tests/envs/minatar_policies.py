"""Policies for the original games: random play, and scripted play good enough to reach the rare states.

They look at the original's own variables. `Notice` names the rare events of a step, for the tests to count.
"""

from __future__ import annotations

import numpy as np

NONE, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


def random_policy(seed):
    source = np.random.RandomState(seed)
    return lambda env: int(source.randint(6))


class Notice:
    """Compares a step's variables with those of the step before."""

    def __init__(self, game):
        self.look = getattr(self, game)
        self.before = None

    def __call__(self, env, reward):
        now, events = self.look(env, reward)
        self.before = now
        return events

    def breakout(self, env, reward):
        bricks = int(np.count_nonzero(env.brick_map))
        events = ["brick"] if reward else []
        if self.before is not None and bricks > self.before:
            events.append("new rows")
        if env.strike and not reward:
            events.append("passes a second brick")
        return bricks, events


def breakout(seed):
    """Follows the ball to where it will come down, and catches it by the middle or by the edge as the dice say."""
    source = np.random.RandomState(seed)
    plan = {"edge": False, "descending": False}

    def landing(env):
        steps = {0: (-1, -1), 1: (1, -1), 2: (1, 1), 3: (-1, 1)}
        x, y, (dx, dy), bricks, strike = env.ball_x, env.ball_y, steps[env.ball_dir], env.brick_map.copy(), env.strike
        for _ in range(60):
            nx, ny = x + dx, y + dy
            if not 0 <= nx <= 9:
                nx, dx = min(max(nx, 0), 9), -dx
            if ny < 0:
                ny, dy, strike = 0, -dy, False
            elif bricks[ny, nx]:
                if not strike:
                    bricks[ny, nx], ny, dy = 0, y, -dy
                strike = True
            elif ny == 9:
                return x, nx
            else:
                strike = False
            x, y = nx, ny
        return x, x

    def act(env):
        descending = env.ball_dir in (2, 3)
        if descending and not plan["descending"]:
            plan["edge"] = source.rand() < 0.4
        plan["descending"] = descending
        target = landing(env)[plan["edge"]]
        return LEFT if env.pos > target else RIGHT if env.pos < target else NONE

    return act


SCRIPTED = {"breakout": breakout}
