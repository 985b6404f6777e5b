"""Bad input is refused in one line that names the culprit; nothing wrong is ever accepted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from highway_rl import MDP, SparseMDP

P = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.25, 0.75]]])
R = np.array([[1.0, 2.0], [3.0, 4.0]])
SUCCESSOR = np.tile(np.arange(2), (2, 2, 1))


def changed(array: np.ndarray, index: Any, value: float) -> np.ndarray:
    array = np.array(array, float)
    array[index] = value
    return array


def from_dense(P: np.ndarray, R: Any, discount: Any) -> MDP:
    return MDP.from_dense(P, R, discount)


def from_scipy(P: np.ndarray, R: Any, discount: Any) -> SparseMDP:
    return MDP.from_scipy([sp.csr_array(P[:, a]) for a in range(P.shape[1])], R, discount)


def from_rows(P: np.ndarray, R: Any, discount: Any) -> SparseMDP:
    return MDP.from_scipy(sp.csr_array(P.reshape(-1, P.shape[-1])), R, discount)


def from_table(P: np.ndarray, R: Any, discount: Any) -> MDP:
    return MDP.from_table(R, SUCCESSOR, P, discount)


def from_gymnasium(P: np.ndarray, R: Any, discount: Any) -> MDP:
    table = {
        s: {a: [(P[s, a, t], t, np.asarray(R)[s, a], False) for t in range(2)] for a in range(2)} for s in range(2)
    }
    return MDP.from_gymnasium(SimpleNamespace(P=table), discount)


EVERY = [from_dense, from_scipy, from_rows, from_table, from_gymnasium]


def refused(build: Any, *says: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        build()
    message = str(caught.value)
    assert "\n" not in message
    for part in says:
        assert part in message, message


@pytest.mark.parametrize("build", EVERY)
class TestEveryConstructor:
    def test_accepts_the_good_model(self, build: Any) -> None:
        assert build(P, R, 0.9).num_states == 2

    def test_row_that_does_not_sum_to_one(self, build: Any) -> None:
        refused(lambda: build(changed(P, (1, 0, 1), 0.9), R, 0.9), "P at state 1, action 0 sums to 0.9, not 1")
        refused(lambda: build(changed(P, (1, 1, 0), 0.25001), R, 0.9), "state 1, action 1", "1.00001")
        refused(lambda: build(P * 2, R, 0.9), "state 0, action 0 sums to 2", "4 rows in all")

    def test_negative_probability(self, build: Any) -> None:
        bad = changed(changed(P, (1, 1, 0), -0.25), (1, 1, 1), 1.25)
        refused(lambda: build(bad, R, 0.9), "P at state 1, action 1, next state 0 is -0.25")

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_probability_that_is_no_number(self, build: Any, value: float) -> None:
        refused(lambda: build(changed(P, (0, 1, 0), value), R, 0.9), "P at state 0, action 1", str(value))

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_reward_that_is_no_number(self, build: Any, value: float) -> None:
        refused(lambda: build(P, changed(R, (1, 0), value), 0.9), "reward at state 1, action 0", str(value))

    @pytest.mark.parametrize("discount", [1.5, -0.1, np.nan, np.inf])
    def test_discount_outside_the_unit_interval(self, build: Any, discount: float) -> None:
        refused(lambda: build(P, R, discount), f"discount is {discount}", "[0, 1]")
        refused(lambda: build(P, R, [0.5, discount]), f"discount at state 1 is {discount}")
        refused(lambda: build(P, R, [[0.5, 0.5], [discount, 0.1]]), "discount at state 1, action 0")

    def test_discount_of_the_wrong_kind(self, build: Any) -> None:
        refused(lambda: build(P, R, "0.9"), "discount has dtype")
        refused(lambda: build(P, R, None), "discount has dtype object")
        refused(lambda: build(P, R, 0.9 + 0j), "discount has dtype complex")
        refused(lambda: build(P, R, [0.9] * 3), "discount has shape (3,)")
        refused(lambda: build(P, R, [[0.9], [0.1, 0.2]]), "discount is not a rectangular array")

    def test_discount_one_without_an_end(self, build: Any) -> None:
        refused(lambda: build(P, R, 1.0), "discount 1 needs an absorbing state", "state 0")
        stays = np.stack([np.eye(2)] * 2, axis=1)
        refused(lambda: build(stays, [[1.0, 1.0], [0.0, 0.0]], 1.0), "state 0 reaches none")
        assert build(stays, np.zeros((2, 2)), 1.0).num_states == 2


def test_reward_shapes() -> None:
    for R_bad in (np.zeros(3), np.zeros((2, 3)), np.zeros((3, 2, 2)), 1.0):
        refused(lambda R_bad=R_bad: MDP.from_dense(P, R_bad, 0.9), "R has shape", "2 states and 2 actions")
        refused(lambda R_bad=R_bad: from_scipy(P, R_bad, 0.9), "R has shape", "2 states and 2 actions")
    refused(lambda: MDP.from_dense(P, [[1.0], [1.0, 2.0]], 0.9), "R is not a rectangular array")
    refused(lambda: MDP.from_dense(P, [["a", "b"], ["c", "d"]], 0.9), "R has dtype")
    refused(lambda: MDP.from_dense(P, np.ma.masked_array(R, mask=R > 3), 0.9), "R is a masked array")
    paid = changed(np.zeros((2, 2, 2)), (1, 1, 0), np.nan)
    refused(lambda: MDP.from_dense(P, paid, 0.9), "R at state 1, action 1, next state 0 is nan")
    refused(lambda: MDP.from_table(np.zeros((2, 3)), SUCCESSOR, P, 0.9), "reward has shape (2, 3)")


def test_transition_shapes_and_dtypes() -> None:
    refused(lambda: MDP.from_dense(P[:, :, :1], R, 0.9), "P has shape (2, 2, 1)")
    refused(lambda: MDP.from_dense(P[0], R, 0.9), "P has shape (2, 2)", "3 axes")
    refused(lambda: MDP.from_dense(np.zeros((0, 2, 0)), R, 0.9), "P has shape (0, 2, 0)")
    refused(lambda: MDP.from_dense(P + 0j, R, 0.9), "P has dtype complex128")
    refused(lambda: MDP.from_dense([[[0.5, 0.5]], [[1.0]]], R, 0.9), "P is not a rectangular array")
    eye = sp.eye_array(2)
    refused(lambda: MDP.from_scipy([], R, 0.9), "P is empty: give a sparse matrix, or a list")
    refused(lambda: MDP.from_scipy(None, R, 0.9), "P is a NoneType: give")
    refused(lambda: MDP.from_scipy([eye, "x"], R, 0.9), "P[1] is a str")
    refused(lambda: MDP.from_scipy([eye, sp.eye_array(3)], R, 0.9), "P[1] has shape (3, 3)", "P[0]")
    refused(lambda: MDP.from_scipy([eye, sp.coo_array((2, 3))], R, 0.9), "P[1] has shape (2, 3)")
    refused(lambda: MDP.from_scipy([eye * 1j], R, 0.9), "P[0] has dtype complex128")
    refused(lambda: MDP.from_scipy(eye * 1j, R, 0.9), "P has dtype complex128")
    refused(lambda: MDP.from_scipy(sp.coo_array((3, 2)), R, 0.9), "P has shape (3, 2)")
    refused(lambda: MDP.from_scipy(sp.coo_array((0, 2)), R, 0.9), "P has shape (0, 2)")
    refused(lambda: MDP.from_scipy([eye, eye], [eye], 0.9), "R", "shape")
    refused(lambda: MDP.from_scipy([eye, eye], [eye, "x"], 0.9), "R[1] is a str")
    wild = sp.csr_array(P[:, 0])
    wild.indices = wild.indices + 7
    refused(lambda: MDP.from_scipy([wild], R[:, :1], 0.9), "P[0] is not a well-formed csr matrix")


def test_successors_that_are_no_states() -> None:
    for bad in (2, -1, 0.5, np.nan, np.inf, 1e30):
        successor = changed(SUCCESSOR, (1, 0, 1), bad)
        refused(lambda s=successor: MDP.from_table(R, s, P, 0.9), "successor", "state 1, action 0", "0 to 1")
    refused(lambda: MDP.from_table(R, SUCCESSOR[..., :1], P, 0.9), "successor has shape (2, 2, 1)")


def test_negative_probability_hidden_by_a_repeated_successor() -> None:
    """−0.5 and 1.5 to the same state add up to 1 and are refused all the same."""
    successor, probability = np.zeros((1, 1, 2), int), np.array([[[1.5, -0.5]]])
    refused(lambda: MDP.from_table([[0.0]], successor, probability, 0.9), "state 0, action 0, next state 0 is -0.5")
    env = SimpleNamespace(P={0: {0: [(1.5, 0, 0.0, False), (-0.5, 0, 0.0, False)]}})
    refused(lambda: MDP.from_gymnasium(env, 0.9), "state 0, action 0, next state 0 is -0.5")


def test_environments_without_a_good_table() -> None:
    refused(lambda: MDP.from_gymnasium("NoSuchGame-v0", 0.9), "gymnasium cannot make 'NoSuchGame-v0'")
    refused(lambda: MDP.from_gymnasium(gymnasium.make("CartPole-v1"), 0.9), "CartPoleEnv has no transition table")
    good = (1.0, 0, 0.0, False)
    for table, says in (
        ({}, "no transition table"),
        ({0: {}}, "no transition table"),
        ({1: {0: [good]}}, "no transition table"),
        ({0: {0: [good]}, 2: {0: [good]}}, "lacks state 1"),
        ({0: {0: [good]}, 1: {1: [good]}}, "lacks state 1"),
        ({0: {0: []}}, "no outcome"),
        ({0: {0: [good], 1: []}}, "P at state 0, action 1 sums to 0"),
        (
            {0: {0: [(1.0, 5, 0.0, False)]}},
            "state 0, action 0: give (probability, next state, reward, terminated), the next state from 0 to 0",
        ),
        ({0: {0: [(1.0, -1, 0.0, False)]}}, "outcome (1.0, -1, 0.0, False)"),
        ({0: {0: [(1.0, 0.5, 0.0, False)]}}, "outcome (1.0, 0.5, 0.0, False)"),
        ({0: {0: [(1.0, 0, 0.0)]}}, "give (probability, next state, reward, terminated)"),
        ({0: {0: [("x", 0, 0.0, False)]}}, "state 0, action 0"),
        ({0: {0: [(1.0, 0, None, False)]}}, "state 0, action 0"),
    ):
        env = SimpleNamespace(P=table)
        refused(lambda env=env: MDP.from_gymnasium(env, 0.9), says)


# ---- fuzz: 10,000 generated cases, a quarter of them by default -----------------------------------------------------

SMALL = st.integers(0, 4)
ODD_NUMBERS = st.sampled_from(
    [0.0, 1.0, 0.5, -0.5, 1.5, np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 1 + 1e-7, 1 + 1e-9]
)
DTYPES = st.sampled_from([*"?bBhilqefdgFD", "U3", "O", "S2", "M8[s]"])
DISCOUNTS = st.sampled_from(
    [0.0, 0.5, 0.9, 1.0, 1, True, 1 + 1e-12, -1e-12, np.nan, np.inf, None, "0.9", 1j, [], [0.5], {}]
)


@st.composite
def arrays(draw: st.DrawFn, ndim: int) -> Any:
    """Anything that might be passed for an array: shapes, dtypes, ragged lists, nothing at all."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(
            st.sampled_from([None, "abc", 3, {}, [], [[]], [[1.0], [1.0, 2.0]], object(), 10**400, [[10**400]], b"x"])
        )
    shape = (
        tuple(draw(st.lists(SMALL, min_size=0, max_size=4)))
        if kind == 1
        else tuple(draw(st.integers(1, 3)) for _ in range(ndim))
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.choice([0.0, 1.0, 0.5, -1.0, 3.0, np.nan, np.inf, 1e308], size=shape)
    if kind == 2:
        with np.errstate(all="ignore"):
            values = np.nan_to_num(values).clip(-100, 100).astype(draw(DTYPES))
    return values.tolist() if kind == 3 else values


@st.composite
def nearly_models(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Any]:
    """A valid dense model with up to three entries spoiled, a reward of some shape, and some discount."""
    S, A = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    P = np.eye(S)[rng.integers(0, S, (S, A))] if draw(st.booleans()) else rng.dirichlet(np.ones(S), size=(S, A))
    shape = draw(st.sampled_from([(S,), (S, A), (S, A, S), (S, A), (S, A), (A, S), (S + 1, A), ()]))
    R = rng.normal(size=shape) * draw(st.sampled_from([0.0, 1.0, 1e300]))
    for _ in range(draw(st.integers(0, 3))):
        target = P if draw(st.booleans()) else np.atleast_1d(R)
        target.flat[draw(st.integers(0, target.size - 1))] = draw(ODD_NUMBERS)
    discount = (
        draw(DISCOUNTS) if draw(st.booleans()) else rng.uniform(-0.05, 1.05, size=draw(st.sampled_from([(S,), (S, A)])))
    )
    return P.astype(draw(st.sampled_from(["d", "d", "d", "f", "e", "g"]))) if abs(P).max() < 1e4 else P, R, discount


def valid(P: np.ndarray, R: np.ndarray, g: np.ndarray) -> bool:
    """All conditions of a model, checked independently and slowly."""
    S, A = R.shape
    if not (np.isfinite(P).all() and np.isfinite(R).all() and np.isfinite(g).all()):
        return False
    if P.shape != (S, A, S) or (P < 0).any() or (abs(P.sum(-1) - 1) > 2e-8).any() or (g < 0).any() or (g > 1).any():
        return False
    ended = {s for s in range(S) if all(P[s, a, s] > 1 - 2e-8 and R[s, a] == 0 for a in range(A)) or (g[s] < 1).any()}
    for _ in range(S):
        ended |= {s for s in range(S) for t in ended if (P[s, :, t] > 0).any()}
    return len(ended) == S


NAMES = ("P", "R", "discount", "reward", "successor", "probability", "env", "gymnasium")


def refused_or_valid(build: Any) -> Any:
    """The property: a one-line ValueError that names an argument, or a model that is one, which is returned."""
    try:
        mdp = build()
    except ValueError as error:
        message = str(error)
        assert "\n" not in message
        assert message.startswith(NAMES), message
        return None
    S, A = mdp.num_states, mdp.num_actions
    model = mdp.sparse()
    assert valid(model.transition.toarray().reshape(S, A, S), model.reward, model.discount)
    again = mdp.padded() if isinstance(mdp, SparseMDP) else mdp
    assert again.successor.min() >= 0
    assert again.successor.max() < S
    assert (again.probability >= 0).all()
    return model


ALL: list[Any] = []


def fuzz(cases: int, *strategies: Any) -> Any:
    """A check of generated cases: a quarter of them here, all of them in the last test of this file."""

    def wrap(check: Any) -> Any:
        def of(count: int) -> Any:
            calm = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
            return settings(max_examples=count, derandomize=True, **calm)(given(*strategies)(check))

        ALL.append(pytest.param(of(cases), id=check.__name__))
        return of(cases // 4)

    return wrap


@fuzz(3000, nearly_models())
def test_fuzz_nearly_right_dense_models(model: Any) -> None:
    """What is accepted is also what was given, and nothing good is refused."""
    P, R, discount = model
    mdp = refused_or_valid(lambda: MDP.from_dense(P, R, discount))
    if mdp is not None:
        S, A = mdp.reward.shape
        np.testing.assert_array_equal(mdp.transition.toarray().reshape(S, A, S), P.astype(float))
        paid = R[:, None] if R.ndim == 1 else (P.astype(float) * np.where(P == 0, 0.0, R)).sum(-1) if R.ndim == 3 else R
        np.testing.assert_allclose(mdp.reward, np.broadcast_to(paid, (S, A)), rtol=1e-12)
    elif R.shape == P.shape[:2] and isinstance(discount, float) and 0 <= discount < 1:
        exact = P.astype(float)
        assert not np.isfinite(R).all() or not (exact >= 0).all() or abs(exact.sum(-1) - 1).max() > 0.9e-8


@fuzz(1500, arrays(3), arrays(2), DISCOUNTS)
def test_fuzz_dense_anything(P: Any, R: Any, discount: Any) -> None:
    refused_or_valid(lambda: MDP.from_dense(P, R, discount))


@fuzz(
    2500,
    nearly_models(),
    st.sampled_from(["csr", "csc", "coo", "lil", "dok", "bsr", "dia", "ndarray"]),
    st.integers(0, 5),
)
def test_fuzz_sparse_models(model: Any, kind: str, twist: int) -> None:
    """Per-action matrices in every scipy format, with duplicates, explicit zeros, sparse rewards, or stacked rows."""
    P, R, discount = model
    P = np.asarray(P, float)
    S, A, _ = P.shape

    def convert(m: np.ndarray) -> Any:
        if kind == "ndarray":
            return m
        rows, columns = np.indices(m.shape)
        doubled = twist == 1 and kind in ("coo", "csr", "csc", "bsr")
        parts = [m / 2, m / 2] if doubled else [m]
        entries = (
            np.concatenate([x.ravel() for x in parts]),
            (np.tile(rows.ravel(), len(parts)), np.tile(columns.ravel(), len(parts))),
        )
        return sp.coo_array(entries, shape=m.shape).asformat(kind)

    matrices: Any = [convert(P[:, a]) for a in range(A)]
    if twist == 2 and kind != "ndarray":
        matrices = convert(P.reshape(S * A, S))
    if twist == 3 and kind in ("csr", "csc"):
        matrices[-1].indices = matrices[-1].indices + 1  # out of range, or merely wrong
    if twist == 4 and R.ndim == 3:
        R = [sp.coo_array(R[:, a]) for a in range(R.shape[1])]
    if twist == 5:
        matrices = matrices[:-1] or "nothing"
    refused_or_valid(lambda: MDP.from_scipy(matrices, R, discount))


@fuzz(1000, st.lists(arrays(2), max_size=3) | arrays(2), arrays(2), DISCOUNTS)
def test_fuzz_sparse_anything(P: Any, R: Any, discount: Any) -> None:
    refused_or_valid(lambda: MDP.from_scipy(P, R, discount))


@fuzz(1500, nearly_models(), st.integers(0, 3), ODD_NUMBERS | st.integers(-1, 5), arrays(3))
def test_fuzz_tables(model: Any, twist: int, odd: Any, anything: Any) -> None:
    P, R, discount = model
    S, A, _ = P.shape
    successor: Any = np.tile(np.arange(S), (S, A, 1)).astype(float)
    if twist == 1:
        successor.flat[-1] = odd
    if twist == 2:
        successor[:] = 0  # all outcomes lead to one state: what is added up must still be checked one by one
    if twist == 3:
        successor = anything
    refused_or_valid(lambda: MDP.from_table(R, successor, P, discount))


@fuzz(
    1000, nearly_models(), st.integers(0, 4), ODD_NUMBERS | st.sampled_from([None, "x", 7, -1, (), 1j]), st.booleans()
)
def test_fuzz_gymnasium_tables(model: Any, twist: int, odd: Any, done: bool) -> None:
    P, R, discount = model
    S, A, _ = P.shape
    r = float(np.atleast_1d(R).flat[0])
    table: Any = {
        s: {a: [(P[s, a, t], t, r, done and t == S - 1) for t in range(S)] for a in range(A)} for s in range(S)
    }
    if twist == 1:
        table[0][0][0] = tuple(odd if i == 1 else x for i, x in enumerate(table[0][0][0]))
    if twist == 2:
        table[S - 1][A - 1] = odd if isinstance(odd, tuple) else [odd]
    if twist == 3:
        del table[S - 1]
        table[S] = {}
    refused_or_valid(lambda: MDP.from_gymnasium(SimpleNamespace(P=table), discount))


@pytest.mark.full
@pytest.mark.parametrize("check", ALL)
def test_all_fuzz_cases(check: Any) -> None:
    check()
