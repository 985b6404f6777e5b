"""The gated solver: any guess at V*, made safe by the gate, certified by the backup that also improves it.

One full backup of a guess x does everything: its least and largest change bound V* around x; lifted by the least, 𝓑x is
a sub-solution (`Drift.lifted`) and joins, through the gate, the largest one so far; its greedy policy is what the next
guess evaluates.

    low ≤ 𝓑x − x ≤ high                    →  x + θ₁w ≤ V* ≤ x + θ₂w
    V ← max{ V, 𝓑x + θ₁(w − d) }              V never falls, never exceeds V*; what is no number is dropped
    x ← proposal(π, V)                         whatever it is; V itself after guesses that brought nothing

With sweeps for proposals it is modified policy iteration, with Krylov solves inexact policy iteration, and at worst it
contracts as value iteration does. Where float64 cannot certify what is asked for, the same goes on with what is left of
V* beyond the best guess (`doubled.py`). The closest earlier work is Shlakhter et al., math/0506489.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from highway_rl import checks
from highway_rl.core.backup import Backup, combine_returns
from highway_rl.mdp import validate
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers.banded import banded, bands_of
from highway_rl.solvers.chooser import Chooser, Given, Meter, Metered, TimeUpError
from highway_rl.solvers.classic import policy_iteration
from highway_rl.solvers.drift import EPS
from highway_rl.solvers.loop import Queries, Solution, checked, unreachable
from highway_rl.solvers.ordered import order_of, ordered
from highway_rl.solvers.policy import check_policy
from highway_rl.solvers.proposals import Proposal, anderson, krylov, sweeps
from highway_rl.solvers.rows import Actions, Rows, Value, compiler, rows_of

GATE = Backup((1,), depth_alpha=math.inf, policy_alpha=math.inf)
PROPOSALS = ("auto", "sweeps", "krylov", "anderson", "ordered", "banded")
HISTORY = ("bound", "rows", "seconds", "open", "proposal")


@np.errstate(over="ignore", invalid="ignore")  # what overflows is no certificate
def highway_solve(
    mdp: MDP | SparseMDP | Rows,
    tol: float = 1e-6,
    *,
    until: str = "bound",
    value: Any = None,
    policies: Sequence[Any] = (),
    proposal: str | Proposal | Sequence[Proposal] = "auto",
    max_iters: int = 1_000_000,
    time_limit: float | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """V* within `tol` (`until` = "bound"), or a policy that loses at most `tol` ("loss"), certified at every moment.

    `value` is a warm start and `policies` are ones to begin with; right or wrong, the gate keeps the result right.
    `proposal` is "auto", which chooses by structure and measured progress, another name in PROPOSALS, or one or more
    functions from (policy, x) to x. Ctrl-C and `time_limit` (seconds) return what is certified by then, `converged`
    False. Where discount 1 leaves nothing to certify with beforehand, this is plain modified policy iteration.
    """
    share = 2 if checks.choice("until", until, ("bound", "loss")) == "loss" else 1
    tol = checks.between("tol", tol, 0) / share
    checks.whole("max_iters", max_iters, 1)
    end = time.perf_counter() + (math.inf if time_limit is None else checks.between("time_limit", time_limit, 0))
    rows: Any = rows_of(checked(mdp)) if not hasattr(mdp, "under") else mdp
    if rows.drift is None:
        return policy_iteration(checked(mdp), sweeps=10, tol=tol, value=value, max_iters=max_iters, progress=progress)
    meter = Meter(expired=lambda: time.perf_counter() > end)
    run = _Run(rows, meter, lambda rows: _chooser(rows, proposal, meter, tol), tol, share, _starts(rows, value))
    try:
        run.tell([check_policy(policy, *rows.shape) for policy in policies])
        while not run.bound <= tol and len(run.history) < max_iters and np.isfinite(run.bound):
            if meter.expired():
                break
            if run.went_beyond():
                continue
            bound = run.bound
            run.step()
            if progress is not None:
                progress(len(run.history), bound)
    except (KeyboardInterrupt, TimeUpError):
        pass  # what was certified before stands
    return run.solution()


class Certified(NamedTuple):
    """A guess, its greedy policy, and the θ between which V* lies; `lifted` is a sub-solution."""

    guess: Value
    lifted: Value
    policy: Actions
    low: float
    high: float
    half: float
    change: float
    slack: float


@dataclasses.dataclass
class _Run:
    """The loop's state: the largest sub-solution, the narrowest certificate, and the latest.

    Values are counted from `origin`, which is 0 until rounding forbids it; `blur` is what adding it may lose.
    """

    rows: Any
    meter: Meter
    chooser: Callable[[Any], tuple[str, Any]]
    tol: float
    share: int
    starts: dataclasses.InitVar[list[Value]]
    history: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    changed: float = 1.0
    idle: int = 0
    bare: bool = False
    still: bool = False
    origin: Value | None = None
    blur: float = 0.0

    def __post_init__(self, starts: list[Value]) -> None:
        self.begun = time.perf_counter()
        self.name, self.choose = self.chooser(self.rows)
        self.best = self.last = self.certify(self.rows, starts[0])
        self.floor = self.base = self.best.lifted
        for start in starts[1:]:
            self.take(start)

    @property
    def bound(self) -> float:
        return self.best.half + self.blur

    def certify(self, rows: Any, x: Value) -> Certified:
        """One backup of x."""
        drift, out = rows.drift, np.empty_like(x)
        spread, policy = rows.backup(x, out)
        self.meter.work += rows.work
        self.meter.rows += math.prod(rows.shape)
        low, high = drift.interval(spread)
        lifted = drift.lifted(out, low) if np.isfinite(low) else out
        change = max(abs(spread.low), abs(spread.high))
        return Certified(x, lifted, policy, low, high, (high - low) / 2 * drift.top, change, drift.slack(spread))

    def take(self, x: Value) -> float:
        """Certify a guess and pass it through the gate; the share of states where that was open."""
        if np.shape(x) != self.floor.shape:
            raise ValueError(f"the proposal has shape {np.shape(x)}: give {self.floor.shape}")
        x = self.rows.drift.grounded(x) if np.isfinite(x.sum()) else self.floor
        found, opened = self.certify(self.rows, x), 0.0
        self.changed = float(np.count_nonzero(found.policy != self.last.policy)) / len(x)
        narrower = found.half < self.best.half
        self.best, self.last, self.base = found if narrower else self.best, found, found.lifted  # frees what was before
        if np.isfinite(found.low):
            opened = float(np.count_nonzero(found.lifted > self.floor)) / len(x)
            self.floor = np.asarray(combine_returns(GATE, found.lifted[:, None, None], self.floor[:, None]))
        self.base = found.lifted if narrower else self.floor
        self.idle = 0 if narrower else self.idle + 1
        self.bare = self.idle > 0 and (opened == 0 or self.idle % 4 == 0)
        return opened

    def tell(self, policies: list[Actions]) -> None:
        """Begin with policies of the caller's: each is evaluated as one that will stay."""
        for policy in policies:
            self.take(self.choose(Metered(self.rows.under(policy), self.meter), self.base, 0.0, self.last.half))

    def step(self) -> None:
        """One iteration: a guess, its backup, the gate."""
        bound, bare = self.bound, self.bare
        policy = Metered(self.rows.under(self.last.policy), self.meter)
        x = self.floor if bare else self.choose(policy, self.base, self.changed, self.last.half)
        opened = self.take(x)
        self.still = bare and opened == 0 and self.idle > 0  # the same again, for ever
        seconds = time.perf_counter() - self.begun
        self.history.append((bound, self.meter.rows, seconds, opened, "none" if bare else self.choose.name))

    def went_beyond(self) -> bool:
        """Where rounding is in the way, goes on from the best guess, once it is near; where that is done, or not to be
        had, a tolerance that rounding certainly forbids is refused."""
        drift, best, top = self.rows.drift, self.best, self.rows.drift.top
        x, low, high = best.guess, best.low, best.high
        size = max(float(x.max()) + low * top, -float(x.min()) - high * top, 0.0)  # ≤ max|V*|
        lost = best.change <= best.slack and self.last.half >= best.half and len(self.history) > 1
        stuck = lost or self.still
        never = stuck or self.tol < drift.floor(size) + self.blur
        if not (never or best.slack * top > self.tol * drift.least / 2):
            return False
        middle = x + (low + high) / 2 * drift.weight
        if self.origin is None:
            if not stuck and best.half * top > self.tol * drift.least / (32 * drift.rounding):
                return False
            blur = EPS * (float(np.abs(middle).max()) + 4 * best.half)
            left = _beyond(self.rows, middle, best.half + blur)
            if left is not None:
                self.move(left, middle, blur)
                return True
        if not never:
            return False
        most = max(float(x.max()) + high * top, -float(x.min()) - low * top)
        reach = self.blur + 4 * drift.rounding * (drift.largest_reward + most) * top / drift.least
        whole = middle if self.origin is None else self.origin + middle
        floor = 2 * self.share * max(reach, self.bound if stuck else 0.0)
        raise unreachable(self.share * self.tol, float(np.abs(whole).max()), floor)

    def move(self, left: Any, origin: Value, blur: float) -> None:
        """Count from `origin` on. All at once: Ctrl-C may come at any time."""
        name, choose = self.chooser(left)
        found = self.certify(left, np.zeros_like(origin))
        theta = (self.best.high - self.best.low) / 2
        known = found._replace(low=-theta, high=theta, half=self.best.half, policy=self.best.policy)
        vars(self).update(
            rows=left, origin=origin, blur=blur, name=name, choose=choose, changed=1.0, idle=0, bare=False, still=False,
            best=found if found.half < known.half else known, last=found, floor=found.lifted, base=found.lifted,
        )  # fmt: skip

    def solution(self) -> Solution:
        best, drift, (S, A), k = self.best, self.rows.drift, self.rows.shape, len(self.history)
        middle = (best.low + best.high) / 2 if np.isfinite(best.half) else 0.0
        residual = best.change + abs(middle) * drift.most if len(best.guess) else 0.0
        columns = zip(*self.history, strict=True) if self.history else [[] for _ in HISTORY]
        history = {name: np.array(column) for name, column in zip(HISTORY, columns, strict=True)}
        queries = Queries(self.meter.rows, (k + 1) * S * A, (k + 1) * S * A + k * S)
        value = best.guess + middle * drift.weight
        value = value if self.origin is None else self.origin + value
        return Solution(
            self.name, value, best.policy, k, queries, residual, self.bound, self.bound <= self.tol, history
        )


def _starts(rows: Any, value: Any) -> list[Value]:
    S = rows.shape[0]
    if value is None:
        return [np.zeros(S)]
    given = validate.numbers("value", value, 1)
    validate.same_shape("value", given, "a list of states", np.empty(S))
    validate.not_nan("value", given)
    return [np.zeros(S), given]


def _beyond(rows: Any, x: Value, half: float) -> Any:
    """The model of what is left of V* above x, at most `half`, or None."""
    if compiler() is None:
        return None
    from highway_rl.solvers.doubled import beyond  # needs numba

    return beyond(rows, x, half)


def _chooser(rows: Any, proposal: Any, meter: Meter, tol: float) -> tuple[str, Any]:
    """The name of the method and what makes guesses."""
    if not isinstance(proposal, str):
        return "gated(own)", Given([proposal] if callable(proposal) else list(proposal), meter)
    checks.choice("proposal", proposal, PROPOSALS)
    bands = bands_of(rows) if proposal in ("auto", "banded") else None
    if bands is not None:
        return "gated(banded)", Given([banded(rows, bands, meter)], meter)
    order = order_of(rows) if proposal in ("auto", "ordered") else None
    if order is not None:
        return "gated(ordered)", Given([ordered(rows, order, meter, tol)], meter)
    if proposal == "ordered":
        raise checks.refusal("proposal", proposal, "auto: this model has no end towards which most states can move")
    if proposal == "banded":
        raise checks.refusal("proposal", proposal, "auto: the moves of this model reach too far")
    if proposal == "auto":
        return "gated", Chooser(rows.shape[1], rows.drift.least, tol)
    made = {"sweeps": sweeps(20), "krylov": krylov(2000, 0.1, rows.drift.least), "anderson": anderson(50)}
    return f"gated({proposal})", Given([made[proposal]], meter)
