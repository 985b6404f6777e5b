"""The gated solver: right against a direct solve, safe whatever is proposed, stoppable, and the same without numba."""

from __future__ import annotations

import dataclasses
import itertools
import math
import signal
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from models import dense, grid, precise_value, random_mdp, stopping_mdp
from scipy.sparse.linalg import splu

from highway_rl import MDP, SparseMDP, envs, solve
from highway_rl.solvers import gated, highway_solve, rows
from highway_rl.solvers.free import FreeRows
from highway_rl.solvers.ordered import order_of
from highway_rl.solvers.proposals import anderson, krylov, sweeps


def direct(mdp: SparseMDP) -> np.ndarray:
    """V* by policy iteration with a sparse factorisation, in float64, refined once."""
    S, A = mdp.reward.shape
    policy = mdp.reward.argmax(1)
    for _ in range(500):
        chosen = np.arange(S) * A + policy
        matrix = sp.csc_array(sp.eye_array(S) - sp.diags_array(mdp.discount.ravel()[chosen]) @ mdp.transition[chosen])
        solver, paid = splu(matrix), mdp.reward.ravel()[chosen]
        v = solver.solve(paid)
        v += solver.solve(paid - matrix @ v)
        q = mdp.q_values(v)
        better = q.max(1) > q.ravel()[chosen] + 1e-13 * (1 + np.abs(v).max())
        if not better.any():
            return v
        policy = np.where(better, q.argmax(1), policy)
    raise AssertionError("the reference did not converge")


def models(count: int, large: int) -> Any:
    """So many models of all generators, with random options, up to `large` states."""
    rng = np.random.default_rng(0)
    for seed in range(count):
        gamma = float(rng.choice([0.5, 0.9, 0.99, 0.999]))
        size = int(np.exp(rng.uniform(np.log(4), np.log(large))))
        side = max(2, round(size**0.5))
        slip = float(rng.choice([0.0, 0.1, 0.4]))
        kind = seed % 8
        if kind == 0:
            size = min(size, 1000)  # a random graph fills the direct solve up
            yield envs.make("garnet", states=max(size, 5), branching=int(rng.integers(1, 6)), discount=gamma, seed=seed)
        elif kind == 1:
            yield envs.make("maze", height=side, width=side, slip=slip, braid=0.3, discount=gamma, seed=seed)
        elif kind == 2:
            yield envs.make("maze", height=side, width=side, slip=slip, reward="goal", discount=gamma, seed=seed)
        elif kind == 3:
            yield envs.make("chain", length=max(size, 3), slip=slip, discount=gamma)
        elif kind == 4:
            yield envs.make("queue", capacity=size, discount=gamma)
        elif kind == 5:
            yield envs.make("inventory", capacity=min(side, 40), discount=gamma)
        elif kind == 6:
            yield envs.make("multi-room", rooms=2 + seed % 5, seed=seed, discount=gamma)
        else:
            yield random_mdp(seed, ends=seed % 3)


def check_against_direct(count: int, large: int) -> None:
    for mdp in models(count, large):
        reference = direct(mdp.sparse())
        scale = max(1.0, float(np.abs(reference).max()))
        found = highway_solve(mdp, 1e-7 * scale)
        assert found.converged
        off = float(np.abs(found.value - reference).max())
        assert off <= found.bound + 1e-11 * scale
        assert np.all(found.lower <= reference + 1e-11 * scale)
        assert np.all(found.upper >= reference - 1e-11 * scale)


def test_agrees_with_a_direct_solve() -> None:
    """200 models of all generators, within the certificate."""
    check_against_direct(200, 150)


@pytest.mark.full
def test_agrees_with_a_direct_solve_full() -> None:
    check_against_direct(200, 10_000)


# ---- whatever is proposed ------------------------------------------------------------------------------------------


def adversaries(seed: int, states: int) -> list[Any]:
    rng = np.random.default_rng(seed)

    def some(values: Any) -> Any:
        return lambda policy, x: np.where(rng.random(states) < 0.5, values, x)

    return [
        lambda policy, x: rng.normal(size=states) * 10.0 ** rng.integers(-3, 4),
        some(np.nan),
        some(np.inf),
        some(-np.inf),
        some(1e300),
        some(-1e30),
        lambda policy, x: x + 1e15,
        lambda policy, x: x * -1e8,
        lambda policy, x: np.full(states, 1e18),
        lambda policy, x: np.zeros(states),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_no_proposal_breaks_the_certificate(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """V never exceeds V*, never falls, what is no number is dropped, and the solve still ends, each bound a bound."""
    mdp = random_mdp(seed, ends=seed % 3, discount=[0.5, 0.9, 0.99][seed % 3])
    reference = precise_value(mdp).astype(float)
    least = 1e-13 * (1 + np.abs(reference).max()) / (1 - 0.99)
    floors: list[np.ndarray] = []
    take = gated._Run.take

    def watched(self: Any, x: Any) -> float:
        opened = take(self, x)
        floors.append(self.floor)
        assert np.all(self.best.guess + self.best.low * self.rows.drift.weight <= reference + least)
        assert np.all(self.best.guess + self.best.high * self.rows.drift.weight >= reference - least)
        return opened

    monkeypatch.setattr(gated._Run, "take", watched)
    found = highway_solve(mdp, 1e-7, proposal=adversaries(seed, mdp.num_states), max_iters=5000)
    assert found.converged
    assert np.abs(found.value - reference).max() <= found.bound
    for before, after in itertools.pairwise(floors):
        assert np.all(after >= before)
    for floor in floors:
        assert np.all(np.isfinite(floor))
        assert np.all(floor <= reference + least)


def test_a_wrong_warm_start_or_policy_changes_no_answer() -> None:
    for seed in range(8):
        mdp = random_mdp(seed, ends=seed % 2, discount=0.95)
        reference = precise_value(mdp).astype(float)
        rng = np.random.default_rng(seed)
        wrong = rng.normal(size=mdp.num_states) * 1e3
        policies = [rng.integers(0, mdp.num_actions, mdp.num_states) for _ in range(3)]
        found = highway_solve(mdp, 1e-8, value=wrong, policies=policies)
        assert found.converged
        assert np.abs(found.value - reference).max() <= found.bound <= 1e-8


def test_a_warm_start_saves_work_on_a_changed_model() -> None:
    """Yesterday's solution, one reward in twenty changed by a thousandth: fewer rows are read than from zero."""
    mdp = envs.make("queue", capacity=2000, discount=0.999)
    before = highway_solve(mdp, 1e-6)
    rng = np.random.default_rng(0)
    reward = np.asarray(mdp.reward) + 1e-3 * (rng.random(mdp.reward.shape) < 0.05)
    changed = MDP(reward, mdp.successor, mdp.probability, mdp.discount)
    cold, warm = (highway_solve(changed, 1e-6, proposal="sweeps", value=value) for value in (None, before.value))
    assert warm.converged
    assert np.abs(warm.value - cold.value).max() <= warm.bound + cold.bound
    assert warm.num_queries.rows < cold.num_queries.rows


# ---- proposals, alone ----------------------------------------------------------------------------------------------


ALONE = {
    "sweeps": "sweeps",
    "krylov": "krylov",
    "anderson": "anderson",
    "3 sweeps": sweeps(3),
    "krylov of 40": krylov(40),
    "anderson of 10": anderson(10),
}


@pytest.mark.parametrize("proposal", ALONE.values(), ids=ALONE)
def test_every_proposal_alone_reaches_the_optimum(proposal: Any) -> None:
    for seed in (0, 1, 2):
        mdp = random_mdp(seed, discount=0.95, ends=seed % 2)
        found = highway_solve(mdp, 1e-8, proposal=proposal)
        assert found.converged
        assert np.abs(found.value - precise_value(mdp).astype(float)).max() <= found.bound


def test_order_is_chosen_by_structure() -> None:
    """Mazes, rooms and chains have an end to move to; Garnets, queues and a far gamble have none."""
    for name, options in (
        ("maze", {"height": 30, "width": 30, "slip": 0.1}),
        ("multi-room", {"rooms": 12, "state": "doors"}),
    ):
        assert order_of(rows.rows_of(envs.make(name, **options))) is not None
        assert highway_solve(envs.make(name, **options)).method == "gated(ordered)"
    for name in ("garnet", "queue", "inventory"):
        assert order_of(rows.rows_of(envs.make(name))) is None
    gamble = [[[0.9, 0.1], [0.8, 0.2]], [[0.0, 1.0], [0.0, 1.0]]]
    assert order_of(rows.rows_of(MDP.from_dense(gamble, [[1.0, 0.0], [0.0, 0.0]], 0.9))) is None
    with pytest.raises(ValueError, match="proposal='ordered': give auto"):
        highway_solve(envs.make("garnet"), proposal="ordered")


def test_states_in_a_row_are_solved_directly() -> None:
    """Chains and queues reach one place up and down; with ends, with discount 1, in both layouts."""
    for mdp in (
        envs.make("chain", length=400, slip=0.3, discount=0.999),
        envs.make("queue", capacity=300, discount=0.99),
    ):
        found = highway_solve(mdp, 1e-7)
        assert found.method == "gated(banded)"
        assert np.abs(found.value - direct(mdp.sparse())).max() <= found.bound <= 1e-7
    far = highway_solve(envs.make("chain", length=30, slip=0.3, reward="step", discount=1.0), 1e-7, proposal="auto")
    assert far.converged
    with pytest.raises(ValueError, match="proposal='banded': give auto"):
        highway_solve(envs.make("garnet"), proposal="banded")


def test_deterministic_goals_take_two_sweeps() -> None:
    """In order of distance the first ordered backup is right, the second finds nothing to change."""
    found = highway_solve(grid(12, 0.99))
    assert found.num_iters == 1
    assert found.num_queries.rows <= 6 * 144 * 4


# ---- rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [1, 10**9], ids=["fixed", "ragged"])
def test_kernels_are_the_plain_backups(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backup, policy rows and sweeps of both layouts equal SciPy's; so do per-pair discounts and several threads."""
    monkeypatch.setattr(rows, "LARGE", large)
    monkeypatch.setattr(rows, "ENOUGH", 1)
    per_pair = np.random.default_rng(0).uniform(0, 0.99, (60, 4))
    for mdp in (
        envs.make("garnet", states=60, branching=3),
        envs.make("garnet", states=60, branching=3, discount=per_pair),
    ):
        compiled, plain = rows.CompiledRows(mdp), rows.PlainRows(mdp.sparse())
        assert compiled.fixed == (large == 1)
        x, outs = np.random.default_rng(1).normal(size=60), [np.empty(60), np.empty(60)]
        (spread, policy), (other, same) = compiled.backup(x, outs[0]), plain.backup(x, outs[1])
        np.testing.assert_allclose(outs[0], outs[1], atol=1e-14)
        np.testing.assert_allclose(spread, other, atol=1e-14)
        assert np.array_equal(policy, same)
        for _ in range(2):
            policy = np.random.default_rng(2).integers(0, 4, 60)
            np.testing.assert_allclose(
                compiled.under(policy).sweep(x, outs[0]), plain.under(policy).sweep(x, outs[1]), atol=1e-14
            )
            np.testing.assert_allclose(outs[0], outs[1], atol=1e-14)
        assert compiled.drift is not None
        assert plain.drift is not None
        numbers = [dataclasses.astuple(form.drift)[1:] for form in (compiled, plain)]
        np.testing.assert_allclose(*numbers, rtol=1e-12)


def test_without_numba_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "compiler", lambda: None)
    for mdp in (random_mdp(3, discount=0.95), grid(6, 0.99), stopping_mdp(1)):
        with pytest.warns(UserWarning, match="numba is not installed: pip install numba"):
            found = highway_solve(mdp, 1e-8)
        assert found.converged
        assert np.abs(found.value - precise_value(mdp).astype(float)).max() <= found.bound


def test_a_model_that_computes_its_rows() -> None:
    """The same values as from its table; answers of a wrong shape, place or sum are refused."""
    mdp = envs.make("garnet", states=300, discount=0.95)
    table = [np.asarray(x) for x in (mdp.successor, mdp.probability, mdp.reward)]

    def step(states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(x[states, actions] for x in table)

    found, stored = highway_solve(FreeRows(step, 300, 4, 0.95), 1e-8), highway_solve(mdp, 1e-8)
    assert found.converged
    np.testing.assert_allclose(found.value, stored.value, atol=2e-8)
    for broken, says in (
        (lambda s, a: (step(s, a)[0] + 300, *step(s, a)[1:]), "leads to state"),
        (lambda s, a: (step(s, a)[0], step(s, a)[1] / 2, step(s, a)[2]), "sum to 0.5: give probabilities"),
        (lambda s, a: (step(s, a)[0][:5], *step(s, a)[1:]), "answered with shapes"),
        (lambda s, a: (*step(s, a)[:2], step(s, a)[2] * np.nan), "cannot be: give finite"),
    ):
        with pytest.raises(ValueError, match=says):
            FreeRows(broken, 300, 4, 0.95)


# ---- stopping ------------------------------------------------------------------------------------------------------


def test_time_limit_and_interruption_return_what_is_certified() -> None:
    mdp = envs.make("queue", capacity=3000, discount=0.999)
    whole = highway_solve(mdp, 1e-4)
    for stopped in (
        highway_solve(mdp, 1e-4, proposal="sweeps", time_limit=1e-3),
        highway_solve(mdp, 1e-4, proposal="sweeps", progress=_interrupt(3)),
    ):
        assert not stopped.converged
        assert np.isfinite(stopped.bound)
        assert np.all(stopped.lower <= whole.upper)
        assert np.all(stopped.upper >= whole.lower)
        assert stopped.policy.shape == (3001,)


def test_a_signal_at_any_moment_leaves_what_is_certified() -> None:
    """Ctrl-C is a signal that comes when it likes; before anything is certified there is nothing to return."""
    mdp = envs.make("queue", capacity=3000, discount=0.999)
    whole, ready = highway_solve(mdp, 1e-4), rows.rows_of(mdp)
    before, stopped = signal.signal(signal.SIGALRM, signal.default_int_handler), 0
    try:
        for moment in np.geomspace(2e-3, 0.3, 20):
            signal.setitimer(signal.ITIMER_REAL, moment)
            try:
                found = highway_solve(ready, 1e-4, proposal="sweeps")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                continue
            stopped += not found.converged
            assert np.all(found.lower <= whole.upper)
            assert np.all(found.upper >= whole.lower)
            assert np.max(found.upper - found.lower) <= 2 * found.bound * (1 + 1e-9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped


def _interrupt(after: int) -> Any:
    def progress(k: int, bound: float) -> None:
        if k == after:
            raise KeyboardInterrupt

    return progress


def test_history_says_how_the_bound_closed() -> None:
    mdp = envs.make("queue", capacity=100, discount=0.99)
    found = highway_solve(mdp, 1e-6, proposal=sweeps(20))
    assert {len(series) for series in found.history.values()} == {found.num_iters}
    assert found.history["bound"][0] > found.history["bound"][-1] > found.bound
    assert np.all(np.diff(found.history["bound"]) <= 0)
    assert np.all(np.diff(found.history["seconds"]) >= 0)
    assert np.all((found.history["open"] >= 0) & (found.history["open"] <= 1))
    assert set(found.history["proposal"]) <= {"sweeps", "none"}
    assert highway_solve(mdp, 1e-6).history["proposal"].tolist().count("banded") > 0


def test_until_loss_bounds_what_the_policy_loses() -> None:
    mdp = random_mdp(1, discount=0.95)
    found = highway_solve(mdp, 1e-6, until="loss")
    assert 2 * found.bound <= 1e-6
    P, R, g = dense(mdp)
    s = np.arange(len(R))
    earned = np.linalg.solve(np.eye(len(R)) - g[s, found.policy, None] * P[s, found.policy], R[s, found.policy])
    assert np.max(precise_value(mdp) - earned) <= 1e-6


# ---- models that should not be -------------------------------------------------------------------------------------


def test_rows_that_sum_to_more_than_one_over_the_discount_are_refused() -> None:
    """γ·ΣP ≥ 1 through rounding of rows: V* is infinite or negative nonsense; no method answers."""
    gamma = 1 - 1e-9
    P = np.array([[[0.5 + 4e-9, 0.5]], [[0.5, 0.5 + 4e-9]]])
    with pytest.raises(ValueError, match="divide each row by its sum"):
        MDP.from_dense(P, np.ones((2, 1)), gamma)
    unchecked = MDP.from_dense(P, np.ones((2, 1)), gamma, check=False)
    for method in ("gated", "policy-iteration", "modified-policy-iteration"):
        with pytest.raises(ValueError, match="divide each row by its sum"):
            solve(unchecked, method)


def test_malformed_rows_are_refused_or_put_in_order() -> None:
    """An index out of range is never read; unsorted and repeated entries are sorted and added up."""
    good = sp.csr_array(([0.5, 0.25, 0.25, 1.0], [1, 0, 0, 1], [0, 3, 4]), shape=(2, 2))
    mdp = MDP.from_scipy(good, [1.0, 0.0], 0.9)
    assert mdp.transition.indices.tolist() == [0, 1, 1]
    np.testing.assert_allclose(solve(mdp, tol=1e-9).value, direct(mdp), atol=1e-9)
    loose = SparseMDP(np.ones((2, 1)), good, np.full((2, 1), 0.9))  # as given, without the constructor's care
    np.testing.assert_allclose(solve(loose, tol=1e-9).value, [10.0, 10.0], atol=1e-9)
    for indices, indptr in (([1, 0, 9, 1], [0, 3, 4]), ([1, 0, -1, 1], [0, 3, 4]), ([1, 0, 0, 1], [0, 5, 4])):
        bad = good.copy()
        bad.indices, bad.indptr = np.array(indices, np.int32), np.array(indptr, np.int32)
        with pytest.raises(ValueError, match="give"):
            solve(SparseMDP(np.ones((2, 1)), bad, np.full((2, 1), 0.9)))
    stray = MDP(np.ones((1, 1)), np.array([[[7]]], np.int32), np.ones((1, 1, 1)), np.full((1, 1), 0.9))
    with pytest.raises(ValueError, match="leads to state 7: give 0 to 0"):
        solve(stray)


def test_refusals() -> None:
    mdp = grid(3, 0.9)
    for options, says in (
        ({"proposal": "magic"}, "proposal='magic': give one of auto"),
        ({"time_limit": 0.0}, "time_limit=0.0: give a number > 0"),
        ({"until": "change"}, "until='change': give one of bound, loss"),
        ({"value": [1.0]}, "value has shape"),
        ({"policies": [np.zeros(2, int)]}, "give 9 whole numbers"),
        ({"tol": math.nan}, "tol=nan"),
        ({"proposal": lambda policy, x: x[:2]}, r"the proposal has shape \(2,\): give \(9,\)"),
    ):
        with pytest.raises(ValueError, match=says):
            highway_solve(mdp, **{"tol": 1e-6, **options})
