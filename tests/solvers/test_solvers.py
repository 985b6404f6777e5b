"""Solvers: they agree with each other and with two other libraries, and their certified error is one."""

from __future__ import annotations

import re
import time
from typing import Any

import gymnasium
import mdptoolbox.mdp
import numpy as np
import pytest
import quantecon
import scipy.sparse as sp
from models import dense, grid, precise_value, random_mdp, stopping_mdp

from highway_rl import MDP, envs, solve
from highway_rl.solvers import METHODS, gauss_seidel
from highway_rl.solvers.classic import _levels


def error_of(solution: Any, reference: np.ndarray) -> float:
    return float(np.abs(solution.value - reference).max())


def inventory(discount: float = 0.95, capacity: int = 8) -> MDP:
    """Demand is uniform on 0…4; 8 per sale, −4 per order, −2 per unit, −1 to hold (after Puterman 3.2)."""
    S = capacity + 1
    P, R = np.zeros((S, S, S)), np.zeros((S, S))
    for s in range(S):
        for order in range(S):
            bought = min(order, capacity - s)
            R[s, order] = -(4 * (bought > 0) + 2 * bought) - (s + bought)
            for demand in range(5):
                sold = min(demand, s + bought)
                P[s, order, s + bought - sold] += 0.2
                R[s, order] += 0.2 * 8 * sold
    return MDP.from_dense(P, R, discount)


STRUCTURED = {
    "grid": lambda: grid(5, 0.95),
    "slippery grid": lambda: grid(5, 0.9, slip=0.3),
    "costly grid": lambda: grid(4, 0.95, step_reward=-1.0),
    "inventory": inventory,
    "one state": lambda: MDP.from_dense([[[1.0], [1.0]]], [[1.0, 2.0]], 0.9),
    "one action": lambda: MDP.from_dense([[[0.0, 1.0]], [[1.0, 0.0]]], [1.0, 0.0], 0.9),
    "disconnected": lambda: MDP.from_dense(np.stack([np.eye(4)] * 2, 1), np.arange(8.0).reshape(4, 2), 0.9),
    "no reward": lambda: random_mdp(3, discount=0.0),
    "deterministic ends": lambda: random_mdp(5, deterministic=True, ends=2),
    "ties": lambda: MDP.from_dense(np.full((3, 4, 3), 1 / 3), np.ones((3, 4)), 0.9),
}
CASES = {**STRUCTURED, **{f"random {seed}": lambda seed=seed: random_mdp(seed, ends=seed % 3) for seed in range(40)}}


@pytest.mark.parametrize("name", CASES)
def test_all_methods_and_two_other_libraries_agree(name: str) -> None:
    """50 random and structured models, 1e-8: every method, QuantEcon's DiscreteDP, pymdptoolbox."""
    mdp = CASES[name]()
    P, R, g = dense(mdp)
    reference = precise_value(mdp)
    for method in METHODS:
        solution = solve(mdp, method, tol=5e-9)
        assert solution.converged
        assert error_of(solution, reference) <= min(solution.bound, 5e-9)
    discount = float(g[0, 0])
    ddp = quantecon.markov.DiscreteDP(R, P, discount)
    np.testing.assert_allclose(ddp.solve(method="policy_iteration").v, reference.astype(float), atol=1e-8, rtol=0)
    if 0 < discount < 1 and len(R) > 1:  # pymdptoolbox takes no discount 0, and reads one state as no states
        other = mdptoolbox.mdp.PolicyIteration(P.transpose(1, 0, 2), R, discount)
        other.run()
        np.testing.assert_allclose(other.V, reference.astype(float), atol=1e-8, rtol=0)


def test_closed_forms() -> None:
    """Puterman's two-state example (3.1), a chain, a geometric lottery."""
    # 3.1: a stays (½,½) for 5, b leaves for 10 and never returns, state 2 pays −1; γ = 0.95: V = (−8.566…, −20)
    mdp = MDP.from_dense([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]], [[5.0, 10.0], [-1.0, -1.0]], 0.95)
    first = max((5 + 0.475 * -20) / (1 - 0.475), 10 + 0.95 * -20)
    for method in METHODS:
        np.testing.assert_allclose(solve(mdp, method, tol=1e-9).value, [first, -20.0], atol=1e-9)
    # a chain of n steps to a reward of 1: V(s) = γ^(n−1−s)
    n = 30
    P = np.zeros((n + 1, 1, n + 1))
    P[np.arange(n + 1), 0, np.minimum(np.arange(n + 1) + 1, n)] = 1
    R = np.zeros((n + 1, 1))
    R[n - 1] = 1
    chain = MDP.from_dense(P, R, 0.9)
    # one try succeeds with probability p and pays 1, else again at discount γ: V = p / (1 − γ(1−p))
    lottery = MDP.from_dense([[[0.7, 0.3]], [[0.0, 1.0]]], [[0.3], [0.0]], 0.8)
    for method in METHODS:
        np.testing.assert_allclose(solve(chain, method, tol=1e-9).value[:n], 0.9 ** np.arange(n - 1, -1, -1), atol=1e-9)
        assert solve(lottery, method, tol=1e-9).value[0] == pytest.approx(0.3 / (1 - 0.8 * 0.7), abs=1e-9)


# ---- Gymnasium's toy-text worlds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_cliff_walking(method: str) -> None:
    """13 steps along the edge, certified without discounting."""
    solution = solve(MDP.from_gymnasium("CliffWalking-v1", 1.0), method, tol=1e-9)
    assert solution.converged
    assert solution.value[36] == pytest.approx(-13, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_frozen_lake(method: str) -> None:
    """8×8: V(0) = 0.41464036… at discount 0.99; at discount 1 the goal is reached with certainty, uncertified."""
    assert solve(MDP.from_gymnasium("FrozenLake8x8-v1", 0.99), method, tol=1e-9).value[0] == pytest.approx(
        0.4146403618, abs=1e-8
    )
    sure = solve(MDP.from_gymnasium("FrozenLake8x8-v1", 1.0), method)
    assert sure.value[0] == pytest.approx(1.0, abs=1e-9)
    assert not sure.converged  # wandering for ever costs nothing there, so nothing bounds V* from above
    assert sure.bound == np.inf


@pytest.mark.parametrize("method", METHODS)
def test_taxi(method: str) -> None:
    """The optimal return is 21 − the fewest moves, counted by breadth-first search over the environment's table."""
    env = gymnasium.make("Taxi-v4").unwrapped
    table, initial = env.P, env.initial_state_distrib  # type: ignore[attr-defined]
    steps = {s: 1 for s in table for a in table[s] if any(done and r == 20 for _, _, r, done in table[s][a])}
    frontier = set(steps)
    before: dict[int, set[int]] = {}
    for s in table:
        for a in table[s]:
            (_, t, r, done) = table[s][a][0]
            if not done and r == -1:
                before.setdefault(t, set()).add(s)
    while frontier:
        frontier = {
            s for t in frontier for s in before.get(t, ()) if s not in steps and not steps.update({s: steps[t] + 1})
        }
    starts = np.flatnonzero(initial)
    known = np.array([21 - steps[s] for s in starts])
    assert known.mean() == pytest.approx(7.93, abs=0.005)
    solution = solve(MDP.from_gymnasium("Taxi-v4", 1.0), method, tol=1e-9)
    assert solution.converged
    np.testing.assert_allclose(solution.value[starts], known, atol=1e-9)


# ---- the certificate -----------------------------------------------------------------------------------------------

KINDS = {
    "discounted": lambda seed: random_mdp(seed),
    "per pair": lambda seed: random_mdp(seed, discount="per pair"),
    "absorbing": lambda seed: random_mdp(seed, ends=1 + seed % 2),
    "deterministic": lambda seed: random_mdp(seed, deterministic=True, ends=seed % 2),
    "near 1": lambda seed: random_mdp(seed, discount=0.9999),
    "discount 1, every policy ends": lambda seed: stopping_mdp(seed),
    "discount 1, each step costs": lambda seed: stopping_mdp(seed, cost=True),
}


def policy_value(mdp: MDP, policy: np.ndarray) -> np.ndarray:
    P, R, g = dense(mdp)
    rows = np.arange(len(R))
    A = np.eye(len(R)) - g[rows, policy, None] * P[rows, policy]
    ends = A.any(axis=1) == 0
    return np.linalg.solve(A + np.diag(ends.astype(float)), R[rows, policy])


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_the_bound_holds_at_every_stage(kind: str, method: str) -> None:
    """|V − V*| ≤ bound and V* − V^π ≤ 2·bound after any number of iterations, from any V₀, and it is no wild bound."""
    loose = []
    for seed in range(6):
        mdp = KINDS[kind](seed)
        reference = precise_value(mdp)
        tol = 1e-7 * max(1.0, float(abs(reference).max()))
        start = np.random.default_rng(seed).normal(size=mdp.num_states) * 10.0 ** (seed % 4) if seed % 2 else None
        for max_iters in (1, 2, 5, 25):
            for until in ("bound", "loss" if method == "gated" else "change")[: 1 + seed % 2]:
                solution = solve(mdp, method, tol=tol, max_iters=max_iters, value=start, until=until)
                error = error_of(solution, reference)
                assert error <= solution.bound
                assert len(solution.history["bound"]) == solution.num_iters <= max_iters
                if np.isfinite(solution.bound):
                    loss = float(np.max(reference - policy_value(mdp, solution.policy)))
                    assert loss <= 2 * solution.bound + 1e-9 * abs(reference).max()
                    if error > 1e-6:
                        loose.append(solution.bound / error)
    if loose:
        assert np.median(loose) < 100


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_the_bound_counts_rounding(shift: float) -> None:
    """Values of 1e6 at discount 0.999999: the half-width in exact arithmetic is far below what float64 knows."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(10), size=(10, 2))
    mdp = MDP.from_dense(P / P.sum(-1, keepdims=True), rng.uniform(size=(10, 2)) + shift, 0.999999)
    reference = precise_value(mdp)
    for method in ("policy-iteration", "highway", "modified-policy-iteration"):
        for max_iters in (1, 5, 30):
            solution = solve(mdp, method, tol=10.0 + shift, max_iters=max_iters)
            assert error_of(solution, reference) <= solution.bound


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_unreachable_tolerances_name_a_reachable_one(method: str, scale: float) -> None:
    """One line that names a tolerance, and that tolerance works, whatever the size of the rewards."""
    for seed in range(3):
        mdp = random_mdp(seed, discount=0.9, ends=seed % 2)
        mdp = MDP.from_table(np.asarray(mdp.reward) * scale, mdp.successor, mdp.probability, 0.9)
        with pytest.raises(ValueError, match="below what float64 can certify") as caught:
            solve(mdp, method, tol=1e-17 * scale)
        assert "\n" not in str(caught.value)
        tol = float(re.search(r"tol >= (\S+)", str(caught.value)).group(1))  # type: ignore[union-attr]
        assert tol < 1e-9 * max(scale * 100, 1e-300)
        solution = solve(mdp, method, tol=tol)
        assert solution.converged
        assert error_of(solution, precise_value(mdp)) <= solution.bound <= tol


def test_a_far_start_is_no_reason_to_refuse() -> None:
    """Rounding at V₀ = 1e12 says nothing about what V* allows."""
    mdp = random_mdp(1, discount=0.5)
    for method in METHODS:
        assert solve(mdp, method, tol=1e-9, value=np.full(mdp.num_states, 1e12)).converged


PAYS = {
    "two states in turn": ([[1, 2], [0, 0], [2, 2]], [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
    "a state that stays": ([[0, 1], [1, 1]], [[1.0, 0.0], [0.0, 0.0]]),
    "up and down": ([[1, 2], [0, 0], [2, 2]], [[2.0, 0.0], [-1.0, -1.0], [0.0, 0.0]]),
    "beside a loop for nothing": ([[0, 3], [2, 3], [1, 1], [3, 3]], [[0.0, 0.0], [0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", PAYS)
def test_a_cycle_that_pays_for_ever(kind: str, method: str) -> None:
    """Discount 1, an end within reach, and a loop that pays: V* is infinite; converged=False says so, and soon."""
    successor, reward = PAYS[kind]
    solution = solve(MDP.from_dense(np.eye(len(reward))[np.array(successor)], reward, 1.0), method)
    assert not solution.converged
    assert solution.bound == np.inf
    assert np.all(np.isfinite(solution.value))
    assert solution.num_iters <= 64


@pytest.mark.parametrize("method", METHODS)
def test_loops_for_nothing_do_not_stop_a_method_early(method: str) -> None:
    """State 0 may end, loop for nothing, or take 5 on the way to state 1. No certificate, but V is right.

    Policy iteration starts from the policy that ends at once, whose value is V₀ = 0: no change, and no fixed point.
    """
    successor = np.array([[2, 1, 0], [2, 2, 2], [2, 2, 2]])
    mdp = MDP.from_dense(np.eye(3)[successor], [[0.0, 5.0, 0.0], [0.0] * 3, [0.0] * 3], 1.0)
    solution = solve(mdp, method)
    assert not solution.converged
    assert solution.value.tolist() == [5.0, 0.0, 0.0]


@pytest.mark.parametrize("method", METHODS)
def test_extreme_models(method: str) -> None:
    """Discount 0, all absorbing, zero rewards, rewards that overflow, ends given a wrong value."""
    myopic = random_mdp(2, discount=0.0)
    np.testing.assert_allclose(solve(myopic, method, tol=1e-9).value, np.max(myopic.reward, axis=1), atol=1e-9)
    ended = MDP.from_dense(np.stack([np.eye(3)] * 2, 1), np.zeros((3, 2)), 1.0)
    nothing = solve(ended, method, value=[5.0, 6.0, 7.0])
    assert nothing.converged
    assert nothing.bound == 0
    assert not nothing.value.any()
    P = np.full((2, 1, 2), 0.5)
    assert solve(MDP.from_dense(P, np.zeros((2, 1)), 0.9), method, tol=1e-30).value.tolist() == [0.0, 0.0]
    assert not solve(MDP.from_dense(P, np.full((2, 1), 1e308), 0.9), method, tol=1.0, max_iters=200).converged
    mdp = random_mdp(7, ends=2, discount=0.9)
    start = np.full(mdp.num_states, 100.0)
    np.testing.assert_allclose(
        solve(mdp, method, tol=1e-9, value=start).value, precise_value(mdp).astype(float), atol=1e-9
    )


def test_policy_iteration_does_not_cycle_on_ties() -> None:
    """Symmetric grids and equal actions: few iterations, also where evaluation is by Krylov (many states)."""
    for mdp in (grid(12, 0.9999), grid(12, 0.9999, slip=0.4), grid(12, 1.0, slip=0.2, step_reward=-0.1)):
        assert solve(mdp, "pi", tol=1e-6).num_iters <= 40
    S = 4000
    ring = [sp.csr_array((np.full(2 * S, 0.5), (np.tile(np.arange(S), 2), np.r_[i, j])), shape=(S, S))
            for i, j in [((np.arange(S) + d) % S, (np.arange(S) - d) % S) for d in (1, 2, 3)]]  # fmt: skip
    solution = solve(MDP.from_scipy(ring, np.ones(S), 0.99), "pi", tol=1e-8)
    assert solution.converged
    assert solution.num_iters <= 5


def test_policy_iteration_starts_from_a_policy_that_ends() -> None:
    """A state whose discounted action is the only way out of an undiscounted loop; a slippery world with a far end."""
    P = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]])
    mdp = MDP.from_dense(P, [[-1.0, -3.0], [0.0, -1.0]], [[1.0, 0.9], [0.9, 0.9]])
    assert solve(mdp, "pi", tol=1e-9).value[0] == pytest.approx(-3 / (1 - 0.81), abs=1e-8)
    far = grid(15, 1.0, slip=0.3, step_reward=-1.0)
    np.testing.assert_allclose(solve(far, "pi", tol=1e-7).value, solve(far, "mpi", tol=1e-7).value, atol=2e-7)


@pytest.mark.parametrize(("name", "options"), [("maze", {"height": 20, "width": 20}), ("cliff-walking", {})])
def test_gauss_seidel_is_quick_where_steps_cost(name: str, options: dict) -> None:
    """With V₀ = 0 above V*, order gains nothing over VI; lifted below V*, the first sweep is the last but one."""
    mdp = envs.make(name, **options)
    plain, lifted = gauss_seidel(mdp), solve(mdp, "gauss-seidel")
    assert plain.num_iters >= 0.9 * solve(mdp, "value-iteration").num_iters > 10
    assert lifted.num_iters <= 2
    np.testing.assert_allclose(lifted.value, plain.value, atol=1e-9)


def test_gauss_seidel_goes_level_by_level_from_the_ends() -> None:
    """Levels are the distances to an end; on a deterministic goal world from below one sweep is enough."""
    mdp = grid(4, 0.9)
    levels = _levels(mdp.sparse())
    assert [len(level) for level in levels] == [1, 2, 3, 4, 3, 2, 1]
    assert levels[0].tolist() == [15]
    assert sorted(np.concatenate(levels).tolist()) == list(range(16))
    assert solve(mdp, "gs").num_iters == 1
    assert solve(grid(12, 0.99), "gs").num_iters == 1
    split = MDP.from_dense([[[1.0, 0, 0]], [[0, 1.0, 0]], [[0, 0, 1.0]]], [0.0, 1.0, 2.0], 0.5)  # an end, two islands
    assert [level.tolist() for level in _levels(split.sparse())] == [[0], [1, 2]]


def test_history_progress_and_options() -> None:
    mdp = random_mdp(4, discount=0.9)
    seen: list[tuple[int, float]] = []
    solution = solve(mdp, "vi", tol=1e-9, progress=lambda k, bound: seen.append((k, bound)))
    assert [k for k, _ in seen] == list(range(1, solution.num_iters + 1))
    assert {len(series) for series in solution.history.values()} == {solution.num_iters}
    assert seen[-1][1] == solution.history["bound"][-1] > solution.bound
    by_change = solve(mdp, "vi", tol=1e-9, until="change")
    assert by_change.history["change"][-1] <= 1e-9 < by_change.history["change"][-2]
    assert solve(mdp, "vi", value=solution.value).num_iters == 0
    assert (
        solve(mdp, "pi", sweeps=0, max_iters=7, tol=1e-9).num_queries
        == solve(mdp, "vi", max_iters=7, tol=1e-9).num_queries
    )
    for options, says in (
        ({"tol": 0.0}, "tol=0.0: give a number > 0"),
        ({"tol": np.inf}, "tol=inf: give a number > 0"),
        ({"tol": np.nan}, "tol=nan"),
        ({"until": "never"}, "until='never': give one of bound, loss"),
        ({"max_iters": 0}, "max_iters=0"),
        ({"value": [np.nan] * mdp.num_states}, "value at state 0 is nan"),
        ({"value": [0.0]}, "value has shape"),
        ({"value": "x"}, "value has dtype"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"method": "pi", "sweeps": -1}, "sweeps=-1"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)) as caught:
            solve(mdp, **options)
        assert "\n" not in str(caught.value)


@pytest.mark.long
def test_large_sparse_models_in_seconds() -> None:
    """2·10⁵ states: a random graph and a slippery chain, all answers within each other's bounds."""
    S, A, K = 200_000, 2, 3
    rng = np.random.default_rng(0)
    columns, p = rng.integers(0, S, S * A * K), rng.dirichlet(np.ones(K), S * A)
    P = sp.csr_array((p.ravel(), columns, np.arange(0, S * A * K + 1, K)), shape=(S * A, S))
    garnet = MDP.from_scipy(P, rng.uniform(size=(S, A)), 0.9)
    here = np.arange(S)
    ahead, back = np.minimum(here + 1, S - 1), np.where(here == S - 1, here, np.maximum(here - 1, 0))
    moves = [sp.coo_array((np.r_[np.full(S, 0.9), np.full(S, 0.1)], (np.r_[here, here], np.r_[x, y])), shape=(S, S))
             for x, y in ((ahead, back), (back, ahead))]  # fmt: skip
    R = np.zeros((S, 2))
    R[S - 2, 0] = 1
    chain = MDP.from_scipy(moves, R, 0.8)
    start = time.perf_counter()
    for mdp in (garnet, chain):
        answers = [solve(mdp, method, tol=1e-2) for method in ("highway", "vi", "mpi")]
        assert all(answer.converged for answer in answers)
        for answer in answers:
            assert error_of(answer, answers[0].value) <= answer.bound + answers[0].bound
    assert time.perf_counter() - start < 60
