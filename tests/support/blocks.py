"""Mazes in blocks of states, and a solve one of whose workers is killed."""

import functools
import os
import signal

import numpy as np

from highway_rl import envs
from highway_rl.mdp.model import SparseMDP
from highway_rl.solvers import BlockRows, highway_solve

SIDE, DISCOUNT = 20, 0.95


def maze(side: int, discount: float = DISCOUNT):
    return envs.make("maze", height=side, width=side, slip=0.1, braid=0.3, discount=discount)


@functools.cache
def _whole(side: int, discount: float) -> SparseMDP:
    return maze(side, discount).sparse()


def load(side, first, last, discount=DISCOUNT):
    """A piece of a maze, as a worker would read it from its own disk."""
    model = _whole(side, discount)
    rows = model.transition[first * 4 : last * 4]
    return model.reward[first:last], rows, discount


def agree(one, other):
    assert one.converged
    assert other.converged
    assert np.abs(one.value - other.value).max() <= one.bound + other.bound


def killed(model, found, tol):
    """A solve whose worker of the third block is killed in the middle, and how often a worker began anew."""
    rows = BlockRows(*model, found)
    victim, seen = found.submit(2, os.getpid).result(), []

    def kill(iteration, bound):
        seen.append(bound)
        if len(seen) == 1:
            os.kill(victim, signal.SIGKILL)

    solution = highway_solve(rows, tol, progress=kill)
    assert len(seen) > 1
    assert rows.restarts >= 1
    assert found.submit(2, os.getpid).result() != victim
    return rows, solution
