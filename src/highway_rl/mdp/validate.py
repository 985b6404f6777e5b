"""What a model must satisfy, checked with errors that name the culprit: which row, what sum, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from highway_rl import checks

if TYPE_CHECKING:
    from highway_rl.mdp.model import SparseMDP

SUM_TOLERANCE = 1e-8
QUIET = np.errstate(over="ignore", invalid="ignore")  # what overflows becomes inf, and is refused by name


@QUIET
def numbers(name: str, value: Any, ndim: int | None = None) -> np.ndarray:
    """`value` as a float64 array of `ndim` axes, or an error that says what it was instead."""
    if np.ma.isMaskedArray(value):
        raise ValueError(f"{name} is a masked array: fill its masked entries first")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise ValueError(
            f"{name} is not a rectangular array of numbers ({checks.one_line(error)}): give rows of one length"
        ) from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {checks.one_line(array.dtype)}: give real numbers")
    if ndim is not None and array.ndim != ndim:
        raise checks.wrong_shape(name, array, f"{ndim} axes")
    if 0 in array.shape:
        raise checks.wrong_shape(name, array, "at least one entry along each axis")
    return array.astype(np.float64, copy=False)


def same_shape(name: str, array: Any, other: str, reference: Any) -> None:
    if array.shape != reference.shape:
        raise ValueError(f"{name} has shape {array.shape} but {other} has {reference.shape}: give both one shape")


@QUIET
def sparse_matrix(name: str, matrix: Any) -> sp.csr_array:
    """One well-formed real matrix as CSR; it may share memory with the caller's."""
    if not sp.issparse(matrix) and not isinstance(matrix, np.ndarray):
        raise ValueError(f"{name} is a {type(matrix).__name__}: give a scipy sparse matrix")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {checks.one_line(matrix.dtype)}: give real numbers")
    if len(matrix.shape) != 2 or 0 in matrix.shape:
        raise checks.wrong_shape(name, matrix, "a matrix with no empty axis")
    if getattr(matrix, "format", None) in ("csr", "csc", "bsr"):
        try:  # an index out of range would be read, and written, out of bounds
            matrix.copy().check_format(full_check=True)
        except ValueError as error:
            raise ValueError(
                f"{name} is not a well-formed {matrix.format} matrix ({checks.one_line(error)}): "
                "give one that passes its own check_format"
            ) from None
    return sp.csr_array(matrix, dtype=np.float64)


def matrices(name: str, value: Any) -> list[sp.csr_array]:
    """A list of square sparse matrices of one size."""
    if not isinstance(value, list | tuple) or not value:
        kind = "empty" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
        raise ValueError(f"{name} is {kind}: give a sparse matrix, or a list of them, one per action")
    result = [sparse_matrix(f"{name}[{a}]", matrix) for a, matrix in enumerate(value)]
    for a, matrix in enumerate(result):
        if matrix.shape[0] != matrix.shape[1]:
            raise checks.wrong_shape(f"{name}[{a}]", matrix, "[states, states]")
        same_shape(f"{name}[{a}]", matrix, f"{name}[0]", result[0])
    return result


@QUIET
def rewards(R: Any, states: int, actions: int, P: np.ndarray | None = None) -> np.ndarray:
    """`R[s]`, `R[s,a]` or, given the dense `P`, `R[s,a,s']` as a new array [states, actions]."""
    array = numbers("R", R)
    if array.shape == (states,):
        return np.repeat(array[:, None], actions, axis=1)
    if array.shape == (states, actions):
        return array.copy()
    if P is None or array.shape != P.shape:
        shapes = f"({states},) or ({states}, {actions})" + ("" if P is None else f" or ({states}, {actions}, {states})")
        raise checks.wrong_shape("R", array, f"{shapes} for {states} states and {actions} actions")
    taken = P != 0
    not_nan("R", np.where(taken, array, 0.0))  # what never happens may be anything
    return np.sum(P * np.where(taken, array, 0.0), axis=-1)


def discounts(discount: Any, shape: tuple[int, int]) -> np.ndarray:
    array = numbers("discount", discount)
    if array.shape not in ((), shape[:1], shape):
        raise checks.wrong_shape("discount", array, f"one number, {shape[:1]} or {shape}")
    outside = np.argwhere(~((array >= 0) & (array <= 1)))
    if len(outside):
        place = f" at {_place(outside[0])}" if array.ndim else ""
        raise ValueError(f"discount{place} is {array[tuple(outside[0])]}: give a number in [0, 1]")
    return np.broadcast_to(array[:, None] if array.ndim == 1 else array, shape).copy()


def not_nan(name: str, array: Any) -> None:
    values = array.data if sp.issparse(array) else np.asarray(array)
    if not np.all(np.isfinite(values)):
        where = np.argwhere(~np.isfinite(values))[0]
        if sp.issparse(array):
            row = int(np.searchsorted(array.indptr, where[0], side="right")) - 1
            actions = array.shape[0] // array.shape[1]
            raise ValueError(f"{name} at {_row(row, actions)} holds {values[where[0]]}: give finite numbers")
        raise ValueError(f"{name} at {_place(where)} is {values[tuple(where)]}: give a finite number")


def successors(successor: np.ndarray, states: int) -> None:
    bad = (successor < 0) | (successor >= states) | (successor != np.round(successor))
    if bad.any():
        s, a, k = np.argwhere(bad)[0]
        raise ValueError(
            f"successor {successor[s, a, k]:g} of state {s}, action {a} is not a state: give 0 to {states - 1}"
        )


def not_negative(row: np.ndarray, successor: np.ndarray, probability: np.ndarray, actions: int) -> None:
    """Each outcome's own probability, before outcomes with the same successor are added up."""
    if np.any(probability < 0):
        i = int(np.argmax(probability < 0))
        raise ValueError(
            f"P at {_row(int(row[i]), actions)}, next state {int(successor[i])} is {probability[i]}: "
            "give probabilities >= 0"
        )


@QUIET
def model(mdp: SparseMDP) -> None:
    """Finite rewards, rows that are distributions, and an end within reach where nothing is discounted."""
    not_nan("P", mdp.transition)
    P, actions = mdp.transition, mdp.num_actions
    if P.nnz and P.data.min() < 0:
        entries = P.tocoo()
        not_negative(entries.row, entries.col, entries.data, actions)
    total = np.asarray(P.sum(axis=1)).ravel()
    bad = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
    if bad.size:
        more = f" ({bad.size} rows in all)" if bad.size > 1 else ""
        close = np.all(np.abs(total - 1) < 1e-2)
        what = "divide each row by its sum" if close else "give probabilities that sum to 1"
        raise ValueError(f"P at {_row(int(bad[0]), actions)} sums to {total[bad[0]]:.12g}, not 1{more}: {what}")
    not_nan("reward", mdp.reward)
    shrinks(mdp, mdp.discount * total.reshape(mdp.reward.shape))
    if np.any(mdp.discount >= 1):
        reaches_end(mdp)


def shrinks(mdp: SparseMDP, kept: np.ndarray) -> None:
    """γ·ΣP below 1 wherever γ is: rounding of a row may not make a discounted model grow."""
    grows = (kept >= 1) & (mdp.discount < 1)
    if np.any(grows):
        s, a = np.argwhere(grows)[0]
        raise ValueError(
            f"P at state {s}, action {a} times its discount {mdp.discount[s, a]:.12g} sums to {kept[s, a]:.12g}, "
            "not below 1: divide each row by its sum"
        )


def in_range(successor: np.ndarray, states: int) -> None:
    """Successors that are states; of unsigned numbers, so that those below 0 are too large."""
    if successor.size and int(successor.max()) >= states:
        worst = int(successor.max())
        worst = worst if worst < 2**31 else worst - 2**32
        raise ValueError(f"P leads to state {worst}: give 0 to {states - 1}")


def reaches_end(mdp: SparseMDP) -> np.ndarray:
    """Steps from each state to an absorbing one or a discounted step; with discount 1 all must have some."""
    distance = steps_to(mdp, absorbing(mdp) | np.any(mdp.discount < 1, axis=1))
    if np.any(np.isinf(distance)):
        raise ValueError(
            f"discount 1 needs an absorbing state within reach of every state, and state {int(np.argmax(distance))} "
            "reaches none: use a discount below 1, or let the end states loop to themselves with reward 0"
        )
    return distance


def steps_to(mdp: SparseMDP, ends: np.ndarray) -> np.ndarray:
    """The fewest transitions from each state to one of `ends`, ∞ where there is no way."""
    if not ends.any():
        return np.full(mdp.num_states, np.inf)
    P = mdp.transition
    source = np.repeat(np.arange(P.shape[0]) // mdp.num_actions, np.diff(P.indptr))
    backwards = sp.csr_array((np.ones(P.nnz), (P.indices, source)), shape=(mdp.num_states,) * 2)
    return dijkstra(backwards, indices=np.flatnonzero(ends), unweighted=True, min_only=True)


def absorbing(mdp: SparseMDP) -> np.ndarray:
    """True for states whose actions all stay with probability 1 and pay nothing."""
    S, A = mdp.reward.shape
    P = mdp.transition
    owner = np.repeat(np.arange(S * A) // A, np.diff(P.indptr))
    leaves = np.zeros(S, bool)
    leaves[owner[(P.indices != owner) & (P.data > 0)]] = True
    return ~leaves & np.all(mdp.reward == 0, axis=1)


class Outcomes(NamedTuple):
    """A transition table, one entry per outcome; `row` is s·A + a."""

    row: np.ndarray
    successor: np.ndarray
    probability: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray


def gymnasium_table(env: Any) -> tuple[Outcomes, int, int, np.ndarray]:
    """The environment's own transition table, its size, and the states an episode can start in."""
    import gymnasium

    name = repr(env) if isinstance(env, str) else type(getattr(env, "unwrapped", env)).__name__
    if isinstance(env, str):
        try:
            env = gymnasium.make(env)
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(
                f"gymnasium cannot make {name} ({checks.one_line(error)}): give the id of an environment that it has"
            ) from None
    inner = getattr(env, "unwrapped", env)
    table = getattr(inner, "P", None)
    if not isinstance(table, dict) or not isinstance(table.get(0), dict) or not table[0]:
        raise ValueError(f"env {name} has no transition table `P`: give a toy-text environment such as Taxi-v4")
    S, A = len(table), len(table[0])
    entries = []
    for s in range(S):
        actions = table.get(s)
        if not isinstance(actions, dict) or set(actions) != set(range(A)):
            raise ValueError(
                f"env {name} lacks state {s} or one of its actions in `P`: give actions 0 to {A - 1} for each of "
                f"states 0 to {S - 1}"
            )
        entries += [(s * A + a, *_outcome(name, S, s, a, outcome)) for a in range(A) for outcome in actions[a]]
    if not entries:
        raise ValueError(f"env {name} has no outcome at all in `P`: give some for each state and action")
    outcomes = Outcomes(*(np.array(x) for x in zip(*entries, strict=True)))
    initial = numbers("initial_state_distrib", getattr(inner, "initial_state_distrib", np.ones(S)), 1)
    same_shape("initial_state_distrib", initial, "a list of states", np.empty(S))
    return outcomes, S, A, np.flatnonzero(initial)


def _outcome(name: str, states: int, s: int, a: int, outcome: Any) -> tuple[int, float, float, bool]:
    try:
        probability, successor, reward, terminated = outcome
        if successor == int(successor) and 0 <= successor < states:
            return int(successor), float(probability), float(reward), bool(terminated)
    except (TypeError, ValueError, OverflowError):
        pass  # refused below, with the outcome itself
    raise ValueError(
        f"env {name} has outcome {checks.one_line(repr(outcome))} in `P` at state {s}, action {a}: "
        f"give (probability, next state, reward, terminated), the next state from 0 to {states - 1}"
    )


def _place(index: Any) -> str:
    return ", ".join(f"{axis} {i}" for axis, i in zip(("state", "action", "next state"), index, strict=False))


def _row(row: int, actions: int) -> str:
    return f"state {row // actions}, action {row % actions}"
