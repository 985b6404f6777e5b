"""The one loop of all solvers: price every action, bracket V*, let the method move V."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from highway_rl import validate
from highway_rl.bounds import EPS, Certifier, Interval
from highway_rl.mdp import MDP, SparseMDP

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


Move = Callable[[int, Value, np.ndarray, Policy], tuple[Value, Queries]]
"""(iteration from 1, V, q, greedy policy) → the next V and what it read beyond the full backup."""


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
    """The one loop. `until` = "bound" stops on the certified error, "change" on ‖V_k − V_{k−1}‖ as the paper does."""
    if not isinstance(tol, int | float | np.floating) or not 0 < tol < np.inf:
        raise ValueError(f"tol={tol!r}: give a number > 0")
    if until not in ("bound", "change"):
        raise ValueError(f"until={until!r}: choose 'bound' or 'change'")
    if max_iters < 1:
        raise ValueError(f"max_iters={max_iters}: give a whole number >= 1")
    model = mdp.sparse()
    S, A = model.reward.shape
    move = build(model)
    certify = Certifier.of(model)
    v = np.zeros(S) if value is None else validate.numbers("value", value, 1).copy()
    validate.same_shape("value", v, "reward[:, 0]", model.reward[:, 0])
    queries, k, change, converged = Queries(), 0, np.inf, False
    history: dict[str, list[float]] = {"change": [], "bound": [], "rows": []}
    while True:
        q = model.q_values(v)
        policy = q.argmax(axis=1)
        interval = certify(v, q, policy)
        if until == "bound":
            converged = interval.bound <= tol
            _refuse_unreachable(tol, interval, change, v)
        if converged or k == max_iters:
            break
        if lift and np.isfinite(interval.lower) and certify.drift is not None and certify.weight is not None:
            v = v + interval.lower * certify.weight
            q = q + interval.lower * (certify.weight[:, None] - certify.drift)
            policy = q.argmax(axis=1)
        k += 1
        before = v
        v, extra = move(k, v, q, policy)
        change = float(np.abs(v - before).max())
        queries = queries.plus(Queries(S * A, S * A, S * A)).plus(extra)
        for name, number in (("change", change), ("bound", interval.bound), ("rows", queries.rows)):
            history[name].append(number)
        if progress is not None:
            progress(k, interval.bound)
        if not np.isfinite(change) or (np.isinf(interval.bound) and change <= resolution(v)):
            break
        if until == "change" and change <= tol:
            converged, q = True, model.q_values(v)
            policy = q.argmax(axis=1)
            interval = certify(v, q, policy)
            break
    residual = float(np.abs(q.max(axis=1) - v).max())
    if until == "bound" and np.isfinite(interval.bound):
        v = v + interval.middle * interval.weight
    series = {name: np.array(numbers) for name, numbers in history.items()}
    return Solution(method, v, policy, k, queries, residual, interval.bound, converged, series)


def resolution(v: Value) -> float:
    """The change in V below which float64 no longer tells progress from rounding."""
    return 4 * EPS * max(1.0, float(np.abs(v).max()))


def _refuse_unreachable(tol: float, interval: Interval, change: float, v: Value) -> None:
    stuck = change <= resolution(v) and interval.bound > tol
    if np.isfinite(interval.bound) and (interval.rounding > tol or stuck):
        floor = max(2 * interval.rounding, 2 * interval.bound if stuck else 0.0)
        raise ValueError(
            f"tol={tol:g} is below what float64 can certify for values near {np.abs(v).max():.3g}: "
            f"ask for tol >= {floor:.1g}"
        )
