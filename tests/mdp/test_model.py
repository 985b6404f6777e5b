"""Models: all constructors build the same thing, leave their input alone, and end episodes rightly."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import scipy.sparse as sp
from models import dense, random_mdp

from highway_rl import MDP, SparseMDP, solve


def some_arrays(seed: int = 0, S: int = 5, A: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, 0.3), size=(S, A))
    P[P < 0.05] = 0
    return P / P.sum(-1, keepdims=True), rng.normal(size=(S, A, S))


def assert_same(a: MDP | SparseMDP, b: MDP | SparseMDP) -> None:
    a, b = a.sparse(), b.sparse()
    np.testing.assert_allclose(a.transition.toarray(), b.transition.toarray(), atol=1e-15)
    np.testing.assert_allclose(a.reward, b.reward, atol=1e-14)
    np.testing.assert_array_equal(a.discount, b.discount)


@pytest.mark.parametrize("seed", range(10))
def test_constructors_agree(seed: int) -> None:
    """Dense arrays, lists of sparse matrices, rows (s,a), padded tables: one model."""
    P, R3 = some_arrays(seed)
    S, A, _ = P.shape
    R = (P * R3).sum(-1)
    reference = MDP.from_dense(P, R, 0.9)
    by_action = [sp.csr_array(P[:, a]) for a in range(A)]
    np.testing.assert_allclose(dense(reference)[0], P, atol=1e-15)
    assert_same(reference, MDP.from_scipy(by_action, R, 0.9))
    assert_same(reference, MDP.from_scipy([m.tocoo() for m in by_action], R, 0.9))
    assert_same(reference, MDP.from_scipy([P[:, a] for a in range(A)], R, 0.9))
    assert_same(reference, MDP.from_scipy(sp.csc_matrix(P.reshape(S * A, S)), R, 0.9))
    assert_same(reference, MDP.from_table(R, np.tile(np.arange(S), (S, A, 1)), P, 0.9))
    outcomes = {s: {a: [(P[s, a, t], t, R3[s, a, t], False) for t in range(S)] for a in range(A)} for s in range(S)}
    assert_same(reference, MDP.from_gymnasium(SimpleNamespace(P=outcomes), 0.9))


def test_rewards_in_every_shape() -> None:
    """R[s], R[s,a], R[s,a,s'] and sparse R mean what they say; impossible outcomes may pay NaN."""
    P, R3 = some_arrays()
    S, A, _ = P.shape
    expected = (P * R3).sum(-1)
    never = np.where(P == 0, np.nan, R3)
    for R in (R3, never, never.tolist(), expected, expected.tolist()):
        np.testing.assert_allclose(MDP.from_dense(P, R, 0.9).reward, expected, atol=1e-14)
    np.testing.assert_array_equal(MDP.from_dense(P, np.arange(S), 0.9).reward, np.arange(S)[:, None] * np.ones(A))
    by_action = [sp.csr_array(P[:, a]) for a in range(A)]
    paid = [sp.csr_array(R3[:, a]) for a in range(A)]
    np.testing.assert_allclose(MDP.from_scipy(by_action, paid, 0.9).reward, expected, atol=1e-14)
    rows, paid_rows = sp.csr_array(P.reshape(-1, S)), sp.coo_array(R3.reshape(-1, S))
    np.testing.assert_allclose(MDP.from_scipy(rows, paid_rows, 0.9).reward, expected, atol=1e-14)


def test_discount_in_every_shape() -> None:
    """One number, one per state, one per state and action."""
    P, R = some_arrays()
    S, A, _ = P.shape
    per_state, per_pair = np.linspace(0, 0.9, S), np.linspace(0, 0.9, S * A).reshape(S, A)
    for discount, expected in ((0.5, np.full((S, A), 0.5)), (per_state, per_state[:, None] * np.ones(A))):
        np.testing.assert_array_equal(MDP.from_dense(P, R, discount).discount, expected)
    np.testing.assert_array_equal(MDP.from_dense(P, R, per_pair).discount, per_pair)


@pytest.mark.parametrize("seed", range(20))
def test_padded_and_sparse_round_trip(seed: int) -> None:
    mdp = random_mdp(seed, ends=seed % 2)
    assert_same(mdp, mdp.sparse().padded())
    again = mdp.sparse().padded().sparse()
    assert again.transition.nnz == mdp.sparse().transition.nnz
    value = np.random.default_rng(seed).normal(size=mdp.num_states)
    P, R, g = dense(mdp)
    np.testing.assert_allclose(mdp.sparse().q_values(value), R + g * (P @ value), atol=1e-12)


def test_inputs_are_left_alone_and_not_shared() -> None:
    """No constructor writes to its input, and writing to the input later does not change the model."""
    P, R3 = some_arrays()
    S, A, _ = P.shape
    R, discount = (P * R3).sum(-1), np.full((S, A), 0.9)
    unsorted = sp.csr_array(
        (np.array([0.5, 0.0, 0.25, 0.25, 1.0]), np.array([1, 0, 1, 0, 0]), np.array([0, 4, 5])), shape=(2, 2)
    )
    successor = np.tile(np.arange(S), (S, A, 1))
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (MDP.from_dense, (P, R, discount)),
        (MDP.from_dense, (P, R3, discount)),
        (MDP.from_table, (R, successor, P, discount)),
        (MDP.from_scipy, ([sp.csr_array(P[:, a]) for a in range(A)], R, discount)),
        (MDP.from_scipy, (unsorted, np.zeros((2, 1)), np.full((2, 1), 0.9))),
    ]
    for build, inputs in cases:
        arrays = [x for item in inputs for x in (item if isinstance(item, list) else [item])]
        buffers = [b for x in arrays for b in ((x.data, x.indices, x.indptr) if sp.issparse(x) else (x,))]
        before = [b.copy() for b in buffers]
        mdp = build(*inputs)
        for buffer, old in zip(buffers, before, strict=True):
            np.testing.assert_array_equal(buffer, old)
        q = mdp.sparse().q_values(np.ones(mdp.num_states))
        for buffer in buffers:
            buffer[...] = 0
        np.testing.assert_array_equal(mdp.sparse().q_values(np.ones(mdp.num_states)), q)
        for buffer, old in zip(buffers, before, strict=True):
            buffer[...] = old


def test_check_false_skips_validation() -> None:
    """The hot path takes what it is given: here rows that sum to 2, a NaN reward, discount 1 without an end."""
    P, R = np.full((2, 1, 2), 1.0), np.array([[np.nan], [0.0]])
    for build in (
        lambda check: MDP.from_dense(P, R, 1.0, check=check),
        lambda check: MDP.from_scipy([sp.csr_array(P[:, 0])], R, 1.0, check=check),
        lambda check: MDP.from_table(R, np.tile([0, 1], (2, 1, 1)), P, 1.0, check=check),
    ):
        assert build(False).num_states == 2
        with pytest.raises(ValueError, match="P at state 0, action 0 sums to 2, not 1"):
            build(True)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4", "CliffWalking-v1"])
def test_toy_text_rows_are_the_environments_own(name: str) -> None:
    """Every row outside the ends is the environment's, and the ends are worth nothing."""
    env = gymnasium.make(name)
    mdp = MDP.from_gymnasium(env, 0.9)
    table = env.unwrapped.P  # type: ignore[attr-defined]
    ends = {t for actions in table.values() for outs in actions.values() for p, t, _, done in outs if done and p > 0}
    assert mdp.num_states == len(table)
    P, R, _ = dense(mdp)
    for s, actions in table.items():
        for a, outcomes in actions.items():
            row, paid = np.zeros(len(table)), 0.0
            for p, t, r, _ in outcomes:
                row[t] += p
                paid += p * r
            np.testing.assert_allclose(P[s, a], np.eye(len(table))[s] if s in ends else row, atol=1e-12)
            assert R[s, a] == pytest.approx(0.0 if s in ends else paid)
    solution = solve(mdp)
    assert all(abs(solution.value[s]) <= 1e-12 for s in ends)
    assert_same(mdp, MDP.from_gymnasium(name, 0.9))


def test_an_episode_that_passes_through_an_end_state() -> None:
    """State 1 ends the episode when entered by action 1 but not by action 0: an extra end state tells them apart."""
    table = {
        0: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 1, 3.0, True)]},
        1: {0: [(0.5, 0, 0.0, False), (0.5, 1, 8.0, True)], 1: [(1.0, 1, 1.0, True)]},
    }
    mdp = MDP.from_gymnasium(SimpleNamespace(P=table, initial_state_distrib=[1.0, 0.0]), 1.0)
    assert mdp.num_states == 3
    # V(1) = max(0.5·V(0) + 4, 1), V(0) = max(V(1), 3)  →  both 8
    np.testing.assert_allclose(solve(mdp).value, [8.0, 8.0, 0.0], atol=1e-6)
    table[0][0] = [(1.0, 0, 0.0, False)]  # now only terminal outcomes enter state 1: it is the end itself
    mdp = MDP.from_gymnasium(SimpleNamespace(P=table, initial_state_distrib=[1.0, 0.0]), 0.9)
    assert mdp.num_states == 2
    np.testing.assert_allclose(solve(mdp).value, [3.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("states", [300_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_a_large_sparse_model_builds_and_backs_up_in_seconds(states: int) -> None:
    rng = np.random.default_rng(0)
    A, K = 2, 3
    columns = rng.integers(0, states, states * A * K)
    P = sp.csr_array(
        (np.full(len(columns), 1 / K), columns, np.arange(0, len(columns) + 1, K)), shape=(states * A, states)
    )
    start = time.perf_counter()
    mdp = MDP.from_scipy(P, rng.uniform(size=(states, A)), 0.9)
    q = mdp.q_values(np.ones(states))
    assert time.perf_counter() - start < 20
    np.testing.assert_allclose(q, mdp.reward + 0.9, atol=1e-9)
