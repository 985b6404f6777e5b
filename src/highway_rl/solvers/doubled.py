"""Beyond the rounding of float64: what is left of V* above a guess, as a model of its own. Needs numba.

    ρ(s,a) = r(s,a) + γ Σ P(s'|s,a) x(s') − x(s)          counted in two doubles, about 32 digits

The model with rewards ρ and the same moves has the optimal values V* − x. If they are known to be at most h, an action
with ρ < −2h is none that is optimal, and may as well cost −4h: then all numbers are small where x is near V*, and so is
rounding, which is relative to them. It is one step of iterative refinement, with a solver for MDPs in the place of one
for linear systems.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numba
import numpy as np
from jaxtyping import Float

from highway_rl.mdp.model import MDP
from highway_rl.solvers.drift import EPS, TINY
from highway_rl.solvers.kernels import ONE, begin
from highway_rl.solvers.rows import CompiledRows, in_parts

exactly: Any = numba.njit(cache=True, nogil=True)
"""As it is written: nothing reordered, nothing fused."""
HALF: Any = 134217729.0
"""2²⁷ + 1: times this a double falls into two of half its digits (Dekker)."""
LARGEST = 2.0**990
"""Values that stay finite times HALF."""


def beyond(rows: Any, x: Float[np.ndarray, "s"], half: float) -> CompiledRows | None:
    """The model of what is left above x, with optimal values V* − x, which are at most `half`; None where rows are not
    compiled, or numbers overflow."""
    if not isinstance(rows, CompiledRows) or rows.drift is None:
        return None
    if np.abs(x).max(initial=0.0) > LARGEST:
        return None
    left, table = copy.copy(rows), own_numbers(rows)
    left.reward, left._held = np.empty(rows.shape), None

    def run(first: int, last: int) -> tuple[float, float, float]:
        return rewards(*table, x, -4 * half, left.reward, first, last)

    sizes = in_parts(run, rows.shape[0], rows.work)
    lost = 16 * (rows.widest + 8) ** 2 * EPS**2 * (rows.drift.largest_reward + 2 * sizes.size) + TINY
    largest = max(abs(sizes.low), abs(sizes.high)) + lost / EPS
    rounding = rows.drift.rounding + (rows.widest + 1) * EPS  # that of ρ, and of chances that were summed
    if not (np.isfinite(largest) and rows.drift.least > 4 * rounding * rows.drift.top):
        return None
    left.drift = dataclasses.replace(rows.drift, rounding=rounding, largest_reward=largest)
    return left


def own_numbers(rows: CompiledRows) -> tuple[Any, ...]:
    """start, successor, probability, reward and discount as the model has them, where rows may hold sums of chances of
    one successor, or their products with discounts."""
    mdp, (S, A) = rows.mdp, rows.shape
    discount = np.broadcast_to(np.asarray(mdp.discount, np.float64), (S, A))
    start: Any
    if isinstance(mdp, MDP):
        places = mdp.probability.shape[-1]
        same = isinstance(rows.start, tuple) and len(rows.start) == places
        start = rows.start if same else np.arange(S * A + 1, dtype=np.uint64) * np.uint64(places)
        successor = np.ascontiguousarray(mdp.successor, np.int32).view(np.uint32).ravel()
        chance = np.ascontiguousarray(mdp.probability, np.float64).ravel()
    else:
        P = mdp.transition.tocsr()
        start, successor, chance = P.indptr.astype(np.uint64), P.indices.astype(np.uint32), P.data
    return start, successor, chance, rows.reward, discount


@exactly
def sum_of(a: Any, b: Any) -> Any:
    """a + b and its error, which is a double (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@exactly
def product_of(a: Any, b: Any) -> Any:
    """a·b and its error, which is a double (Dekker)."""
    product, up, vp = a * b, HALF * a, HALF * b
    a1, b1 = up - (up - a), vp - (vp - b)
    a2, b2 = a - a1, b - b1
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


@exactly
def rewards(
    start: Any, successor: Any, probability: Any, reward: Any, discount: Any,
    x: Any, least: Any, out: Any, first: Any, last: Any,
) -> Any:  # fmt: skip
    """out ← max{ρ, least}; the least and largest of them, and max|x|."""
    actions = np.uint64(reward.shape[1])
    low, high, size = np.inf, -np.inf, 0.0
    for s in range(np.uint64(first), np.uint64(last)):
        size = max(size, abs(x[s]))
        for a in range(actions):
            row = s * actions + a
            total, rest = 0.0, 0.0
            for i in range(begin(start, row), begin(start, row + ONE)):
                term, error = product_of(probability[i], x[successor[i]])
                total, more = sum_of(total, term)
                rest += error + more
            factor = discount[s, a]
            scaled, error = product_of(total, factor)
            paid, more = sum_of(scaled, reward[s, a])
            change, last_error = sum_of(paid, -x[s])
            out[s, a] = max(least, change + ((error + rest * factor) + (more + last_error)))
            low, high = min(low, out[s, a]), max(high, out[s, a])
    return low, high, size
