"""The one loop of all solvers: price every action, bracket V*, let the method move V."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from highway_rl import checks
from highway_rl.mdp import validate
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers.bounds import EPS, Certifier, Interval, pays_for_ever

Value = Float[np.ndarray, "s"]
Policy = Int[np.ndarray, "s"]


class Queries(NamedTuple):
    """Model rows (s,a) read: each time; once per iteration; with n-step policy tables kept between iterations."""

    rows: int = 0
    distinct: int = 0
    cached: int = 0

    def plus(self, other: Queries) -> Queries:
        return Queries(*(a + b for a, b in zip(self, other, strict=True)))


@dataclasses.dataclass(frozen=True)
class Solution:
    """V within `bound` of V* in every state (sup-norm, certified), and a policy at most 2·bound below it."""

    method: str
    value: Value
    policy: Policy
    num_iters: int
    num_queries: Queries
    residual: float
    bound: float
    converged: bool
    history: dict[str, np.ndarray]

    @property
    def lower(self) -> Value:
        """V* is nowhere less."""
        return self.value - self.bound

    @property
    def upper(self) -> Value:
        """V* is nowhere more."""
        return self.value + self.bound


Move = Callable[[int, Value, np.ndarray, Policy], tuple[Value, Queries]]
"""(iteration from 1, V, q, greedy policy) → the next V and what it read beyond the full backup."""


@np.errstate(over="ignore", invalid="ignore")
def iterate(
    method: str,
    mdp: MDP | SparseMDP,
    build: Callable[[SparseMDP], Move],
    *,
    tol: float = 1e-6,
    until: str = "bound",
    value: Any = None,
    max_iters: int = 1_000_000,
    lift: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """The one loop. `until` = "bound" stops on the certified error, "loss" on what the policy may lose, 2·bound;
    "change" on ‖V_k − V_{k−1}‖ as the paper does."""
    checks.between("tol", tol, 0)
    checks.choice("until", until, ("bound", "loss", "change"))
    checks.whole("max_iters", max_iters, 1)
    model = checked(mdp).sparse()
    if until == "loss":
        tol, until = tol / 2, "bound"
    S, A = model.reward.shape
    move = build(model)
    certify = Certifier.of(model)
    v = np.zeros(S) if value is None else validate.numbers("value", value, 1)
    validate.same_shape("value", v, "reward[:, 0]", model.reward[:, 0])
    validate.not_nan("value", v)
    v = np.where(certify.alive, v, 0.0)  # the value of an end is known
    queries, k, change, converged = Queries(), 0, np.inf, False
    history: dict[str, list[float]] = {"change": [], "bound": [], "rows": []}
    while True:
        q = model.q_values(v)
        policy = q.argmax(axis=1)
        interval = certify(v, q, policy)
        converged = interval.bound <= tol if until == "bound" else change <= tol
        residual = float(np.abs(q.max(axis=1) - v).max())
        stuck = change <= resolution(v) and residual <= certify.slack(v)
        if not converged and np.isfinite(interval.bound):
            _refuse_unreachable(tol, until, stuck, certify, v, interval)
        if converged or k == max_iters or (np.isinf(interval.bound) and (stuck or _hopeless(model, v, policy, k))):
            break
        before = v
        if lift and np.isfinite(interval.lower) and certify.drift is not None and (k == 0 or interval.lower > 0):
            v, q = interval.shifted(v, q, interval.lower)
            policy = q.argmax(axis=1)
        k += 1
        v, extra = move(k, v, q, policy)
        change = float(np.abs(v - before).max())
        queries = queries.plus(Queries(S * A, S * A, S * A)).plus(extra)
        for name, number in (("change", change), ("bound", interval.bound), ("rows", queries.rows)):
            history[name].append(number)
        if progress is not None:
            progress(k, interval.bound)
        if not np.isfinite(change):  # the values grow without limit: keep the last ones that are numbers
            v, q = before, model.q_values(before)
            break
    if np.isfinite(interval.bound):
        v, q = interval.shifted(v, q, interval.middle)
    residual = float(np.abs(q.max(axis=1) - v).max())
    series = {name: np.array(numbers) for name, numbers in history.items()}
    return Solution(method, v, policy, k, queries, residual, interval.bound, converged, series)


def checked(mdp: Any) -> MDP | SparseMDP:
    """The model, if it is one."""
    if not isinstance(mdp, MDP | SparseMDP):
        raise ValueError(f"mdp is a {type(mdp).__name__}: build a model with MDP.from_dense or one of its siblings")
    return mdp


def unreachable(tol: float, size: float, floor: float) -> ValueError:
    """The refusal of a tolerance below rounding."""
    return ValueError(
        f"tol={tol:g} is below what float64 can certify for values near {size:.3g}: ask for tol >= {floor:.1g}"
    )


def resolution(v: Value) -> float:
    """The change in V below which float64 no longer tells progress from rounding."""
    return 4 * EPS * float(np.abs(v).max())


def _hopeless(model: SparseMDP, v: Value, policy: Policy, k: int) -> bool:
    """At 16, 32, 64, … iterations: whether the values grow without limit, for an eighth of the work done so far."""
    return k >= 16 and k.bit_count() == 1 and pays_for_ever(model, v, policy, k // 8)


def _refuse_unreachable(tol: float, until: str, stuck: bool, certify: Certifier, v: Value, interval: Interval) -> None:
    impossible, reachable = certify.float_limits(v, interval) if until == "bound" else (0.0, resolution(v))
    size = float(np.abs(v + interval.middle * interval.weight).max())
    if stuck or tol < impossible:
        floor = 2 * max(reachable, interval.bound if stuck and until == "bound" else 0.0)
        raise unreachable(tol, size, floor)
