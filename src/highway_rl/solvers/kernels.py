"""Compiled passes over a model's rows: full backups, policy sweeps, ordered sweeps, rows of a policy. Needs numba.

A row s·A + a holds the successors of one state and action, as entries i from begin(row) to begin(row + 1) of two flat
arrays, successor[i] and probability[i], in one of two layouts, told apart by the type of `start`:

    fixed      start = (0,)·K     K entries in each row, a number the compiler knows
    ragged     start[row]         compressed rows (CSR)

Indices are unsigned: for signed ones numba adds a test. Kernels are cached on disk and let go of the interpreter's
lock, so that threads run them side by side on ranges of states.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

# sums in any order and fused products: the rounding bound counts operations, whatever their order
FREE = {"reassoc", "contract", "nsz"}
ONE: Any = np.uint64(1)
NONE: Any = np.uint64(0)
AHEAD: Any = np.uint64(8)
"""How many states before its turn the successors' values of one are asked for."""


def compiled(function: Any) -> Any:
    """Compiled on first use and kept on disk."""
    return numba.njit(cache=True, nogil=True, fastmath=FREE)(function)


def begin(start: Any, row: Any) -> Any:
    """The first entry of a row."""


@overload(begin, inline="always")
def _begin(start: Any, row: Any) -> Any:
    def fixed(start: Any, row: Any) -> Any:
        return row * np.uint64(len(start))

    def ragged(start: Any, row: Any) -> Any:
        return start[row]

    return fixed if isinstance(start, types.BaseTuple) else ragged


@intrinsic
def _fetch(context: Any, array: Any, index: Any) -> Any:
    """Asks the memory for array[index] and does not wait for it."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        place, number = builder.gep(data, [given[1]]), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(call, [place, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, index), generate


def ask(start: Any, successor: Any, row: Any, v: Any) -> None:
    """Asks for the values of a row's successors where they are single: doubles come no sooner for it (measured)."""


@overload(ask, inline="always")
def _ask(start: Any, successor: Any, row: Any, v: Any) -> Any:
    def single(start: Any, successor: Any, row: Any, v: Any) -> None:
        for i in range(begin(start, row), begin(start, row + ONE)):
            _fetch(v, successor[i])  # type: ignore[call-arg]  # numba passes the context

    def double(start: Any, successor: Any, row: Any, v: Any) -> None:
        pass

    return single if v.dtype == types.float32 else double


@compiled
def q_value(start: Any, successor: Any, probability: Any, paid: Any, discount: Any, row: Any, v: Any) -> Any:
    """r + γ Σ P(s' | row) V(s'), in the precision of V."""
    total = v.dtype.type(0)
    for i in range(begin(start, row), begin(start, row + ONE)):
        total += probability[i] * v[successor[i]]
    return paid + discount * total


@compiled
def best_action(start: Any, successor: Any, probability: Any, reward: Any, discount: Any, s: Any, v: Any) -> Any:
    """max_a q(s,a), and the first action that has it."""
    actions = np.uint64(reward.shape[1])
    best, chosen = -np.inf, NONE
    for a in range(actions):
        q = q_value(start, successor, probability, reward[s, a], discount, s * actions + a, v)
        if q > best:
            best, chosen = q, a
    return best, chosen


@compiled
def backup(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any, alive: Any,
    v: Any, out: Any, policy: Any, first: Any, last: Any,
) -> Any:  # fmt: skip
    """out ← 𝓑v and its greedy policy; changes of those alive (all if none is named); max|out|."""
    low, high, size, whole = np.inf, -np.inf, 0.0, len(alive) == 0
    for s in range(np.uint64(first), np.uint64(last)):
        best, chosen = best_action(start, successor, probability, reward, discount, s, v)
        out[s] = best
        policy[s] = chosen
        size = max(size, abs(best))
        if whole or alive[s]:
            change = best - v[s]
            low, high = min(low, change), max(high, change)
    return low, high, size


@compiled
def sweep(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any, alive: Any,
    v: Any, out: Any, first: Any, last: Any,
) -> Any:  # fmt: skip
    """out ← 𝓑^π v on rows of one policy; the same three numbers."""
    low, high, size, whole = v.dtype.type(np.inf), v.dtype.type(-np.inf), v.dtype.type(0), len(alive) == 0
    for s in range(np.uint64(first), np.uint64(last)):
        ask(start, successor, min(s + AHEAD, np.uint64(last) - ONE), v)
        new = q_value(start, successor, probability, reward[s], discount, s, v)
        out[s] = new
        size = max(size, abs(new))
        if whole or alive[s]:
            change = new - v[s]
            low, high = min(low, change), max(high, change)
    return low, high, size


@compiled
def ordered_backup(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any, order: Any, v: Any, policy: Any
) -> Any:
    """v(s) ← max_a q(s,a) in place, in the given order; the largest change."""
    largest = 0.0
    for i in range(len(order)):
        s = np.uint64(order[i])
        best, chosen = best_action(start, successor, probability, reward, discount, s, v)
        largest = max(largest, abs(best - v[s]))
        v[s] = best
        policy[s] = chosen
    return largest


@compiled
def ordered_sweep(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any, order: Any, v: Any, policy: Any
) -> Any:
    """v(s) ← q(s, π(s)) in place, in the given order; the largest change."""
    actions = np.uint64(reward.shape[1])
    largest = 0.0
    for i in range(len(order)):
        s = np.uint64(order[i])
        a = np.uint64(policy[s])
        new = q_value(start, successor, probability, reward[s, a], discount, s * actions + a, v)
        largest = max(largest, abs(new - v[s]))
        v[s] = new
    return largest


@compiled
def choose(
    start: Any, successor: Any, probability: Any, reward: Any, policy: Any, held: Any,
    own: Any, to: Any, chance: Any, paid: Any, single: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Copies the rows of the policy, for a range of states, where it differs from the one held, to where the layout
    `own` has them.

    `single` gets the chances in single precision, unless it has no room.
    """
    actions = np.uint64(reward.shape[1])
    for s in range(np.uint64(first), np.uint64(last)):
        if policy[s] != held[s]:
            held[s] = policy[s]
            a = np.uint64(policy[s])
            paid[s] = reward[s, a]
            at = begin(own, s)
            for i in range(begin(start, s * actions + a), begin(start, s * actions + a + ONE)):
                to[at], chance[at] = successor[i], probability[i]
                if len(single):
                    single[at] = probability[i]
                at += ONE
