"""What a model must satisfy, checked with errors that name the culprit: which row, what sum, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

if TYPE_CHECKING:
    from highway_rl.mdp import SparseMDP

SUM_TOLERANCE = 1e-8


def numbers(name: str, value: Any, ndim: int) -> np.ndarray:
    """`value` as a float64 array of `ndim` axes, or an error that says what it was instead."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not a rectangular array of numbers ({error})") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}: it must hold real numbers")
    if array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}: it must have {ndim} axes")
    if 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}: no axis may be empty")
    return array.astype(np.float64, copy=False)


def same_shape(name: str, array: np.ndarray, other: str, reference: np.ndarray) -> None:
    if array.shape != reference.shape:
        raise ValueError(f"{name} has shape {array.shape} but {other} has {reference.shape}: they must agree")


def matrices(name: str, value: Any) -> list[sp.csr_array]:
    """A list of square sparse matrices of one size."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{name} must be a non-empty list of sparse matrices, one per action")
    result = []
    for a, matrix in enumerate(value):
        if not sp.issparse(matrix) and not isinstance(matrix, np.ndarray):
            raise ValueError(f"{name}[{a}] is a {type(matrix).__name__}: it must be a scipy sparse matrix")
        if matrix.dtype.kind not in "biuf":
            raise ValueError(f"{name}[{a}] has dtype {matrix.dtype}: it must hold real numbers")
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1] or 0 in matrix.shape:
            raise ValueError(f"{name}[{a}] has shape {matrix.shape}: it must be [states, states]")
        if matrix.shape != value[0].shape:
            raise ValueError(f"{name}[{a}] has shape {matrix.shape} but {name}[0] has {value[0].shape}")
        result.append(sp.csr_array(matrix, dtype=np.float64))
    return result


def rewards(R: Any, P: Any) -> np.ndarray:
    """`R` as [states, actions] for transitions `P`, dense [s,a,s'] or sparse rows (s,a)."""
    S = P.shape[-1]
    A = P.shape[0] // S if sp.issparse(P) else P.shape[1]
    array = np.asarray(R)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"R has dtype {array.dtype}: it must hold real numbers")
    if array.shape == (S,):
        array = np.broadcast_to(array[:, None], (S, A))
    elif array.ndim == 3 and not sp.issparse(P) and array.shape == P.shape:
        if not np.all(np.isfinite(array[P != 0])):
            s, a, t = np.argwhere(~np.isfinite(array) & (P != 0))[0]
            raise ValueError(f"R at state {s}, action {a}, next state {t} is {array[s, a, t]}: it must be finite")
        array = np.sum(np.where(P != 0, P * np.where(P != 0, array, 0), 0), axis=-1)
    elif array.shape != (S, A):
        shapes = f"({S},), ({S}, {A})" + ("" if sp.issparse(P) else f" or ({S}, {A}, {S})")
        raise ValueError(f"R has shape {array.shape}: with {S} states and {A} actions it must be {shapes}")
    return np.ascontiguousarray(array, dtype=np.float64)


def discounts(discount: Any, shape: tuple[int, int]) -> np.ndarray:
    array = np.asarray(discount)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"discount has dtype {array.dtype}: it must be a number in [0, 1]")
    if array.shape not in ((), shape[:1], shape):
        raise ValueError(f"discount has shape {array.shape}: it must be one number, {shape[:1]} or {shape}")
    if not np.all((array >= 0) & (array <= 1)):
        bad = array[~((array >= 0) & (array <= 1))].flat[0]
        raise ValueError(f"discount {bad} is outside [0, 1]")
    array = array[:, None] if array.ndim == 1 else array
    return np.broadcast_to(array, shape).astype(np.float64)


def not_nan(name: str, array: Any) -> None:
    values = array.data if sp.issparse(array) else np.asarray(array)
    if not np.all(np.isfinite(values)):
        where = np.argwhere(~np.isfinite(values))[0]
        if sp.issparse(array):
            row = int(np.searchsorted(array.indptr, where[0], side="right")) - 1
            actions = array.shape[0] // array.shape[1]
            raise ValueError(f"{name} at {_row(row, actions)} holds {values[where[0]]}: it must be finite")
        place = ", ".join(f"{axis} {i}" for axis, i in zip(("state", "action", "next state"), where, strict=False))
        raise ValueError(f"{name} at {place} is {values[tuple(where)]}: it must be finite")


def successors(successor: np.ndarray, states: int) -> None:
    bad = (successor < 0) | (successor >= states) | (successor != np.round(successor))
    if bad.any():
        s, a, k = np.argwhere(bad)[0]
        raise ValueError(
            f"successor {successor[s, a, k]:g} of state {s}, action {a} is not a state: give 0 to {states - 1}"
        )


def model(mdp: SparseMDP) -> None:
    """Finite rewards, rows that are distributions, and an end within reach where nothing is discounted."""
    not_nan("reward", mdp.reward)
    not_nan("P", mdp.transition)
    P, actions = mdp.transition, mdp.num_actions
    if P.nnz and P.data.min() < 0:
        entry = int(np.argmin(P.data))
        row = int(np.searchsorted(P.indptr, entry, side="right")) - 1
        raise ValueError(
            f"P at {_row(row, actions)}, next state {P.indices[entry]} is {P.data[entry]}: a probability is >= 0"
        )
    total = np.asarray(P.sum(axis=1)).ravel()
    bad = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
    if bad.size:
        more = f" ({bad.size} rows in all)" if bad.size > 1 else ""
        raise ValueError(f"P at {_row(int(bad[0]), actions)} sums to {total[bad[0]]:.12g}, not 1{more}")
    if np.any(mdp.discount >= 1):
        reaches_end(mdp)


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


def gymnasium_table(env: Any) -> tuple[dict[int, Any], np.ndarray]:
    """The environment's own transition table and the states an episode can start in."""
    import gymnasium

    if isinstance(env, str):
        try:
            env = gymnasium.make(env)
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(f"gymnasium cannot make {env!r}: {error}") from None
    inner = getattr(env, "unwrapped", env)
    table = getattr(inner, "P", None)
    if not isinstance(table, dict) or not table:
        raise ValueError(f"{env} has no transition table `P`: toy-text environments such as Taxi-v4 have one")
    if sorted(table) != list(range(len(table))) or any(len(actions) != len(table[0]) for actions in table.values()):
        raise ValueError(f"{env}: `P` must map states 0 to {len(table) - 1} to the same number of actions each")
    initial = np.asarray(getattr(inner, "initial_state_distrib", np.ones(len(table))))
    return table, np.flatnonzero(initial)


def _row(row: int, actions: int) -> str:
    return f"state {row // actions}, action {row % actions}"
