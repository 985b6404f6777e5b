"""A target rule says how experience becomes a regression target: backup, bootstrap, trace.

Every algorithm the paper names is one constructor below: a choice of three parts, no code of its own. To add one,
write a constructor; the agents and the exact operators take it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float, Int

from highway_rl import checks
from highway_rl.core import table1
from highway_rl.core.backup import TO_END, Backup, combine_returns
from highway_rl.core.bootstrap import Bootstrap, Expected, Mixed, evenly_greedy, greedy, on_action
from highway_rl.core.returns import lambda_returns, n_step_returns, traced_returns
from highway_rl.types import AnyArray, record, static


@record
class Trace:
    """The trace of an action: c = λ · ratio(π'(a|s), π(a|s)), with π' the target and π the behaviour.

    Errors are summed around Q(s,a); around the "state"'s value this makes the uncorrected λ-return."""

    ratio: Callable[[Any, Any], Any] = static()
    lam: Any = 1.0
    around: str = static(default="action")

    def __call__(self, target: Float[AnyArray, "*b"], behaviour: Float[AnyArray, "*b"]) -> Float[AnyArray, "*b"]:
        return self.ratio(target, behaviour) * target.__array_namespace__().asarray(self.lam, dtype=target.dtype)


@record
class TargetRule:
    """returns → gate → aggregate, with the bootstrap that ends a return and the trace that corrects it."""

    backup: Backup
    bootstrap: Bootstrap = greedy
    trace: Trace | None = None


@record
class Trajectory:
    """T transitions in the order they happened. `behaviour` is π(a|s) of the action taken."""

    action: Int[AnyArray, "t"]
    reward: Float[AnyArray, "t"]
    discount: Float[AnyArray, "t"]
    last: Bool[AnyArray, "t"]
    behaviour: Float[AnyArray, "t"]


def sampled_returns(
    rule: TargetRule, data: Trajectory, q: Float[AnyArray, "t a"], next_q: Float[AnyArray, "t a"]
) -> tuple[Float[AnyArray, "t n"], Float[AnyArray, "t"]]:
    """The returns of every depth, and the return the gate compares with, at each transition.

    `q` are the action values at sₜ, `next_q` at the true successor (the final observation where the path is
    cut). SARSA's bootstrap has no next action there and takes the greedy one instead.
    """
    xp = q.__array_namespace__()
    next_row = xp.minimum(xp.arange(q.shape[0]) + 1, q.shape[0] - 1)
    last = data.last | (xp.arange(q.shape[0]) == q.shape[0] - 1)
    next_action = data.action[next_row]
    acted = xp.astype(next_action[:, None] == xp.arange(q.shape[1]), q.dtype)
    target = rule.bootstrap(next_q, xp.where(last[:, None], greedy(next_q), acted))
    next_value = xp.sum(target * next_q, axis=-1)
    value = xp.sum(xp.where(data.action[:, None] == xp.arange(q.shape[1]), q, xp.zeros_like(q)), axis=-1)
    gate_depth = rule.backup.gate_depth
    depths = rule.backup.depths + ((gate_depth,) if gate_depth and gate_depth not in rule.backup.depths else ())
    if rule.trace is None:
        returns = n_step_returns(data.reward, data.discount, next_value, last, depths)
    else:
        trace = rule.trace(xp.sum(target * acted, axis=-1), data.behaviour[next_row])
        path = (data.reward, data.discount, next_value, trace, last, depths)
        returns = traced_returns(value, *path) if rule.trace.around == "action" else lambda_returns(*path)
    reference = returns[:, depths.index(gate_depth)] if gate_depth else value
    return returns[:, : len(rule.backup.depths)], reference


def targets(
    rule: TargetRule, data: Trajectory, q: Float[AnyArray, "t a"], next_q: Float[AnyArray, "t a"]
) -> Float[AnyArray, "t"]:
    """The regression target of each transition, each taken as its own behavioural policy (|𝓜| = 1). Paper: Eq. 8."""
    returns, reference = sampled_returns(rule, data, q, next_q)
    return combine_returns(rule.backup, returns[:, None, :], reference[:, None])


def _clipped(target: Any, behaviour: Any) -> Any:
    return target.__array_namespace__().minimum(_ratio(target, behaviour), 1.0)


def _ratio(target: Any, behaviour: Any) -> Any:
    xp = target.__array_namespace__()
    return xp.where(behaviour > 0, target / xp.where(behaviour > 0, behaviour, xp.ones_like(behaviour)), 0.0)


def _itself(target: Any, _: Any) -> Any:
    return target


def _one(target: Any, behaviour: Any) -> Any:
    return target.__array_namespace__().ones_like(target)


def _greedy_only(target: Any, behaviour: Any) -> Any:
    return target.__array_namespace__().astype(target > 0, target.dtype)


def _traced(ratio: Callable[[Any, Any], Any], lam: Any, bootstrap: Bootstrap, depth: int) -> TargetRule:
    checks.unit_interval("lam", lam)
    return TargetRule(table1.multi_step(depth), bootstrap, Trace(ratio, lam))


def q_learning() -> TargetRule:
    """r + γ max Q(s',·): Q-learning and DQN. Paper: Eq. 1."""
    return TargetRule(table1.multi_step(1))


def expected_sarsa(policy: Any) -> TargetRule:
    """r + γ 𝔼_{π'}Q(s',·) for a given target policy: the Bellman expectation operator 𝓑^π'. Paper: Eq. 2."""
    return TargetRule(table1.multi_step(1), Expected(policy))


def n_step(n: int) -> TargetRule:
    """Uncorrected n-step Q-learning, n-step DQN. Paper: Eq. 3."""
    return TargetRule(table1.multi_step(n))


def n_step_sarsa(n: int) -> TargetRule:
    """n rewards, then the value of the action taken."""
    return TargetRule(table1.multi_step(n), on_action)


def monte_carlo() -> TargetRule:
    """The return to the end of the trajectory."""
    return TargetRule(table1.multi_step(TO_END))


def peng_q_lambda(lam: Any, depth: int = TO_END) -> TargetRule:
    """The λ-weighted mean of uncorrected n-step returns up to a depth: λ-return DQN, Peng's Q(λ). Paper: Sec. 3."""
    checks.unit_interval("lam", lam)
    return TargetRule(table1.multi_step(depth), greedy, Trace(_one, lam, "state"))


def importance_sampling(n: int, policy: Any) -> TargetRule:
    """n-step returns corrected by the full ratio π'/π, towards Q^π'. Paper: Eq. 18."""
    return TargetRule(table1.multi_step(n), Expected(policy), Trace(_ratio))


def retrace(lam: Any = 1.0, bootstrap: Bootstrap = greedy, depth: int = TO_END) -> TargetRule:
    """c = λ·min(1, π'/π). Paper: Eq. 19."""
    return _traced(_clipped, lam, bootstrap, depth)


def q_lambda(lam: Any, bootstrap: Bootstrap = greedy, depth: int = TO_END) -> TargetRule:
    """c = λ, Harutyunyan's off-policy corrected Q(λ). Paper: Eq. 19."""
    return _traced(_one, lam, bootstrap, depth)


def watkins_q_lambda(lam: Any, depth: int = TO_END) -> TargetRule:
    """c = λ while the actions taken are greedy (ties included), 0 from the first one that is not."""
    return _traced(_greedy_only, lam, evenly_greedy, depth)


def sarsa_lambda(lam: Any, depth: int = TO_END) -> TargetRule:
    """c = λ, bootstrapping on the action taken."""
    return _traced(_one, lam, on_action, depth)


def tree_backup(lam: Any = 1.0, bootstrap: Bootstrap = greedy, depth: int = TO_END) -> TargetRule:
    """c = λ·π'(a|s)."""
    return _traced(_itself, lam, bootstrap, depth)


def q_sigma(sigma: Any, bootstrap: Bootstrap, lam: Any = 1.0, depth: int = TO_END) -> TargetRule:
    """On-policy Q(σ): σ of each step samples the action, 1 − σ takes the expectation under the bootstrap's policy.

    σ = 1 → SARSA(λ); σ = 0 → Tree Backup(λ). (De Asis et al., 2018, with importance ratios of one.)
    """
    checks.unit_interval("sigma", sigma)
    return _traced(_itself, lam, Mixed(sigma, bootstrap), depth)


def highway(depths: table1.Depths, prior: Any = None) -> TargetRule:
    """n-step Highway DQN: the gated n-step return. Paper: Eq. 4."""
    return TargetRule(table1.highway(depths, prior))


def highway_optimality(depths: table1.Depths) -> TargetRule:
    """Highway Q-learning: the largest gated return. Paper: Eqs. 5, 20."""
    return TargetRule(table1.highway_optimality(depths))


def soft_highway(depths: table1.Depths = (1, 2, TO_END), alpha: Any = 0.005) -> TargetRule:
    """Soft Highway DQN, with the paper's depths and α. Paper: Eqs. 6, 8."""
    return TargetRule(table1.highway_softmax(depths, alpha))
