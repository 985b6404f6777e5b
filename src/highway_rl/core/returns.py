"""Sampled returns: every one of them composes affine maps x → r + g·x along a path.

A path is given by `successor` (the next transition of each transition; by default the next row) and
`last`, true where the path is cut. Doubling the maps reaches depth n in log₂ n rounds, for all starting
points at once; the same code walks stored trajectories and the graph of a deterministic policy.

    n-step            r = reward                      g = γ          then bootstrap
    λ-return          r = reward + γ(1−λ)·V(s')       g = γλ
    Retrace, Q(λ), …  r = TD error                    g = γ·trace    added to Q(s,a)

`discount` is γ, or 0 where the step terminated: termination kills the bootstrap, truncation keeps it.
A depth past the end equals the return to the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from highway_rl.core.checks import check_depths
from highway_rl.types import AnyArray


class Lookahead(NamedTuple):
    """The map x → reward + discount · x[end] that n steps apply to the values at their far end.

    `end` is the last transition taken; `cut` says that the path ended there, after n steps or fewer.
    """

    reward: Float[AnyArray, "t"]
    discount: Float[AnyArray, "t"]
    end: Int[AnyArray, "t"]
    cut: Bool[AnyArray, "t"]


def lookahead(
    reward: Float[AnyArray, "t"],
    discount: Float[AnyArray, "t"],
    last: Bool[AnyArray, "t"],
    depths: tuple[int, ...],
    successor: Any = None,
) -> list[Lookahead]:
    """One map per depth; `end` is min(n, steps left) steps from the start."""
    check_depths(depths)
    xp = reward.__array_namespace__()
    count = reward.shape[0]
    here = xp.arange(count)
    longest = max(depths)  # a graph may run in circles
    if successor is None:
        longest = 1 << (count - 1).bit_length()  # no path is longer, and a power of two takes no more than doubling
        last = last | (here == count - 1)

    def then(n: int, first: Lookahead, second: Lookahead) -> Lookahead:
        """n steps, and those of `second` where they lead."""
        if successor is None:
            ahead = lambda x: xp.roll(x, -n)  # noqa: E731
        else:
            start = successor[first.end]
            ahead = lambda x: x[start]  # noqa: E731
        return Lookahead(
            xp.where(first.cut, first.reward, first.reward + first.discount * ahead(second.reward)),
            xp.where(first.cut, first.discount, first.discount * ahead(second.discount)),
            xp.where(first.cut, first.end, ahead(second.end)),
            first.cut | ahead(second.cut),
        )

    powers = [Lookahead(reward, discount, here, last)]

    def steps(n: int) -> Lookahead:
        result = None
        for bit in range(n.bit_length()):
            if bit == len(powers):
                powers.append(then(1 << bit - 1, powers[-1], powers[-1]))
            if n >> bit & 1:
                result = powers[bit] if result is None else then(1 << bit, powers[bit], result)
        assert result is not None
        return result

    done: dict[int, Lookahead] = {}
    reached = 0
    for n in sorted({int(min(n, longest)) for n in depths}):
        further = n & (n - 1) and reached  # a power of two is there for all to use
        done[n] = then(reached, done[reached], steps(n - reached)) if further else steps(n)
        reached = n
    return [done[min(n, longest)] for n in depths]


def n_step_returns(
    reward: Float[AnyArray, "t"],
    discount: Float[AnyArray, "t"],
    next_value: Float[AnyArray, "t"],
    last: Bool[AnyArray, "t"],
    depths: tuple[int, ...],
) -> Float[AnyArray, "t n"]:
    """Gⁿₜ = rₜ + γₜrₜ₊₁ + … + γₜ⋯γₜ₊ₙ₋₁ V(sₜ₊ₙ), for each depth.

    depths = (1,) → the 1-step target; (TO_END,) → Monte Carlo. Paper: the bracket in Eqs. 3, 8, 20.
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


def distinct_depths(maps: list[Lookahead]) -> Bool[AnyArray, "t n"]:
    """True where a depth reaches further than every smaller one: the mask that counts no return twice."""
    xp = maps[0].end.__array_namespace__()
    ends = xp.stack([m.end for m in maps], axis=-1)
    earlier = np.tril(np.ones((len(maps), len(maps)), bool), -1)
    return ~xp.any((ends[:, :, None] == ends[:, None, :]) & xp.asarray(earlier), axis=-1)
