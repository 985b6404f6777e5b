"""A target rule says how experience becomes a regression target: backup, bootstrap, trace.

Every algorithm the paper names is one constructor below: a choice of three parts, no code of its own. To add one,
write a constructor; the agents and the exact operators take it as it is. `bootstrap` is the policy that ends a return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float

from highway_rl import checks
from highway_rl.core import table1
from highway_rl.core.backup import TO_END, Backup
from highway_rl.core.bootstrap import Bootstrap, Expected, Mixed, evenly_greedy, greedy, on_action
from highway_rl.types import AnyArray, record, static


@record
class Trace:
    """The trace of an action: c = λ · ratio(π'(a|s), π(a|s)), with π' the target and π the behaviour.

    Errors are summed around Q(s,a); around the "state"'s value this makes the uncorrected λ-return.
    """

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


def as_rule(rule: Any) -> TargetRule:
    """A rule as it is; of a backup, the rule that bootstraps greedily and has no trace."""
    if isinstance(rule, Backup):
        return TargetRule(rule)
    if not isinstance(rule, TargetRule):
        raise checks.refusal("rule", rule, "a TargetRule or a Backup, such as soft_highway()")
    return rule


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


def q_learning(*, bootstrap: Bootstrap = greedy) -> TargetRule:
    """r + γ max Q(s',·): Q-learning and DQN. Paper: Eq. 1."""
    return TargetRule(table1.multi_step(1), bootstrap)


def expected_sarsa(policy: Any) -> TargetRule:
    """r + γ 𝔼_{π'}Q(s',·) for a given target policy: the Bellman expectation operator 𝓑^π'. Paper: Eq. 2."""
    return TargetRule(table1.multi_step(1), Expected(policy))


def n_step(n: int, *, bootstrap: Bootstrap = greedy) -> TargetRule:
    """Uncorrected n-step Q-learning, n-step DQN. Paper: Eq. 3."""
    return TargetRule(table1.multi_step(n), bootstrap)


def n_step_sarsa(n: int) -> TargetRule:
    """n rewards, then the value of the action taken."""
    return TargetRule(table1.multi_step(n), on_action)


def monte_carlo(*, bootstrap: Bootstrap = greedy) -> TargetRule:
    """The return to the end of the trajectory."""
    return TargetRule(table1.multi_step(TO_END), bootstrap)


def peng_q_lambda(lam: Any, depth: int = TO_END, *, bootstrap: Bootstrap = greedy) -> TargetRule:
    """The λ-weighted mean of uncorrected n-step returns up to a depth: λ-return DQN, Peng's Q(λ). Paper: Sec. 3."""
    checks.unit_interval("lam", lam)
    return TargetRule(table1.multi_step(depth), bootstrap, Trace(_one, lam, "state"))


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


def highway(depths: table1.Depths, prior: Any = None, *, bootstrap: Bootstrap = greedy) -> TargetRule:
    """n-step Highway DQN: the gated n-step return. Paper: Eq. 4."""
    return TargetRule(table1.highway(depths, prior), bootstrap)


def highway_optimality(depths: table1.Depths, *, bootstrap: Bootstrap = greedy) -> TargetRule:
    """Highway Q-learning: the largest gated return. Paper: Eqs. 5, 20."""
    return TargetRule(table1.highway_optimality(depths), bootstrap)


def soft_highway(
    depths: table1.Depths = (1, 2, TO_END), alpha: Any = 0.005, *, bootstrap: Bootstrap = greedy
) -> TargetRule:
    """Soft Highway DQN, with the paper's depths and α. Paper: Eqs. 6, 8."""
    return TargetRule(table1.highway_softmax(depths, alpha), bootstrap)
