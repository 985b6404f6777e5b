"""Sampled returns: every one of them composes affine maps x → r + g·x along a path.

A path is given by `last`, true where it is cut; how its maps are composed, `lookahead.py` says.

    n-step            r = reward                      g = γ          then bootstrap
    λ-return          r = reward + γ(1−λ)·V(s')       g = γλ
    Retrace, Q(λ), …  r = TD error                    g = γ·trace    added to Q(s,a)

`discount` is γ, or 0 where the step terminated: termination kills the bootstrap, truncation keeps it.
A depth past the end equals the return to the end.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float

from highway_rl.core.lookahead import lookahead
from highway_rl.types import AnyArray


def n_step_returns(
    reward: Float[AnyArray, "t"],
    discount: Float[AnyArray, "t"],
    next_value: Float[AnyArray, "t"],
    last: Bool[AnyArray, "t"],
    depths: tuple[int, ...],
) -> Float[AnyArray, "t n"]:
    """Gⁿₜ = rₜ + γₜrₜ₊₁ + … + γₜ⋯γₜ₊ₙ₋₁ V(sₜ₊ₙ), for each depth.

    depths = (1,) → the 1-step target; (TO_END,) → Monte Carlo. Paper: the bracket in Eqs. 3, 8, 20.
    >>> import numpy as np
    >>> one, end = np.zeros(3, bool), np.array([False, False, True])
    >>> n_step_returns(np.array([0.0, 0, 1]), np.array([0.5, 0.5, 0]), np.array([8.0, 4, 0]), end, (1, 2, 9)).tolist()
    [[4.0, 1.0, 0.25], [2.0, 0.5, 0.5], [1.0, 1.0, 1.0]]
    """
    xp = reward.__array_namespace__()
    maps = lookahead(reward, discount, last, depths)
    return xp.stack([m.reward + m.discount * next_value[m.end] for m in maps], axis=-1)


def returns_from_start(
    to_end: Float[AnyArray, "*b"],
    to_end_later: Float[AnyArray, "*b n"],
    next_value: Float[AnyArray, "*b n"],
    discount: Float[AnyArray, "*b n"],
) -> Float[AnyArray, "*b n"]:
    """The n-step returns of one transition at every depth, from returns to the end G^∞ that are known already:

        Gⁿₜ = G^∞ₜ + γⁿ (V(sₜ₊ₙ) − G^∞ₜ₊ₙ)

    `discount` is γⁿ, and 0 at depths that reach or pass the end. One subtraction per depth instead of a sum.
    >>> import numpy as np
    >>> later, value, discount = np.array([0.5, 1, 0]), np.array([8.0, 4, 0]), np.array([0.5, 0.25, 0])
    >>> returns_from_start(np.array(0.25), later, value, discount).tolist()
    [4.0, 1.0, 0.25]
    """
    return to_end[..., None] + discount * (next_value - to_end_later)


def traced_returns(
    value: Float[AnyArray, "t"],
    reward: Float[AnyArray, "t"],
    discount: Float[AnyArray, "t"],
    next_value: Float[AnyArray, "t"],
    next_trace: Float[AnyArray, "t"],
    last: Bool[AnyArray, "t"],
    depths: tuple[int, ...],
) -> Float[AnyArray, "t n"]:
    """Q(sₜ,aₜ) + Σ_k γᵏ (c_{t+1}⋯c_{t+k}) δ_{t+k}, with δ = r + γ·𝔼_{π'}Q(s',·) − Q(s,a).

    `value` is Q(sₜ,aₜ), `next_value` the target policy's 𝔼Q(sₜ₊₁,·), `next_trace` the trace c of the action
    taken at sₜ₊₁. c = λ·min(1, π'/π) → Retrace(λ); λ → Q(λ) and, bootstrapping on the action taken,
    SARSA(λ); λ·1[greedy] → Watkins; λ·π' → Tree Backup; π'/π → importance sampling.

    Paper: Eqs. 18, 19 (the trace product starts at the second action, as in Munos et al.).
    """
    xp = reward.__array_namespace__()
    error = reward + discount * next_value - value
    maps = lookahead(error, xp.where(last, xp.zeros_like(discount), discount * next_trace), last, depths)
    return xp.stack([value + m.reward for m in maps], axis=-1)


def lambda_returns(
    reward: Float[AnyArray, "t"],
    discount: Float[AnyArray, "t"],
    next_value: Float[AnyArray, "t"],
    lam: Any,
    last: Bool[AnyArray, "t"],
    depths: tuple[int, ...],
) -> Float[AnyArray, "t n"]:
    """Gₜ = rₜ + γₜ[(1−λ) V(sₜ₊₁) + λ Gₜ₊₁], bootstrapping fully where the path is cut and at each depth.

    λ = 0 → 1-step, λ = 1 → n-step. At depth n it weighs the k-step returns by (1−λ)λᵏ⁻¹, and the n-step one by what
    is left. With a greedy V this is Peng's Q(λ). Paper: Sec. 3 (λ-return DQN).
    """
    xp = reward.__array_namespace__()
    last = last | (xp.arange(reward.shape[0]) == reward.shape[0] - 1)
    keep = xp.where(last, xp.zeros_like(discount), discount * xp.asarray(lam, dtype=discount.dtype))
    maps = lookahead(reward + (discount - keep) * next_value, keep, last, depths)
    return xp.stack([m.reward + m.discount * next_value[m.end] for m in maps], axis=-1)
