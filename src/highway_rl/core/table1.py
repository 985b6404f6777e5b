"""The rows of the paper's Table 1 that need no trace, as `Backup` records: variants are data.

The rows that do (importance sampling, Q(λ), Retrace(λ)) are target rules in `targets.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from highway_rl import checks
from highway_rl.core.backup import Backup

Depths = int | np.integer | Iterable[int | np.integer]
"""One lookahead depth, or several."""


def multi_step(depths: Depths, prior: Any = None) -> Backup:
    """𝓑^𝒩: the expectation of plain n-step returns; its fixed point is ≤ Q*. Paper: Eq. 3, Thms. 1, 2."""
    return Backup(_as_depths(depths), prior, gate_depth=None)


def lambda_return(lam: Any, max_depth: int) -> Backup:
    """The λ-return over depths 1…N: weight (1−λ)λⁿ⁻¹ for n < N and the rest, λᴺ⁻¹, for N. Paper: Sec. 3."""
    checks.unit_interval("lam", lam)
    depths = _as_depths(range(1, max_depth + 1))
    n = np.arange(max_depth)
    return multi_step(depths, (1.0 - lam * (n < max_depth - 1)) * lam**n)


def highway(depths: Depths, prior: Any = None) -> Backup:
    """𝒢: the expectation of gated returns; converges to Q* for any depths and policies. Paper: Eq. 4, Thm. 3."""
    return Backup(_as_depths(depths), prior)


def highway_optimality(depths: Depths) -> Backup:
    """𝒢*: the largest gated return over depths and policies. Paper: Eq. 5, Thm. 4."""
    return Backup(_as_depths(depths), depth_alpha=math.inf, policy_alpha=math.inf)


def highway_softmax(depths: Depths, alpha: Any) -> Backup:
    """𝒢^α: softmax over depths and policies; alpha → ∞ is 𝒢*, alpha = 0 uniform 𝒢. Paper: Eq. 6, Thm. A.2."""
    checks.numbers("alpha", alpha, lambda x: x >= 0, "in [0, inf]")
    return Backup(_as_depths(depths), depth_alpha=alpha, policy_alpha=alpha)


def limited_gate(depths: Depths, gate_depth: int, prior: Any = None) -> Backup:
    """The gate with another threshold n₁ ≠ 1, which does not converge to Q*. Paper: Remarks 1, 2."""
    return Backup(_as_depths(depths), prior, gate_depth=gate_depth)


def expectation_gate(depths: Depths, share: float = 0.5) -> Backup:
    """The gate's max replaced by a mean, `share` on the n-step return: a multi-step operator. Paper: Sec. 4.1."""
    checks.unit_interval("share", share)
    depths = _as_depths(depths)
    weight = dict.fromkeys((1, *depths), 0.0)
    for n in depths:
        weight[n] += share / len(depths)
    weight[1] += 1.0 - share
    return multi_step(tuple(weight), np.array(list(weight.values())))


def _as_depths(depths: Depths) -> tuple[int, ...]:
    given = tuple(depths) if isinstance(depths, Iterable) and not isinstance(depths, str) else (depths,)
    return tuple(int(n) if isinstance(n, np.integer) else n for n in given)
