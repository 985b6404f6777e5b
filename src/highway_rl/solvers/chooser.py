"""Which proposal, and how much of it: by what was measured, with no number fitted to a problem.

Evaluating a policy pays as far as the policy will stay. With f the share of states whose greedy action just changed,

    effort    at most 2/f times the work of a full backup
    goal      the change of a sweep, spread over states, down to a share f of its first (at most a tenth),
              and no further than the error asked for needs

Sweeps begin. Every fourth says how fast the change shrinks, hence how many more are needed. Where a Krylov solve has
needed, or promises to need, less than half as many (the square root of them, until one was measured), it goes on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from highway_rl.solvers.drift import Spread
from highway_rl.solvers.proposals import Proposal, krylov
from highway_rl.solvers.rows import PolicyRows, Value
from highway_rl.solvers.single import Swept, around


class TimeUpError(Exception):
    """The time limit has passed in the middle of a proposal."""


@dataclasses.dataclass
class Meter:
    """What has been read, in entries and in rows (s,a), and whether time is up."""

    work: int = 0
    rows: int = 0
    expired: Callable[[], bool] = lambda: False

    def add(self, work: int, rows: int) -> None:
        self.work += work
        self.rows += rows
        if self.expired():
            raise TimeUpError


class Metered:
    """A policy's rows that count what is read of them."""

    def __init__(self, policy: PolicyRows, meter: Meter) -> None:
        self.inner, self._meter = policy, meter
        self.reward, self.work = policy.reward, policy.work

    def sweep(self, x: Value, out: Value) -> Spread:
        self._meter.add(self.work, len(x))
        return self.inner.sweep(x, out)

    def follow(self, x: Value, out: Value) -> None:
        self._meter.add(self.work + 3 * len(x), len(x))  # a Krylov step's sums and products beside the rows
        self.inner.follow(x, out)

    def around(self, before: Value, after: Value) -> Metered | None:
        made: Any = around(self.inner, before, after)
        return None if made is None else Metered(made, self._meter)


@dataclasses.dataclass
class Chooser:
    """Sweeps or Krylov, by measured progress per sweep; `cost` is Krylov's sweeps per e-fold, once known."""

    actions: int
    least: float
    tol: float
    cost: float | None = None
    name: str = ""

    def __call__(self, policy: PolicyRows, x: Value, changed: float, half: float) -> Value:
        """A guess at the policy's value from x, given the share of changed actions and the half-width now."""
        limit = int(2 * self.actions / max(changed, 1e-9))
        goal = min(0.1, max(changed, self.tol / half / 2))
        swept, widths = Swept(policy, x), list[float]()
        self.name = "sweeps"
        while True:
            widths.append(swept.step())
            short = widths[-1] / max(goal * widths[0], 1e-300)
            if not short > 1 or len(widths) >= limit:
                return swept.value()
            if len(widths) % 4 == 0:
                folds = math.log(short)
                rate = max(math.log(widths[-4] / widths[-1]) / 3, self.least)  # a sweep contracts at least so
                cost = self.cost or 4 / math.sqrt(rate)
                needed = cost * max(1.0, folds)
                if folds / rate > 2 * needed and limit - len(widths) > needed:
                    return self._krylov(policy, swept.value(), folds, min(limit, int(4 * needed)), cost)

    def _krylov(self, policy: PolicyRows, x: Value, folds: float, limit: int, cost: float) -> Value:
        """A Krylov solve, and what it cost: twice what was thought where the limit stopped it."""
        self.name = "krylov"
        counted = _Counted(policy)
        x = krylov(limit, math.exp(-folds), self.least)(counted, x)
        done = counted.sweeps < limit - 3
        self.cost = counted.sweeps / max(1.0, folds) if done else 2 * cost
        return x


class _Counted:
    def __init__(self, policy: PolicyRows) -> None:
        self.reward, self.work, self.sweeps = policy.reward, policy.work, 0
        self.sweep, self._policy = policy.sweep, policy

    def follow(self, x: Value, out: Value) -> None:
        self.sweeps += 1
        self._policy.follow(x, out)


@dataclasses.dataclass
class Given:
    """Proposals of the caller's: the one whose last use cut most of the error per unit of work, unused ones first."""

    proposals: Sequence[Proposal]
    meter: Meter
    name: str = ""
    rates: dict[int, float] = dataclasses.field(default_factory=dict)
    last: tuple[int, float, int] | None = None

    def __call__(self, policy: PolicyRows, x: Value, changed: float, half: float) -> Value:
        if self.last is not None:
            index, before, work = self.last
            self.rates[index] = math.log(before / half) / max(self.meter.work - work, 1)
        index = max(range(len(self.proposals)), key=lambda i: self.rates.get(i, math.inf))
        self.name = getattr(self.proposals[index], "__qualname__", "proposal").split(".")[0]
        self.last = index, half, self.meter.work
        return self.proposals[index](policy, x.copy())  # whatever it does to it
