"""Certified error: an interval around V* computed from one backup of V.

If w ≥ 0 is zero on absorbing states and some θ makes V + θw a super-solution,

    q(s,a) + θγ(Pw)(s,a) ≤ V(s) + θw(s)   for all (s,a),   then   V* ≤ V + θw,

and if V + θw ≤ 𝓑^π(V + θw) for one policy π, then V^π ≥ V + θw. Both are linear in θ, so with the excess
e = q − V and the drift d = w − γPw the tightest θ are a maximum and a minimum of e/d. With w = 1 and a constant
discount below 1 these are MacQueen's bounds (the span rule): e/d = (𝓑V − V)/(1−γ). With discount 1, w is the
longest expected time to an end if every policy ends, else it is built from V itself, which works where
each step costs something; where neither works there is no certificate and the bound is infinite.

Rounding is counted: excess and drift are widened by what float64 may have lost in computing them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components

from highway_rl.mdp import validate
from highway_rl.mdp.model import SparseMDP

EPS = float(np.finfo(np.float64).eps)


class Interval(NamedTuple):
    """V + lower·weight ≤ V^π ≤ V* ≤ V + upper·weight, for the greedy policy π."""

    lower: float
    upper: float
    weight: Float[np.ndarray, "s"]
    drift: Float[np.ndarray, "s a"]

    @property
    def bound(self) -> float:
        """The certified sup-norm error of the midpoint."""
        return (self.upper - self.lower) / 2 * float(self.weight.max(initial=0.0))

    @property
    def middle(self) -> float:
        return (self.upper + self.lower) / 2

    def shifted(
        self, value: Float[np.ndarray, "s"], q: Float[np.ndarray, "s a"], theta: float
    ) -> tuple[Float[np.ndarray, "s"], Float[np.ndarray, "s a"]]:
        """V + θw and its q = r + γP(V + θw), without reading the model again."""
        return value + theta * self.weight, q + theta * (self.weight[:, None] - self.drift)


@dataclasses.dataclass(frozen=True)
class Certifier:
    """Everything about a model that its certificates share."""

    mdp: SparseMDP
    alive: np.ndarray
    weight: Float[np.ndarray, "s"] | None
    drift: Float[np.ndarray, "s a"] | None
    rounding: float
    largest_reward: float

    @staticmethod
    def of(mdp: SparseMDP) -> Certifier:
        alive = ~validate.absorbing(mdp)
        rounding = (int(np.diff(mdp.transition.indptr).max(initial=0)) + 4) * EPS
        weight: np.ndarray | None = alive.astype(np.float64)
        drift: np.ndarray | None = _drift(mdp, alive.astype(np.float64))
        assert drift is not None
        if not np.all(drift[alive] > 4 * rounding):
            validate.shrinks(mdp, mdp.discount * np.asarray(mdp.transition.sum(axis=1)).reshape(mdp.reward.shape))
            weight = _time_to_end(mdp, alive)
            drift = None if weight is None else _drift(mdp, weight)
        return Certifier(mdp, alive, weight, drift, rounding, float(np.abs(mdp.reward).max()))

    def __call__(
        self, value: Float[np.ndarray, "s"], q: Float[np.ndarray, "s a"], policy: Int[np.ndarray, "s"]
    ) -> Interval:
        """The interval around V*, given q = r + γPV and the greedy policy. V must be 0 in absorbing states."""
        weight, drift = self.weight, self.drift
        if weight is None or drift is None:
            weight = np.where(self.alive, value.max() + 1 + np.abs(value).max() - value, 0.0)
            drift = _drift(self.mdp, weight)
        if not self.alive.any():
            return Interval(0.0, 0.0, weight, drift)
        slack = self.slack(value)
        blur = self.rounding * float(weight.max())
        excess = q - value[:, None]
        own_excess, own_drift = (np.take_along_axis(x, policy[:, None], axis=1)[self.alive, 0] for x in (excess, drift))
        lower = -_smallest(slack - own_excess, own_drift, blur)
        rows = slice(None) if self.alive.all() else self.alive
        upper = _smallest(excess[rows] + slack, drift[rows], blur)
        return Interval(lower, upper, weight, drift)

    def slack(self, value: Float[np.ndarray, "s"]) -> float:
        """What float64 may have lost in computing q − V."""
        return self.rounding * (self.largest_reward + float(np.abs(value).max()))

    def float_limits(self, value: Float[np.ndarray, "s"], interval: Interval) -> tuple[float, float]:
        """A bound no V can be certified below in float64, and one that a converged V reaches."""
        if self.drift is None:
            return 0.0, 0.0
        low, high = value + interval.lower * interval.weight, value + interval.upper * interval.weight
        least = max(float(low.max()), -float(high.min()), 0.0)  # ≤ max|V*|
        most = max(-float(low.min()), float(high.max()))
        flattest, flat = self.flattest
        scale = self.rounding * float(interval.weight.max())
        return scale * (self.largest_reward + least) / flat, 2 * scale * (self.largest_reward + most) / flattest

    @functools.cached_property
    def flattest(self) -> tuple[float, float]:
        """The smallest drift of any action, and of each state's steepest action."""
        assert self.drift is not None
        drift = self.drift[self.alive]
        return float(drift.min()), float(drift.max(axis=1).min())


def pays_for_ever(mdp: SparseMDP, value: Float[np.ndarray, "s"], policy: Int[np.ndarray, "s"], sweeps: int) -> bool:
    """Whether V* is infinite because `policy`, somewhere, goes round without end or discount and gains by it.

    The proof: on a set C that π never leaves, (𝓑^π)ᵐV > V for one m ≤ `sweeps`; every m further steps add as much.
    """
    states = np.arange(mdp.num_states)
    P = mdp.transition[states * mdp.num_actions + policy]
    reward, discount = (x[states, policy] for x in (mdp.reward, mdp.discount))
    own = SparseMDP(reward[:, None], P, discount[:, None])
    endless = np.isinf(validate.steps_to(own, validate.absorbing(mdp) | (discount < 1)))
    if not endless.any():
        return False
    P, reward, x = P[endless][:, endless], reward[endless], value[endless]
    floor = x + 1e-9 * (np.abs(x).max() + np.abs(reward).max())
    count, part = connected_components(P, connection="strong")
    row = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    left = np.zeros(count, bool)
    left[part[row[part[row] != part[P.indices]]]] = True
    for _ in range(sweeps):
        x = reward + P @ x
        beaten = np.zeros(count, bool)
        beaten[part[x <= floor]] = True
        if np.any(~beaten & ~left):
            return True
    return False


def _smallest(excess: np.ndarray, drift: np.ndarray, blur: float) -> float:
    """The smallest θ with excess ≤ θ·d for every d within `blur` of the drift, or ∞."""
    flattest = float(drift.min())
    if flattest > blur:  # then θ is at most the ratio, and blur / flattest of it more
        theta = float(np.max(excess / drift))
        return theta + abs(theta) * blur / (flattest - blur)
    negative = _smallest_from(-np.inf, excess, drift + blur)
    return negative if negative < 0 else _smallest_from(0.0, excess, drift - blur)


def _smallest_from(least: float, excess: np.ndarray, drift: np.ndarray) -> float:
    up, down, flat = drift > 0, drift < 0, drift == 0
    theta = float(np.max(excess[up] / drift[up], initial=least))
    ceiling = float(np.min(excess[down] / drift[down], initial=np.inf))
    return theta if -np.inf < theta <= ceiling and np.all(excess[flat] <= 0) else np.inf


def _drift(mdp: SparseMDP, weight: Float[np.ndarray, "s"]) -> Float[np.ndarray, "s a"]:
    return weight[:, None] - mdp.discount * (mdp.transition @ weight).reshape(mdp.reward.shape)


def _time_to_end(mdp: SparseMDP, alive: np.ndarray) -> Float[np.ndarray, "s"] | None:
    """w = 1 + max_a γP_a w: the longest expected time to an end, or None where a policy never ends."""
    weight = alive.astype(np.float64)
    affordable = 1 + 200_000_000 // max(1, mdp.transition.nnz)  # about a second
    for _ in range(min(10 * mdp.num_states, 20_000, affordable)):
        longer = alive * (1 + (mdp.discount * (mdp.transition @ weight).reshape(mdp.reward.shape)).max(axis=1))
        if np.all(longer - weight <= 0.5):  # then the drift of `longer` is at least a half
            return longer
        weight = longer
    return None
