"""What every table has to satisfy, and the plainest solver."""

from collections.abc import Callable

import numpy as np
import pytest

from highway_rl.envs.models.tables import Table


def _check_table(table: Table) -> None:
    states, actions, _ = table.successor.shape
    assert table.reward.shape == (states, actions)
    assert table.probability.shape == table.successor.shape
    assert (table.reward.dtype, table.successor.dtype, table.probability.dtype) == (np.float64, np.int32, np.float64)
    assert np.isfinite(table.reward).all()
    assert table.probability.min() >= 0
    np.testing.assert_allclose(table.probability.sum(-1), 1, rtol=0, atol=1e-12)
    assert table.successor.min() >= 0
    assert table.successor.max() < states
    padding = table.probability == 0
    own = np.broadcast_to(np.arange(states)[:, None, None], padding.shape)
    assert (table.successor == own)[padding].all()


def _optimal_values(table: Table, discount: float, sweeps: int) -> np.ndarray:
    q = np.zeros(table.reward.shape)
    for _ in range(sweeps):
        q = table.reward + discount * (table.probability * q.max(1)[table.successor]).sum(-1)
    return q


def _distances(table: Table) -> np.ndarray:
    """The least number of transitions from state 0 to each state, -1 where there is no way."""
    distance = np.full(len(table.reward), -1)
    frontier, steps = np.array([0]), 0
    while frontier.size:
        distance[frontier] = steps
        steps += 1
        ahead = table.successor[frontier][table.probability[frontier] > 0]
        frontier = np.unique(ahead[distance[ahead] < 0])
    return distance


@pytest.fixture(scope="session")
def check_table() -> Callable[[Table], None]:
    return _check_table


@pytest.fixture(scope="session")
def optimal_values() -> Callable[[Table, float, int], np.ndarray]:
    return _optimal_values


@pytest.fixture(scope="session")
def distances() -> Callable[[Table], np.ndarray]:
    return _distances
