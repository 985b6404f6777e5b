"""Models in blocks of states, each held by a worker: processes of this machine, or actors of a Ray cluster.

    the values that a block's rows lead to ──> its worker ──> its backup, greedy policy and change ──> the solver

What is here are a few vectors of one number per state; rows are only where their worker is, with columns renumbered to
the states they lead to. To the gated solver blocks are a form of `Rows` like any other, so bounds are made by the same
lines. A worker that dies is replaced and gets its block anew: what it computes depends on nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from highway_rl import checks
from highway_rl.machines import Died, Workers, workers
from highway_rl.mdp.model import SparseMDP
from highway_rl.solvers.drift import EPS, Drift, Spread
from highway_rl.solvers.gated import highway_solve
from highway_rl.solvers.loop import Solution
from highway_rl.solvers.rows import Actions, Value

Piece = tuple[Any, Any, Any]
"""Rewards [s, a] of some states, transitions of their rows s·A + a to all states, and the discount, one or [s, a]."""
Load = Callable[[int, int], Piece]
"""(first, last) → the piece of the states from `first` to before `last`; called where the worker is."""
LIVES = 3
"""Times that a worker may die over one question."""


class Facts(NamedTuple):
    """What a block says of itself: the states its rows lead to, which of its own are ends, and what bounds need."""

    needs: np.ndarray
    ends: np.ndarray
    kept: tuple[float, float]
    longest: int
    largest_reward: float
    work: int


class Block:
    """The rows of states from `first` on, in one worker."""

    def __init__(self, piece: Piece, first: int, states: int) -> None:
        self.reward = np.asarray(piece[0], np.float64)
        P, count = csr_array(piece[1]), self.reward.size
        if self.reward.ndim != 2 or P.shape != (count, states):
            raise ValueError(
                f"a block has rewards {self.reward.shape} and transitions {P.shape}: give [s, a] and one row for each,"
                f" as long as all {states} states"
            )
        P.sum_duplicates()
        total = P.sum(axis=1)
        if not (np.all(np.abs(total - 1) < 1e-8) and np.all(P.data >= 0) and np.all(np.isfinite(self.reward))):
            raise ValueError(f"the block of state {first} has rows that cannot be: give probabilities that sum to 1")
        own = np.arange(first, first + len(self.reward))
        self.needs = np.union1d(P.indices, own)
        columns = np.searchsorted(self.needs, P.indices)
        self.transition = csr_array((P.data, columns, P.indptr), shape=(count, len(self.needs)))
        self.own = np.searchsorted(self.needs, own)
        self.discount = np.broadcast_to(np.asarray(piece[2], np.float64), self.reward.shape)
        owner = np.repeat(np.arange(count) // self.reward.shape[1], np.diff(P.indptr))
        leaves = np.zeros(len(own), bool)
        leaves[owner[(P.indices != own[owner]) & (P.data > 0)]] = True
        self.alive = leaves | np.any(self.reward != 0, axis=1)
        self.total = total.reshape(self.reward.shape)
        self.version = -1

    def facts(self) -> Facts:
        kept = (self.discount * self.total)[self.alive]
        span = (float(kept.min(initial=1.0)), float(kept.max(initial=0.0)))
        longest = int(np.diff(self.transition.indptr).max(initial=0))
        largest = float(np.abs(self.reward).max(initial=0.0))
        return Facts(self.needs, ~self.alive, span, longest, largest, self.transition.nnz)

    def backup(self, x: Value) -> tuple[Spread, Value, Actions]:
        q = self.reward + self.discount * (self.transition @ x).reshape(self.reward.shape)
        policy = q.argmax(axis=1).astype(np.int32)
        out = np.take_along_axis(q, policy[:, None], axis=1)[:, 0]
        return self._spread(x, out), out, policy

    def under(self, version: int, policy: Actions) -> Value:
        """Keeps the rows of a policy; their rewards."""
        states = np.arange(len(policy))
        self.chosen = self.transition[states * self.reward.shape[1] + policy]
        self.paid, self.factor = self.reward[states, policy], self.discount[states, policy]
        self.version = version
        return self.paid

    def sweep(self, version: int, x: Value, pays: float) -> tuple[Spread, Value]:
        if version != self.version:
            raise LostError
        out = pays * self.paid + self.factor * (self.chosen @ x)
        return self._spread(x, out), out

    def _spread(self, x: Value, out: Value) -> Spread:
        change = (out - x[self.own])[self.alive]
        size = float(np.abs(out).max(initial=0.0))
        return Spread(float(change.min(initial=np.inf)), float(change.max(initial=-np.inf)), size)


class LostError(Exception):
    """A new worker, which has no block or no policy yet."""


_HELD: dict[str, Block] = {}
"""In a worker: its blocks, by the number of the solve and of the block."""
_NUMBERS = itertools.count()


def _hold(key: str, piece: Any, first: int, last: int, states: int) -> Facts:
    _HELD[key] = Block(piece(first, last) if callable(piece) else piece, first, states)
    return _HELD[key].facts()


def _ask(key: str, question: str, *given: Any) -> Any:
    if key not in _HELD:
        raise LostError
    return getattr(_HELD[key], question)(*given)


class BlockRows:
    """The rows of a model on `workers`, one block each, for `highway_solve`; the discount is below 1."""

    def __init__(self, model: SparseMDP | Load, states: int, actions: int, workers: Workers) -> None:
        self.shape = checks.whole("states", states, 1), checks.whole("actions", actions, 1)
        self.workers, self.model = workers, model
        count = min(workers.count, states)
        self.ends = [states * i // count for i in range(count + 1)]
        self.key, self.version, self.restarts = f"{next(_NUMBERS)}", 0, 0
        self.policy: Actions | None = None
        self.facts: list[Facts] = self._gather([self._begin(i) for i in range(count)])
        rounding = (max(f.longest for f in self.facts) + 8) * EPS
        least, flat = 1 - max(f.kept[1] for f in self.facts), 1 - min(f.kept[0] for f in self.facts)
        if least <= 4 * rounding:
            raise ValueError(f"the discount of these blocks reaches {1 - least:g}: give one below 1")
        ends = np.concatenate([f.ends for f in self.facts])
        self.work = sum(f.work for f in self.facts)
        largest = max(f.largest_reward for f in self.facts)
        most = 1.0 if ends.any() else flat
        self.drift: Drift | None = Drift((~ends).astype(np.float64), least, most, rounding, largest)

    def _piece(self, i: int) -> Any:
        """What the i-th worker makes its block of: a function, or the rows themselves."""
        if not isinstance(self.model, SparseMDP):
            return self.model
        (first, last), A = self.ends[i : i + 2], self.shape[1]
        rows = self.model.transition[first * A : last * A]
        return self.model.reward[first:last], rows, np.asarray(self.model.discount)[first:last]

    def _begin(self, i: int) -> Any:
        first, last = self.ends[i : i + 2]
        return self.workers.submit(i, _hold, self._name(i), self._piece(i), first, last, self.shape[0])

    def _name(self, i: int) -> str:
        return f"{self.key}.{i}"

    def _gather(self, futures: Sequence[Any], again: Callable[[int], Any] | None = None) -> list[Any]:
        """Every worker's answer; one that died begins anew with its block and its part of the policy, and is asked
        `again`."""
        found = []
        for i, future in enumerate(futures):
            for life in range(LIVES + 1):
                try:
                    found.append(future.result())
                    break
                except (Died, LostError) as error:
                    if life == LIVES:
                        raise ValueError(f"the worker of block {i} died {LIVES} times: give it more memory") from error
                    if isinstance(error, Died):
                        self.workers.revive(i)
                    future = self._begin(i) if again is None else self._restart(i, again)
        return found

    def _restart(self, i: int, again: Callable[[int], Any]) -> Any:
        self.restarts += 1
        self._begin(i)  # a worker answers in the order in which it was asked
        if self.policy is not None:
            self._tell(i)
        return again(i)

    def _tell(self, i: int) -> Any:
        assert self.policy is not None
        part = self.policy[self.ends[i] : self.ends[i + 1]]
        return self.workers.submit(i, _ask, self._name(i), "under", self.version, part)

    def ask(self, question: Callable[[int], tuple[Any, ...]]) -> list[Any]:
        """The answers of all blocks to a question (a name, and what goes with it) that may differ by block."""
        send = lambda i: self.workers.submit(i, _ask, self._name(i), *question(i))  # noqa: E731
        return self._gather([send(i) for i in range(len(self.ends) - 1)], send)

    def needed(self, i: int, x: Value) -> Value:
        """The values that a block's rows lead to."""
        return x[self.facts[i].needs]

    def backup(self, x: Value, out: Value) -> tuple[Spread, Actions]:
        parts = self.ask(lambda i: ("backup", self.needed(i, x)))
        np.concatenate([part[1] for part in parts], out=out)
        return _joined(part[0] for part in parts), np.concatenate([part[2] for part in parts])

    def under(self, policy: Actions) -> BlockPolicy:
        self.policy, self.version = np.asarray(policy, np.int32), self.version + 1
        futures = [self._tell(i) for i in range(len(self.ends) - 1)]
        return BlockPolicy(self, np.concatenate(self._gather(futures, self._tell)))


class BlockPolicy:
    """The rows of one policy, each where its block is."""

    def __init__(self, rows: BlockRows, reward: Value) -> None:
        self.rows, self.reward, self.work = rows, reward, rows.work // rows.shape[1]

    def sweep(self, x: Value, out: Value) -> Spread:
        return self._run(x, out, 1.0)

    def follow(self, x: Value, out: Value) -> None:
        self._run(x, out, 0.0)

    def _run(self, x: Value, out: Value, pays: float) -> Spread:
        version = self.rows.version
        parts = self.rows.ask(lambda i: ("sweep", version, self.rows.needed(i, x), pays))
        np.concatenate([part[1] for part in parts], out=out)
        return _joined(part[0] for part in parts)


def _joined(spreads: Any) -> Spread:
    low, high, size = zip(*spreads, strict=True)
    return Spread(min(low), max(high), max(size))


def block_solve(
    model: SparseMDP | Load,
    tol: float = 1e-6,
    *,
    shape: tuple[int, int] | None = None,
    blocks: int = 4,
    executor: str = "local",
    address: str | None = None,
    **options: Any,
) -> Solution:
    """`highway_solve` with the model in `blocks`, one worker each, on an executor of `machines`.

    The model is one that is here, or a function (first, last) → (rewards [s, a], transitions as a sparse matrix of
    their rows to all states, discount) that each worker calls for its own states; then `shape` is (states, actions).
    Other processes find the function by its name.
    """
    if isinstance(model, SparseMDP):
        shape = model.reward.shape
    elif not callable(model):
        raise ValueError(f"model is a {type(model).__name__}: give a SparseMDP, or a function of (first, last)")
    if shape is None:
        raise ValueError("the shape of a model that is loaded in blocks is unknown: give shape=(states, actions)")
    with workers(executor, checks.whole("blocks", blocks, 1), address=address) as found:
        return highway_solve(BlockRows(model, *shape, found), tol, **options)
