"""A model as the gated solver reads it: rows to back up, rows of one policy to sweep, and the drift that bounds need.

Three forms with one interface (`Rows`): compiled tables, plain NumPy, and models that compute their rows (`free.py`).
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from highway_rl.mdp import validate
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers.bounds import Certifier
from highway_rl.solvers.drift import EPS, Drift, Spread, spread
from highway_rl.solvers.policy import PolicyModel
from highway_rl.solvers.single import Single, scattered

Value = Float[np.ndarray, "s"]
Actions = Int[np.ndarray, "s"]

ENOUGH = 1_000_000
"""Entries of a pass from which a second thread pays: about a millisecond, what waking one may take."""
LARGE = 50_000
"""Entries of a model from which kernels of its own row length are worth compiling, once, and keeping."""


@runtime_checkable
class PolicyRows(Protocol):
    """A model under one policy; `work` is what a sweep reads."""

    reward: Value
    work: int

    def sweep(self, x: Value, out: Value) -> Spread:
        """out ← 𝓑^π x = r + γP^π x, and how much it changed."""
        ...

    def follow(self, x: Value, out: Value) -> None:
        """out ← γP^π x."""
        ...


@runtime_checkable
class Rows(Protocol):
    """A model; `work` counts the entries that one full backup reads. Without a drift nothing is certified."""

    shape: tuple[int, int]
    work: int
    drift: Drift | None

    def backup(self, x: Value, out: Value) -> tuple[Spread, Actions]:
        """out ← 𝓑x; how much it changed, and the greedy policy."""
        ...

    def under(self, policy: Actions) -> PolicyRows:
        """The rows of a policy, until the next call."""
        ...


def compiler() -> Any:
    """The kernels, or None where numba is not installed."""
    try:
        from highway_rl.solvers import kernels
    except ImportError:
        return None
    return kernels


def rows_of(mdp: MDP | SparseMDP) -> Rows:
    """The fastest form that is at hand."""
    if compiler() is not None:
        return CompiledRows(mdp)
    warnings.warn(
        "numba is not installed: pip install numba for compiled passes, or choose another method", stacklevel=3
    )
    return PlainRows(mdp.sparse())


def drift_of(mdp: SparseMDP | MDP, ends: np.ndarray, kept: np.ndarray, longest: int) -> Drift | None:
    """w = 1 outside ends, given γ·ΣP of each row; where that reaches 1, the longest time to an end, if there is one."""
    alive = ~ends
    rounding = (longest + 8) * EPS
    largest = max(abs(float(mdp.reward.max())), abs(float(mdp.reward.min())))
    weight = alive.astype(np.float64)
    if not alive.any():
        return Drift(weight, 1.0, 1.0, rounding, largest)
    kept = kept if alive.all() else kept[alive]
    least, most = 1 - float(kept.max()), 1.0 if ends.any() else 1 - float(kept.min())
    if least > 4 * rounding:
        return Drift(weight, least, most, rounding, largest)
    found = Certifier.of(mdp.sparse())
    if found.weight is None or found.drift is None:
        return None
    return Drift(found.weight, found.flattest[0], float(found.drift[alive].max()), rounding, largest)


@functools.cache
def _threads() -> tuple[int, ThreadPoolExecutor]:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return count, ThreadPoolExecutor(count, "highway-rl")


def each_part(run: Callable[[int, int], Any], states: int, work: int) -> list[Any]:
    """What `run(first, last)` gives over all states, on all cores where that pays."""
    count, pool = _threads() if work >= ENOUGH else (1, None)
    if pool is None or count == 1:
        return [run(0, states)]
    ends = [states * i // count for i in range(count + 1)]
    others = [pool.submit(run, first, last) for first, last in pairwise(ends[1:])]
    return [run(ends[0], ends[1]), *(other.result() for other in others)]


def in_parts(run: Callable[[int, int], tuple[float, float, float]], states: int, work: int) -> Spread:
    """What passes over all parts changed, together."""
    parts = each_part(run, states, work)
    return Spread(min(p[0] for p in parts), max(p[1] for p in parts), max(p[2] for p in parts))


class CompiledRows:
    """Rows in compiled passes: K places each where all have as many, compressed (CSR) where not.

    The model's own arrays are read where they lie. Beside them stand the rows of one policy and a few vectors.
    """

    def __init__(self, mdp: MDP | SparseMDP) -> None:
        kernels, self.mdp = compiler(), mdp
        self.reward = np.ascontiguousarray(mdp.reward, np.float64)
        self.shape = S, A = self.reward.shape
        self.start, self.successor, self.probability = _layout(mdp)
        discount = np.asarray(mdp.discount, np.float64)
        self.discount = float(discount.flat[0])
        if np.any(discount != self.discount):  # a factor of each row goes into the row
            lengths = len(self.start) if isinstance(self.start, tuple) else np.diff(self.start).astype(np.int64)
            self.probability = self.probability * np.repeat(discount.ravel(), lengths)
            self.discount = 1.0
        self.work = self.probability.size
        ends, kept = np.empty(S, bool), np.empty((S, A))
        from highway_rl.solvers import shape  # needs numba

        self.shapes: Any = shape
        self.shapes.row_facts(self.start, self.successor, self.probability, self.reward, ends, kept)
        kept *= self.discount
        own = mdp.probability.shape[-1] if isinstance(mdp, MDP) else np.diff(mdp.transition.tocsr().indptr).max()
        self.widest = max(int(own), self.longest)  # of the model's rows: those here may be shorter, by sums
        self.drift = drift_of(mdp, ends, kept, self.widest)
        self.weight = (~ends).astype(np.float64) if self.drift is None else self.drift.weight
        self._alive = np.empty(0, bool) if np.all(self.weight > 0) else self.weight > 0
        self._kernels = kernels
        self._held: CompiledPolicy | None = None

    @property
    def fixed(self) -> bool:
        return isinstance(self.start, tuple)

    @property
    def longest(self) -> int:
        return len(self.start) if isinstance(self.start, tuple) else int(np.diff(self.start).max(initial=0))

    def table(self) -> tuple[Any, ...]:
        """What every kernel takes first."""
        return self.start, self.successor, self.probability, self.reward, self.discount

    def backup(self, x: Value, out: Value) -> tuple[Spread, Actions]:
        policy = np.empty(self.shape[0], np.int32)

        def run(first: int, last: int) -> tuple[float, float, float]:
            return self._kernels.backup(*self.table(), self._alive, x, out, policy, first, last)

        return in_parts(run, self.shape[0], self.work), policy

    def under(self, policy: Actions) -> CompiledPolicy:
        self._held = CompiledPolicy(self, policy.astype(np.int32, copy=False), self._held)
        return self._held


class CompiledPolicy:
    """One row per state, copied together; in the fixed layout only rows that changed since the policy before."""

    held: np.ndarray
    parts: tuple[Any, np.ndarray, np.ndarray, np.ndarray]
    single: np.ndarray

    def __init__(self, rows: CompiledRows, policy: Actions, before: CompiledPolicy | None) -> None:
        kernels, (S, A) = compiler(), rows.shape
        self.rows = rows
        if A == 1:
            self.parts = rows.start, rows.successor, rows.probability, rows.reward[:, 0]
            self.single = np.empty(0, np.float32)
        else:
            if isinstance(rows.start, tuple) and before is not None:
                self.held, self.parts, self.single = before.held, before.parts, before.single
            else:
                own, size = _room(rows, policy)
                self.held = np.full(S, -1, np.int32)
                self.parts = own, np.empty(size, np.uint32), np.empty(size), np.empty(S)
                self.single = np.empty(size if scattered(rows) else 0, np.float32)
            given = *rows.table()[:4], policy, self.held, *self.parts, self.single
            each_part(lambda first, last: kernels.choose(*given, first, last), S, rows.work)
        self.reward: Value = self.parts[3]
        self.work = self.parts[2].size

    def sweep(self, x: Value, out: Value) -> Spread:
        return self.run(self.parts[2], self.reward, x, out)

    def follow(self, x: Value, out: Value) -> None:
        self.run(self.parts[2], self._nothing, x, out)

    @functools.cached_property
    def _nothing(self) -> Value:
        return np.zeros(self.rows.shape[0])

    def around(self, before: Value, after: Value) -> Single | None:
        return Single(self, before, after) if self.single.size else None

    def run(self, chance: np.ndarray, reward: Value, x: Value, out: Value) -> Spread:
        """out ← reward + γ·chance·x, in the precision of x."""
        rows, discount = self.rows, x.dtype.type(self.rows.discount)
        start, successor = self.parts[:2]

        def run(first: int, last: int) -> tuple[float, float, float]:
            return rows._kernels.sweep(start, successor, chance, reward, discount, rows._alive, x, out, first, last)

        return in_parts(run, len(x), self.work)


def _room(rows: CompiledRows, policy: Actions) -> tuple[Any, int]:
    """Where the rows of a policy begin, and how many entries they have."""
    S, A = rows.shape
    if isinstance(rows.start, tuple):
        return rows.start, S * len(rows.start)
    chosen, own = np.arange(S) * A + policy, np.zeros(S + 1, np.uint64)
    np.cumsum(rows.start[chosen + 1] - rows.start[chosen], out=own[1:])
    return own, int(own[-1])


def _layout(mdp: MDP | SparseMDP) -> tuple[Any, np.ndarray, np.ndarray]:
    """start, successor and probability of all rows, without copying where rows have one length."""
    if isinstance(mdp, MDP):
        successor = np.ascontiguousarray(mdp.successor, np.int32).view(np.uint32)
        validate.in_range(successor, mdp.num_states)
        probability = np.ascontiguousarray(mdp.probability, np.float64)
        K = probability.shape[-1]
        if probability.size >= LARGE and np.count_nonzero(probability) >= 0.7 * probability.size:
            return (0,) * K, successor.ravel(), probability.ravel()
    P = validate.sparse_matrix("P", mdp.sparse().transition)
    count = np.diff(P.indptr)
    indices = P.indices.view(np.uint32) if P.indices.dtype == np.int32 else P.indices.astype(np.uint32)
    validate.in_range(indices, mdp.num_states)
    K = int(count[0])
    if P.nnz >= LARGE and 0 < K <= 32 and np.all(count == K):
        return (0,) * K, indices, P.data
    return P.indptr.astype(np.uint64), indices, P.data


class PlainRows:
    """Rows as SciPy multiplies them, where numba is not installed: slower, the same answers."""

    def __init__(self, mdp: SparseMDP) -> None:
        self.mdp = mdp
        self.shape, self.work = mdp.reward.shape, mdp.transition.nnz
        longest = int(np.diff(mdp.transition.indptr).max(initial=0))
        ends = validate.absorbing(mdp)
        kept = mdp.discount * np.asarray(mdp.transition.sum(axis=1)).reshape(self.shape)
        self.drift = drift_of(mdp, ends, kept, longest)
        self.alive = ~ends

    def backup(self, x: Value, out: Value) -> tuple[Spread, Actions]:
        q = self.mdp.q_values(x)
        policy = q.argmax(axis=1)
        np.max(q, axis=1, out=out)
        return spread(x, out, self.alive), policy

    def under(self, policy: Actions) -> PlainPolicy:
        return PlainPolicy(PolicyModel.of(self.mdp, policy), self.alive)


class PlainPolicy:
    """A `PolicyModel` behind the interface."""

    def __init__(self, model: PolicyModel, alive: np.ndarray) -> None:
        self.model, self.alive = model, alive
        self.reward, self.work = model.reward, model.transition.nnz

    def sweep(self, x: Value, out: Value) -> Spread:
        self.follow(x, out)
        out += self.reward
        return spread(x, out, self.alive)

    def follow(self, x: Value, out: Value) -> None:
        np.multiply(self.model.discount, self.model.transition @ x, out=out)
