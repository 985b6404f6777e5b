"""Compiled passes over a model's rows: full backup, policy sweep, ordered sweeps, distance to an end. Needs numba.

A row s·A + a holds the successors of one state and action, in one of two layouts, told apart by the type of `start`:

    fixed      start = (0,)·K     successor[row, k], probability[row, k]: K places, a number the compiler knows
    ragged     start[row]         successor[i], probability[i]: compressed rows (CSR)

Indices are unsigned: for signed ones numba adds a test. Kernels are cached on disk and let go of the interpreter's
lock, so that threads run them side by side on ranges of states.
"""

from __future__ import annotations

import inspect
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import overload

# sums in any order and fused products: the rounding bound counts operations, whatever their order
FREE = {"reassoc", "contract", "nsz"}
ONE: Any = np.uint64(1)
NONE: Any = np.uint64(0)


def compiled(function: Any) -> Any:
    """Compiled on first use and kept on disk; type checks that a test run puts around functions are taken off."""
    return numba.njit(cache=True, nogil=True, fastmath=FREE)(inspect.unwrap(function))


def row_dot(start: Any, successor: Any, probability: Any, row: Any, v: Any) -> Any:
    """Σ P(s' | row) V(s')."""


@overload(row_dot, inline="always", jit_options={"fastmath": FREE})
def _row_dot(start: Any, successor: Any, probability: Any, row: Any, v: Any) -> Any:
    def fixed(start: Any, successor: Any, probability: Any, row: Any, v: Any) -> Any:
        total = 0.0
        for k in range(len(start)):
            total += probability[row, k] * v[successor[row, k]]
        return total

    def ragged(start: Any, successor: Any, probability: Any, row: Any, v: Any) -> Any:
        total = 0.0
        for i in range(start[row], start[row + ONE]):
            total += probability[i] * v[successor[i]]
        return total

    return inspect.unwrap(fixed if isinstance(start, types.BaseTuple) else ragged)


@compiled
def backup(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any, weight: Any,
    v: Any, out: Any, policy: Any, first: Any, last: Any,
) -> Any:  # fmt: skip
    """out ← 𝓑v and its greedy policy; the least and largest change where the weight is positive, the largest |out|."""
    actions = np.uint64(reward.shape[1])
    low, high, size = np.inf, -np.inf, 0.0
    for s in range(np.uint64(first), np.uint64(last)):
        best, chosen = -np.inf, NONE
        for a in range(actions):
            q = reward[s, a] + discount * row_dot(start, successor, probability, s * actions + a, v)
            if q > best:
                best, chosen = q, a
        out[s] = best
        policy[s] = chosen
        size = max(size, abs(best))
        if weight[s] > 0:
            change = best - v[s]
            low, high = min(low, change), max(high, change)
    return low, high, size


@compiled
def sweep(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any, weight: Any,
    v: Any, out: Any, first: Any, last: Any,
) -> Any:  # fmt: skip
    """out ← 𝓑^π v on rows of one policy; the same three numbers."""
    low, high, size = np.inf, -np.inf, 0.0
    for s in range(np.uint64(first), np.uint64(last)):
        new = reward[s] + discount * row_dot(start, successor, probability, s, v)
        out[s] = new
        size = max(size, abs(new))
        if weight[s] > 0:
            change = new - v[s]
            low, high = min(low, change), max(high, change)
    return low, high, size


@compiled
def ordered_backup(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any, order: Any, v: Any, policy: Any
) -> Any:
    """v(s) ← max_a q(s,a) in place, in the given order; the largest change."""
    actions = np.uint64(reward.shape[1])
    largest = 0.0
    for i in range(len(order)):
        s = np.uint64(order[i])
        best, chosen = -np.inf, NONE
        for a in range(actions):
            q = reward[s, a] + discount * row_dot(start, successor, probability, s * actions + a, v)
            if q > best:
                best, chosen = q, a
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
        new = reward[s, a] + discount * row_dot(start, successor, probability, s * actions + a, v)
        largest = max(largest, abs(new - v[s]))
        v[s] = new
    return largest


@compiled
def choose(
    successor: Any, probability: Any, reward: Any, policy: Any, held: Any, to: Any, chance: Any, paid: Any
) -> Any:
    """Copies the rows of the policy where it differs from the one held, in the fixed layout; how many those were."""
    actions, places = np.uint64(reward.shape[1]), np.uint64(successor.shape[1])
    changed = 0
    for s in range(np.uint64(len(policy))):
        a = np.uint64(policy[s])
        if policy[s] != held[s]:
            changed += 1
            held[s] = policy[s]
            paid[s] = reward[s, a]
            for k in range(places):
                to[s, k] = successor[s * actions + a, k]
                chance[s, k] = probability[s * actions + a, k]
    return changed


@compiled
def choose_ragged(
    start: Any, successor: Any, probability: Any, reward: Any, policy: Any, begin: Any, to: Any, chance: Any, paid: Any
) -> None:
    """Copies the rows of the policy, in the ragged layout, behind each other."""
    actions = np.uint64(reward.shape[1])
    for s in range(np.uint64(len(policy))):
        a = np.uint64(policy[s])
        paid[s] = reward[s, a]
        at = np.uint64(begin[s])
        for i in range(start[s * actions + a], start[s * actions + a + ONE]):
            to[at], chance[at] = successor[i], probability[i]
            at += ONE


@compiled
def row_facts(start: Any, successor: Any, probability: Any, reward: Any, ends: Any, totals: Any) -> None:
    """Which states are absorbing, and Σ P of each row."""
    actions = np.uint64(reward.shape[1])
    for s in range(np.uint64(reward.shape[0])):
        stays = True
        for a in range(actions):
            row = s * actions + a
            total, leaves = row_total(start, successor, probability, row, s)
            totals[s, a] = total
            stays = stays and not leaves and reward[s, a] == 0
        ends[s] = stays


def row_total(start: Any, successor: Any, probability: Any, row: Any, s: Any) -> Any:
    """Σ P(s' | row), and whether any of it leaves s."""


@overload(row_total, jit_options={"fastmath": FREE})
def _row_total(start: Any, successor: Any, probability: Any, row: Any, s: Any) -> Any:
    def fixed(start: Any, successor: Any, probability: Any, row: Any, s: Any) -> Any:
        total, leaves = 0.0, False
        for k in range(len(start)):
            total += probability[row, k]
            leaves |= probability[row, k] > 0 and successor[row, k] != s
        return total, leaves

    def ragged(start: Any, successor: Any, probability: Any, row: Any, s: Any) -> Any:
        total, leaves = 0.0, False
        for i in range(start[row], start[row + ONE]):
            total += probability[i]
            leaves |= probability[i] > 0 and successor[i] != s
        return total, leaves

    return inspect.unwrap(fixed if isinstance(start, types.BaseTuple) else ragged)


@compiled
def by_distance(begin: Any, successor: Any, probability: Any, ends: Any) -> Any:
    """States in the order of a breadth-first search backwards from the ends, as far as it gets; the distances."""
    states = np.uint64(len(ends))
    into = np.zeros(len(ends) + 2, np.uint64)
    for s in range(states):
        for i in range(begin[s], begin[s + ONE]):
            if probability[i] > 0 and successor[i] != s:
                into[np.uint64(successor[i]) + np.uint64(2)] += ONE
    for s in range(states):
        into[s + ONE + ONE] += into[s + ONE]
    source = np.empty(into[states + ONE], np.uint32)
    for s in range(states):
        for i in range(begin[s], begin[s + ONE]):
            if probability[i] > 0 and successor[i] != s:
                place = np.uint64(successor[i]) + ONE
                source[into[place]] = s
                into[place] += ONE
    order, distance = np.empty(states, np.uint32), np.full(states, np.uint32(2**32 - 1))
    count = NONE
    for s in range(states):
        if ends[s]:
            order[count], distance[s] = s, 0
            count += ONE
    head = NONE
    while head < count:
        t = np.uint64(order[head])
        head += ONE
        for i in range(into[t], into[t + ONE]):
            s = np.uint64(source[i])  # type: ignore[assignment]
            if distance[s] == np.uint32(2**32 - 1):
                distance[s] = distance[t] + np.uint32(1)
                order[count] = s
                count += ONE
    return order[:count], distance


@compiled
def nearer(start: Any, successor: Any, probability: Any, distance: Any, actions: Any) -> Any:
    """How many states have an action that comes nearer to an end more likely than not."""
    found = 0
    for s in range(np.uint64(len(distance))):
        for a in range(np.uint64(actions)):
            if row_nearer(start, successor, probability, s * np.uint64(actions) + a, distance, distance[s]) > 0.5:
                found += 1
                break
    return found


def row_nearer(start: Any, successor: Any, probability: Any, row: Any, distance: Any, own: Any) -> Any:
    """Σ P(s' | row) over the s' that are nearer."""


@overload(row_nearer)
def _row_nearer(start: Any, successor: Any, probability: Any, row: Any, distance: Any, own: Any) -> Any:
    def fixed(start: Any, successor: Any, probability: Any, row: Any, distance: Any, own: Any) -> Any:
        total = 0.0
        for k in range(len(start)):
            if distance[successor[row, k]] < own:
                total += probability[row, k]
        return total

    def ragged(start: Any, successor: Any, probability: Any, row: Any, distance: Any, own: Any) -> Any:
        total = 0.0
        for i in range(start[row], start[row + ONE]):
            if distance[successor[i]] < own:
                total += probability[i]
        return total

    return inspect.unwrap(fixed if isinstance(start, types.BaseTuple) else ragged)
