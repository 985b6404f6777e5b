"""The paper in one file: returns → gate → aggregate.

Every operator of the paper's Table 1 that needs no trace, and every target of its agents, is

    (𝒢Q)(s,a) = smax_π  smax_{n∈𝒩}  max{ Gⁿ_π(s,a), G¹(s,a) }

where Gⁿ_π = (𝓑^π)ⁿ⁻¹𝓑Q is the n-step return under behavioural policy π, the max is the *highway gate*
and `smax` is an expectation, a softmax or a maximum depending on one number. A named operator is a
`Backup`: which depths, how they weigh, where the gate compares. NumPy arrays and JAX arrays both work,
in the dtype they come in.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from highway_rl.core.checks import check_backup
from highway_rl.types import AnyArray, record, static

TO_END = 10**9
"""The lookahead depth n = ∞: until the trajectory ends."""


Estimates = tuple[Float[AnyArray, "*b n"], Float[AnyArray, "*b"]]
"""What somebody thinks the returns and the reference are on average: the chooser's numbers."""


def gate(
    returns: Float[AnyArray, "*b n"], reference: Float[AnyArray, "*b"], by: Estimates | None = None
) -> Float[AnyArray, "*b n"]:
    """The highway gate: each n-step return, or the reference return where that is larger.

        max_{n' ∈ {1, n}} Gⁿ'

    At Q = Q* no n-step return exceeds the 1-step one, so the gate closes and nothing is
    underestimated; anywhere else the larger of the two is the better guess from below.

    `by` are estimates of both, which choose in their place: where the estimate of the n-step return is the larger one,
    the n-step return itself is paid, lucky or not. With the returns themselves as estimates it is the same gate.

    Paper: Eq. 4 (the max inside), Thm. 3.
    >>> import numpy as np
    >>> gate(np.array([3.0, -9.0, 9.0]), np.array(4.0)).tolist()
    [4.0, 4.0, 9.0]
    >>> gate(np.array([3.0, -9.0, 9.0]), np.array(4.0), (np.array([5.0, 0.0, 1.0]), np.array(2.0))).tolist()
    [3.0, 4.0, 4.0]
    """
    xp = returns.__array_namespace__()
    if by is None:
        return xp.maximum(returns, reference[..., None])
    return xp.where(gate_open(*by), returns, reference[..., None])


def gate_open(returns: Float[AnyArray, "*b n"], reference: Float[AnyArray, "*b"]) -> Bool[AnyArray, "*b n"]:
    """Where the gate lets the n-step return through; ties count as open, as in the paper's Fig. 3c."""
    return returns >= reference[..., None]


def smax(
    values: Float[AnyArray, "*b x"],
    alpha: Any = 0.0,
    prior: Any = None,
    mask: Any = None,
    by: Any = None,
) -> Float[AnyArray, "*b"]:
    """The aggregate of `values` over the last axis, weighted by prior · exp(alpha · value); `by` in place of the values
    chooses the weights.

        smax^α_x f(x) = Σ_x p(x) e^{α f(x)} f(x) / Σ_x p(x) e^{α f(x)}

    alpha = 0 → the expectation under the prior (Eqs. 3, 4); alpha = ∞ → the maximum over the prior's
    support (Eq. 5); between them the paper's softmax (Eq. 6), whose prior is uniform. No entry left by
    prior and mask → 0, a finite number that cannot poison a batch.

    Paper: Eqs. 3–6.
    >>> import numpy as np
    >>> x = np.array([-9.0, 3.0, 9.0])
    >>> [float(smax(x, a)) for a in (0.0, math.inf)], round(float(smax(x, 0.5)), 3)
    ([1.0, 9.0], 8.713)
    """
    xp = values.__array_namespace__()
    paid = values
    values = paid if by is None else by
    if prior is None and mask is None and by is None and isinstance(alpha, float) and alpha == math.inf:
        if values.shape[-1] == 1:  # one entry is its own maximum, without a pass over it
            return values[..., 0]
        return xp.asarray(xp.max(values, axis=-1))
    prior = xp.ones_like(values) if prior is None else xp.asarray(prior, dtype=values.dtype)
    live = prior > 0 if mask is None else (prior > 0) & mask
    live = xp.broadcast_to(live, values.shape)
    top = xp.max(xp.where(live, values, -math.inf), axis=-1, keepdims=True)
    top = xp.where(xp.any(live, axis=-1, keepdims=True), top, xp.zeros_like(top))
    scale, shift = _room(xp.where(live, values, xp.zeros_like(values)))
    # Shifting by the maximum keeps exp in range, and leaves the result exact for α = ∞ and for equal values.
    gap = xp.where(live, values * scale - top * scale, xp.zeros_like(values))
    with np.errstate(over="ignore"):  # a slope of −∞ is meant: it weighs nothing
        alpha = xp.asarray(alpha, dtype=values.dtype) / scale
        endless = alpha == math.inf  # kept apart, since ∞ · 0 has neither value nor gradient
        slope = xp.where(endless, xp.zeros_like(alpha), alpha) * gap
    slope = xp.where(endless & (gap < 0), -math.inf, slope + shift)
    weight = xp.where(live, prior * xp.exp(slope), xp.zeros_like(values))
    total = xp.sum(weight, axis=-1)
    if by is not None:
        share = weight / xp.where(total > 0, total, xp.ones_like(total))[..., None]
        return xp.asarray(xp.sum(xp.where(share > 0, share * paid, xp.zeros_like(paid)), axis=-1))
    mean_gap = xp.sum(weight * gap, axis=-1) / xp.where(total > 0, total, xp.ones_like(total))
    return xp.asarray((top[..., 0] * scale[..., 0] + mean_gap) / scale[..., 0])


def _room(values: Float[AnyArray, "*b x"]) -> tuple[Float[AnyArray, "*b 1"], Float[AnyArray, "*b 1"]]:
    """A factor for the values and a summand for the exponents, so that no sum or slope of `smax` overflows.

    1 and 0, which change no bit, except where a row comes near the largest number its dtype has.
    """
    xp = values.__array_namespace__()
    room = 2.0 ** (values.shape[-1].bit_length() + 3)  # a power of two rounds nothing
    size = xp.max(xp.abs(values), axis=-1, keepdims=True)
    large = size > float(xp.finfo(values.dtype).max) / room
    scale = xp.where(large, xp.full_like(size, room**-2), xp.ones_like(size))
    return scale, xp.where(large, xp.full_like(size, math.log(room)), xp.zeros_like(size))


@record
class Backup:
    """A row of Table 1: which returns are looked at, what they are compared with, how they are weighed.

    JAX sees the prior and both alphas as data: operators that differ in nothing else can share a compilation, or
    be one `vmap`. `gate_depth` = 1 is the highway gate, None no gate; 0 and k > 1 compare with
    Q itself or the k-step return, the variants that the paper shows not to converge to Q*.
    """

    depths: tuple[int, ...] = static()
    depth_prior: Any = None
    depth_alpha: Any = 0.0
    policy_alpha: Any = 0.0
    gate_depth: int | None = static(default=1)

    def __post_init__(self) -> None:
        check_backup(self)


def combine_returns(
    backup: Backup,
    returns: Float[AnyArray, "*b p n"],
    reference: Float[AnyArray, "*b p"],
    *,
    policy_prior: Any = None,
    policy_mask: Any = None,
    depth_mask: Any = None,
    by: tuple[Float[AnyArray, "*b p n"], Float[AnyArray, "*b p"]] | None = None,
) -> Float[AnyArray, "*b"]:
    """The backup's value: gate each return, aggregate over depths, then over behavioural policies.

        smax_{π}  smax_{n∈𝒩}  max{ returns[π, n], reference[π] }

    `by` are estimates of returns and reference that decide all of it, while what is averaged are the returns. Then the
    expectation of the result, given the estimates, is a mean of returns' expectations: luck cannot raise it.

    `reference` is the return at depth `backup.gate_depth` (1: the 1-step return; 0: Q itself). Priors
    may differ per (s,a) by carrying its axes. A policy without any unmasked depth drops out.

    Paper: Eqs. 3–6, 8, 20; Table 1.
    >>> import numpy as np
    >>> returns = np.array([[-9.0], [3.0], [9.0]])        # three policies, one depth
    >>> float(combine_returns(Backup(depths=(10,)), returns, np.zeros(3)))
    4.0
    """
    ungated = backup.gate_depth is None
    gated = returns if ungated else gate(returns, reference, by)
    thought = None if by is None else by[0] if ungated else gate(*by)
    by_policy = smax(gated, backup.depth_alpha, backup.depth_prior, depth_mask, thought)
    if thought is not None:
        thought = smax(thought, backup.depth_alpha, backup.depth_prior, depth_mask)
    if depth_mask is not None:
        xp = returns.__array_namespace__()
        some = xp.any(xp.broadcast_to(depth_mask, returns.shape), axis=-1)
        policy_mask = some if policy_mask is None else some & policy_mask
    return smax(by_policy, backup.policy_alpha, policy_prior, policy_mask, thought)
