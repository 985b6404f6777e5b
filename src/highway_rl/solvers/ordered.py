"""Sweeps in place, nearest the end first: for models in which some action leads towards an end, more likely than not.

The test is one of structure, made once: distances to an end by breadth-first search, then for each state the largest
chance of an action to come nearer. There a sweep in order of distance carries a value all the way back; elsewhere order
gains nothing and threads cannot share the work.

If V ≤ 𝓑V, values only rise in an ordered sweep, V stays a sub-solution, and 𝓑V − V ≤ γ·(largest change).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from highway_rl.solvers.chooser import Meter
from highway_rl.solvers.rows import CompiledRows, PolicyRows, Value


def order_of(rows: Any) -> np.ndarray | None:
    """States by distance to an end, ends left out; None where the model is not directed to a goal, or not compiled."""
    if not isinstance(rows, CompiledRows) or rows.drift is None:
        return None
    ends = rows.drift.weight == 0
    if not ends.any() or ends.all():
        return None
    S, A = rows.shape
    table = rows.start, rows.successor, rows.probability, A
    order, distance = rows.shapes.by_distance(*table, ends)
    if len(order) < S:  # some state reaches no end
        return None
    nearer = rows.shapes.nearer(*table, distance)
    alive = np.count_nonzero(~ends)
    return order[S - alive :] if 2 * nearer > alive else None


def ordered(rows: CompiledRows, order: np.ndarray, meter: Meter, tol: float) -> Any:
    """A proposal: ordered full backups, each followed by ordered sweeps of its policy, until γδ/(1−γ) is within tol."""
    S, A = rows.shape
    actions = np.empty(S, np.int32)
    assert rows.drift is not None
    target = 2 * tol * rows.drift.least / rows.drift.top

    def propose(policy: PolicyRows, x: Value) -> Value:
        x = x.copy()
        while True:
            meter.add(rows.work, S * A)
            change = rows._kernels.ordered_backup(*rows.table(), order, x, actions)
            if not change > target:
                return x
            swept = change
            for _ in range(2 * A):
                meter.add(rows.work // A, S)
                swept = rows._kernels.ordered_sweep(*rows.table(), order, x, actions)
                if swept <= change / 10:
                    break

    return propose
