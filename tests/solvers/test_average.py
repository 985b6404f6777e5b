"""Average reward: closed forms, an independent linear solve, and models without one gain."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from highway_rl import MDP, envs
from highway_rl.solvers import average_reward


def best_gain(P: np.ndarray, R: np.ndarray) -> float:
    """The largest stationary reward over all policies, each by its stationary distribution."""
    S, A = R.shape
    gains = []
    for policy in itertools.product(range(A), repeat=S):
        p, r = P[np.arange(S), policy], R[np.arange(S), policy]
        system = np.vstack([p.T - np.eye(S), np.ones(S)])
        share, *_ = np.linalg.lstsq(system, np.r_[np.zeros(S), 1.0], rcond=None)
        gains.append(share @ r)
    return max(gains)


def test_the_gain_is_the_best_of_all_policies() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        P, R = rng.dirichlet(np.ones(4), size=(4, 3)), rng.normal(size=(4, 3))
        found = average_reward(MDP.from_dense(P, R, 0.9), 1e-9)
        assert found.converged
        assert abs(found.gain - best_gain(P, R)) <= found.bound + 1e-12


def test_a_queue_and_a_period() -> None:
    """M/M/1/c with one rate has a known gain; two states in turn have a period of 2."""
    queue = envs.make(
        "queue", capacity=5, service_rates=(1.0,), service_costs=(0.0,), admission_reward=0.0, holding_cost=0.2
    )
    empty = average_reward(queue, 1e-9)  # never admitting keeps the queue empty: nothing earned, nothing paid
    assert empty.gain == pytest.approx(0.0, abs=1e-9)
    turn = average_reward(MDP.from_dense([[[0.0, 1.0]], [[1.0, 0.0]]], [[3.0], [1.0]], 0.9), 1e-9)
    assert turn.gain == pytest.approx(2.0, abs=1e-9)
    assert abs(turn.bias[0] - turn.bias[1]) == pytest.approx(1.0, abs=1e-8)


def test_two_islands_have_no_common_gain() -> None:
    islands = MDP.from_dense([[[1.0, 0.0]], [[0.0, 1.0]]], [[1.0], [2.0]], 0.9)
    found = average_reward(islands, max_iters=50)
    assert not found.converged
    assert found.bound == pytest.approx(0.5)
    for options, says in (({"tol": 0.0}, "tol=0.0"), ({"sweeps": -1}, "sweeps=-1"), ({"max_iters": 0}, "max_iters=0")):
        with pytest.raises(ValueError, match=says):
            average_reward(islands, **options)
