"""The deep algorithms by name: each is a target rule and a few settings, nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from highway_rl import checks
from highway_rl.core import table1, targets
from highway_rl.core.backup import TO_END
from highway_rl.core.targets import TargetRule
from highway_rl.deep.dqn import DQN

Maker = Callable[..., tuple[TargetRule, dict[str, Any]]]


def _dqn() -> Any:
    """The 1-step target."""
    return targets.q_learning(), {}


def _double_dqn() -> Any:
    """The newest network chooses the action, the one before prices it."""
    return targets.q_learning(), {"bootstrap": "double"}


def _maxmin_dqn(k: int = 2) -> Any:
    """The smallest of k networks' values."""
    return targets.q_learning(), {"num_networks": k}


def _n_step_dqn(n: int = TO_END) -> Any:
    """The uncorrected n-step return."""
    return targets.n_step(n), {}


def _lambda_dqn(lam: float = 0.9) -> Any:
    """The λ-return, Peng's Q(λ)."""
    return targets.peng_q_lambda(lam), {}


def _watkins_dqn(lam: float = 0.9) -> Any:
    """Watkins's Q(λ): cut at the first action that is not greedy."""
    return targets.watkins_q_lambda(lam), {}


def _tree_backup_dqn(lam: float = 1.0) -> Any:
    """Tree Backup(λ)."""
    return targets.tree_backup(lam), {}


def _retrace(lam: float = 1.0) -> Any:
    """Retrace(λ) from stored action probabilities."""
    return targets.retrace(lam), {}


def _n_step_highway_dqn(n: int = TO_END) -> Any:
    """The gated n-step return."""
    return targets.highway(n), {}


def _soft_highway_dqn(depths: tuple[int, ...] = (1, 2, TO_END), alpha: float = 0.005) -> Any:
    """Gated returns of several depths, in a softmax."""
    return targets.soft_highway(depths, alpha), {}


def _highway_gate_0(n: int = TO_END) -> Any:
    """Ablation: the gate compares with Q itself."""
    return TargetRule(table1.limited_gate(n, 0)), {}


def _highway_gate_3(n: int = TO_END) -> Any:
    """Ablation: the gate compares with the 3-step return."""
    return TargetRule(table1.limited_gate(n, 3)), {}


def _highway_mean_gate(n: int = TO_END) -> Any:
    """Ablation: the gate's max replaced by a mean."""
    return TargetRule(table1.expectation_gate(n)), {}


ALGORITHMS: dict[str, Maker] = {
    "dqn": _dqn,
    "double-dqn": _double_dqn,
    "maxmin-dqn": _maxmin_dqn,
    "n-step-dqn": _n_step_dqn,
    "lambda-dqn": _lambda_dqn,
    "watkins-dqn": _watkins_dqn,
    "tree-backup-dqn": _tree_backup_dqn,
    "retrace": _retrace,
    "n-step-highway-dqn": _n_step_highway_dqn,
    "soft-highway-dqn": _soft_highway_dqn,
    "highway-gate-0": _highway_gate_0,
    "highway-gate-3": _highway_gate_3,
    "highway-mean-gate": _highway_mean_gate,
}


def make_rule(name: str, **options: Any) -> tuple[TargetRule, dict[str, Any]]:
    """The rule of a named algorithm, and the settings that belong to it. `options`: n, depths, alpha, lam, k; the depth
    "end" is TO_END."""
    if name not in ALGORITHMS:
        raise checks.unknown("algorithm", name, ALGORITHMS)
    maker = ALGORITHMS[name]
    allowed = maker.__code__.co_varnames[: maker.__code__.co_argcount]
    for option, value in options.items():
        if option not in allowed:
            raise ValueError(f"{name} has no option {option!r}: it takes {', '.join(allowed) or 'none'}")
        if option in ("n", "depths") and isinstance(value, str) and value != "end":
            raise ValueError(f"{option}={value!r}: give whole numbers >= 1, or end")
    return maker(**{option: _depths(value) for option, value in options.items()})


def _depths(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_depths(one) for one in value)
    return TO_END if value == "end" else value


def make_agent(name: str, *, rule: dict[str, Any] | None = None, **settings: Any) -> DQN:
    """A named agent: `rule` are options of the algorithm, the rest fields of `DQN`.

    >>> make_agent("n-step-dqn", rule={"n": 3}, discount=0.9).rule.backup.depths
    (3,)
    """
    made, implied = make_rule(name, **(rule or {}))
    return DQN(rule=made, **(implied | settings))
