"""Beyond the rounding of float64: what is certified holds in exact arithmetic, with fractions, to the last bit."""

import re
from fractions import Fraction

import numpy as np
import pytest
from models import dense

from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers import gated
from highway_rl.solvers.doubled import beyond
from highway_rl.solvers.gated import highway_solve
from highway_rl.solvers.rows import CompiledRows


def exact_value(mdp: MDP | SparseMDP) -> list[Fraction]:
    """V* of the model's very numbers, by policy iteration in fractions; the discount is below 1."""
    P, R, g = in_fractions(mdp)
    S = len(R)
    policy = np.zeros(S, int)
    while True:
        rows = np.arange(S)
        v = solved(np.eye(S, dtype=int) - g[rows, policy, None] * P[rows, policy], R[rows, policy])
        q = R + g * (P @ v)
        better = q.max(axis=1) > q[rows, policy]
        if not better.any():
            return list(v)
        policy = np.where(better, q.argmax(axis=1), policy)


def in_fractions(mdp: MDP | SparseMDP) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P[s,a,s'], R[s,a] and discount[s,a]; chances of a successor that is named twice are summed here, exactly."""
    exact = np.vectorize(Fraction, otypes=[object])
    R, g = exact(np.asarray(mdp.reward)), exact(np.asarray(mdp.discount))
    if isinstance(mdp, SparseMDP):
        return exact(dense(mdp)[0]), R, g
    P = np.full((*R.shape, len(R)), Fraction(0))
    for (s, a, k), chance in np.ndenumerate(np.asarray(mdp.probability)):
        P[s, a, np.asarray(mdp.successor)[s, a, k]] += Fraction(float(chance))
    return P, R, g


def solved(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A x = b by elimination, in the numbers of A."""
    M = np.concatenate([A, b[:, None]], axis=1)
    for i in range(len(M)):
        pivot = next(j for j in range(i, len(M)) if M[j, i] != 0)
        M[[i, pivot]] = M[[pivot, i]]
        M[i] = M[i] / M[i, i]
        for j in range(len(M)):
            if j != i:
                M[j] = M[j] - M[j, i] * M[i]
    return M[:, -1]


def made(seed: int, discount: object, shift: float, ends: int = 0) -> MDP:
    """Six states, three actions with three successors each; rewards around `shift`; the last states may be ends."""
    rng = np.random.default_rng(seed)
    P, R = np.zeros((6, 3, 6)), rng.normal(size=(6, 3)) + shift
    for row in P.reshape(18, 6):
        row[rng.choice(6, 3, replace=False)] = rng.dirichlet(np.ones(3))
    for s in range(6 - ends, 6):
        P[s], R[s] = np.eye(6)[s], 0.0
    return MDP.from_dense(P / P.sum(-1, keepdims=True), R, discount)


@pytest.mark.parametrize("discount", [0.9, 0.999, 0.999999])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_what_is_certified_holds_in_fractions(discount: float, shift: float) -> None:
    tight = 0
    for seed in range(6):
        mdp = made(seed, discount, shift, ends=seed % 2)
        truth = exact_value(mdp)
        size = max(abs(float(v)) for v in truth)
        alone = 8 * np.finfo(float).eps * size / (1 - discount)  # what doubles could certify at best
        for tol in (1e-3 * size, 16 * alone, alone / 30, 1e-9 * alone):
            try:
                found = highway_solve(mdp, tol)
            except ValueError as error:
                tol = float(re.search(r"tol >= (\S+)", str(error)).group(1))  # type: ignore[union-attr]
                found = highway_solve(mdp, tol)
            assert found.converged
            off = max(abs(Fraction(float(v)) - t) for v, t in zip(found.value, truth, strict=True))
            assert off <= Fraction(found.bound) <= Fraction(tol)
            tight += found.bound < alone / 10
    assert tight >= (0 if discount == 0.9 else 6)


def test_what_is_left_is_counted_to_the_last_bit() -> None:
    """Rewards seen from a guess near V*, where nearly all digits cancel."""
    for seed in range(4):
        mdp = made(seed, 0.9999, 1e3)
        truth = np.array([float(v) for v in exact_value(mdp)])
        left = beyond(CompiledRows(mdp), truth, np.inf)
        assert left is not None
        P, R, g = in_fractions(mdp)
        x = np.array([Fraction(v) for v in truth])
        exact = R + g * (P @ x) - x[:, None]
        plain = dense(mdp)[1] + dense(mdp)[2] * (dense(mdp)[0] @ truth) - truth[:, None]
        off, before = (np.abs(np.vectorize(Fraction, otypes=[object])(r) - exact) for r in (left.reward, plain))
        assert np.all(off <= np.abs(exact) * Fraction(2) ** -52 + Fraction(1, 10**24))
        assert float(before.max()) > 1e-12
        assert left.drift is not None
        assert left.drift.largest_reward >= np.abs(left.reward).max()


def test_it_goes_on_where_it_stood() -> None:
    """Bounds keep falling over the change of origin, and a wrong start does no harm."""
    mdp = made(3, 0.999, 1e4)
    found = highway_solve(mdp, 1e-8, proposal="sweeps", value=np.full(6, 1e9))
    assert found.converged
    assert np.all(np.diff(found.history["bound"]) <= 0)
    again = highway_solve(mdp, 1e-8, value=found.value)
    assert np.abs(again.value - found.value).max() <= again.bound + found.bound


@pytest.mark.parametrize("low", [0.0, 0.5])
def test_discounts_of_each_row(low: float) -> None:
    """They are multiplied into the rows that are swept, and rounded there; not where it is counted what is left."""
    exactly_solved(made(2, np.repeat([[low], [0.999]], [1, 5], axis=0).repeat(3, axis=1), 1e4), 1e-8)


def test_successors_named_twice() -> None:
    """Their chances are summed in the rows that are swept; not where it is counted what is left."""
    rng = np.random.default_rng(1)
    successor, probability = rng.integers(0, 3, (5, 2, 9)), rng.dirichlet(np.ones(9), (5, 2))
    mdp = MDP.from_table(rng.normal(size=(5, 2)) + 1e4, successor, probability, 0.999)
    assert CompiledRows(mdp).work < probability.size
    exactly_solved(mdp, 1e-8)
    exactly_solved(mdp.sparse(), 1e-8)


def exactly_solved(mdp: MDP | SparseMDP, tol: float) -> None:
    found, truth = highway_solve(mdp, tol), exact_value(mdp)
    assert found.bound <= tol
    assert max(abs(Fraction(float(v)) - t) for v, t in zip(found.value, truth, strict=True)) <= Fraction(found.bound)


def test_without_compiled_rows_it_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(gated, "compiler", lambda: None)
    with pytest.raises(ValueError, match="below what float64 can certify"):
        highway_solve(made(0, 0.999, 1e4), 1e-8)


def test_the_layout_of_the_model_and_that_of_its_rows_may_differ() -> None:
    """Places without a chance are left out of the rows that are swept: five of the model's are three of theirs."""
    rng = np.random.default_rng(0)
    S, places = 10_000, np.zeros((10_000, 2, 5))
    places[..., :3] = rng.dirichlet(np.ones(3), (S, 2))
    successor = np.stack([(np.arange(S)[:, None] * 7 + np.array([1, 5]) + k) % S for k in range(5)], axis=-1)
    mdp = MDP.from_table(rng.normal(size=(S, 2)) + 1e4, successor, places, 0.999)
    rows = CompiledRows(mdp)
    assert rows.fixed
    assert rows.longest == 3
    found, other = highway_solve(mdp, 1e-8), highway_solve(mdp, 1e-3, proposal="sweeps")
    assert np.abs(found.value - other.value).max() <= found.bound + other.bound


def test_ctrl_c_while_it_goes_beyond(monkeypatch) -> None:
    mdp, certify, calls = made(1, 0.999, 1e4), gated._Run.certify, []
    truth = exact_value(mdp)

    def pressed(self, rows, x):
        found = certify(self, rows, x)
        if rows is not self.rows:
            calls.append(1)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(gated._Run, "certify", pressed)
    found = highway_solve(mdp, 1e-8)
    assert calls
    assert not found.converged
    assert max(abs(Fraction(float(v)) - t) for v, t in zip(found.value, truth, strict=True)) <= Fraction(found.bound)


@pytest.mark.parametrize("scale", [1e-316, 1e-310, 1e-306, 1e-300, 1e297, 1e301])
def test_numbers_at_the_ends_of_float64(scale: float) -> None:
    """Rewards whose values overflow when they are split, or whose products are too small for doubles."""
    plain = made(4, 0.999, 0.0)
    mdp = MDP.from_table(np.asarray(plain.reward) * scale, plain.successor, plain.probability, 0.999)
    truth = exact_value(mdp)
    size = max(abs(t) for t in truth)
    for share in (1e-6, 1e-12, 3e-16):
        tol = float(size) * share
        if tol == 0:
            continue
        try:
            found = highway_solve(mdp, tol, time_limit=5.0)
        except ValueError:
            continue  # refused
        assert max(abs(Fraction(float(v)) - t) for v, t in zip(found.value, truth, strict=True)) <= Fraction(
            found.bound
        )


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.999, 1 - 2e-13])
def test_a_successor_named_thousands_of_times(discount: float) -> None:
    """The sum of its chances is rounded as often; the bound counts the model's entries."""
    chances = np.array([1 - 2.0**-27, *np.full(4000, 2.0**-54)])
    mdp = MDP(np.array([[-1.0]]), np.zeros((1, 1, 4001), np.int32), chances[None, None], np.array([[discount]]))
    truth = Fraction(-1) / (1 - Fraction(discount) * sum(map(Fraction, chances)))
    for tol in (1e-3, 1e-9, 1e-13):
        tol *= float(abs(truth))
        try:
            found = highway_solve(mdp, tol, time_limit=5.0)
        except ValueError:
            continue
        assert found.bound >= 0
        assert abs(Fraction(float(found.value[0])) - truth) <= Fraction(found.bound)


def test_a_tolerance_of_the_loss_that_is_named_works() -> None:
    for seed in range(6):
        mdp = made(seed, 0.999, 1e4 if seed % 2 else 0.0)
        with pytest.raises(ValueError, match="tol=1e-25 is below what float64 can certify") as caught:
            highway_solve(mdp, 1e-25, until="loss")
        tol = float(re.search(r"tol >= (\S+)", str(caught.value)).group(1))  # type: ignore[union-attr]
        assert highway_solve(mdp, tol, until="loss").converged
