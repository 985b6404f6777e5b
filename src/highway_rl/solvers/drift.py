"""What turns a change of V into bounds of V*: a weight w, and how fast it shrinks.

If w ≥ 0 vanishes in absorbing states and least ≤ w − γPw ≤ most on every row of the others, then for ANY vector x,
with the least and largest change of one backup, low ≤ 𝓑x − x ≤ high,

    x + θ·w  ≤  V^π ≤ V*      θ = low / least  if low < 0,  else low / most          (π greedy for x)
    V*  ≤  x + θ·w            θ = high / least if high > 0, else high / most

(`docs/solver.md` has the proof). Below discount 1, w = 1: MacQueen's bounds. With discount 1, w is the longest
expected time to an end, where every policy ends. Rounding of float64 is counted in.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

EPS = float(np.finfo(np.float64).eps)
TINY = 2.0**-1050
"""More than what products of a row lose where they are too small for float64, 2⁻¹⁰⁷⁵ each."""


class Spread(NamedTuple):
    """The least and largest change of a backup where the weight is positive, and the largest |value| after it."""

    low: float
    high: float
    size: float

    @property
    def width(self) -> float:
        return self.high - self.low


def spread(before: Float[np.ndarray, "s"], after: Float[np.ndarray, "s"], alive: np.ndarray) -> Spread:
    """How much a pass changed."""
    change = after - before if alive.all() else (after - before)[alive]
    return Spread(float(change.min(initial=np.inf)), float(change.max(initial=-np.inf)), float(np.abs(after).max()))


@dataclasses.dataclass(frozen=True)
class Drift:
    """w and the range of w − γPw; `rounding`: what one backup loses at most, relative to rewards and values."""

    weight: Float[np.ndarray, "s"]
    least: float
    most: float
    rounding: float
    largest_reward: float

    @functools.cached_property
    def top(self) -> float:
        """max w."""
        return float(self.weight.max(initial=0.0))

    @functools.cached_property
    def flat(self) -> bool:
        """Whether w is 1 everywhere: then shifts are one number."""
        return bool(self.weight.min(initial=1.0) == 1.0 and self.top == 1.0)

    def slack(self, spread: Spread) -> float:
        """What float64 may have lost in the changes."""
        return self.rounding * (self.largest_reward + spread.size + max(abs(spread.low), abs(spread.high))) + TINY

    def interval(self, spread: Spread) -> tuple[float, float]:
        """The θ below and above: x + θ₁w ≤ V* ≤ x + θ₂w. ∓∞ where the numbers were none."""
        if self.top == 0:
            return 0.0, 0.0
        slack = self.slack(spread)
        if not (np.isfinite(slack) and spread.low <= spread.high and self.least > self.rounding * self.top):
            return -np.inf, np.inf
        return -self._over(slack - spread.low), self._over(spread.high + slack)

    def _over(self, excess: float) -> float:
        """The least θ with excess ≤ θ·d for every d between the flattest and the steepest drift."""
        blur = self.rounding * self.top
        return excess / (self.least - blur) if excess > 0 else excess / (self.most + blur)

    def lifted(self, after: Float[np.ndarray, "s"], theta: float) -> Float[np.ndarray, "s"]:
        """𝓑x, in place, raised or lowered to where it is below V*: 𝓑x + θ(w − d), still a sub-solution.

        With w = 1 it is 𝓑x + γ·low/(1−γ).
        """
        step = self.most if theta > 0 else self.least
        if self.flat:
            after += theta * (1 - step)
        else:
            after += theta * np.where(self.weight > 0, self.weight - step, 0.0)
        return after

    def grounded(self, x: Float[np.ndarray, "s"]) -> Float[np.ndarray, "s"]:
        """x with the value of ends, which is known to be 0."""
        return x if self.weight.all() else np.where(self.weight > 0, x, 0.0)

    def floor(self, size: float) -> float:
        """A half-width that no V of this size can be certified below in float64."""
        return self.rounding * (self.largest_reward + size) / (self.most + self.rounding * self.top) * self.top
