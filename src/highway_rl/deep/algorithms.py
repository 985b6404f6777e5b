"""The deep algorithms by name: each is a target rule and perhaps a setting, nothing more.

Your own takes two lines: `register_algorithm("mine", lambda n=3: highway_rl.highway((1, n)))`. Its arguments become
options: `mine:n=5`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from highway_rl import checks
from highway_rl.core import table1, targets
from highway_rl.core.backup import TO_END, Backup
from highway_rl.core.bootstrap import Bootstrap, Double, EpsilonGreedy, Greedy, greedy
from highway_rl.core.targets import TargetRule
from highway_rl.deep.dqn import DQN
from highway_rl.registry import Registry

Settings = dict[str, Any]
"""Names of an agent's or a schedule's settings, and their values."""
Maker = Callable[..., TargetRule | tuple[TargetRule, Settings]]
"""From options to a rule, or to a rule and the settings that go with it."""

BOOTSTRAPS: dict[str, Bootstrap] = {"greedy": greedy, "epsilon-greedy": EpsilonGreedy(), "double": Double()}
"""What a return ends in: max Q; its mean under the agent's ε-greedy policy, as in the paper's App. C.3; or the value,
by the networks of the refresh before, of what those of now think best."""


def _dqn() -> TargetRule:
    """The 1-step target."""
    return targets.q_learning()


def _double_dqn() -> TargetRule:
    """The newest network chooses the action, the one before prices it."""
    return targets.q_learning(bootstrap=Double())


def _maxmin_dqn(k: int = 2) -> tuple[TargetRule, Settings]:
    """The smallest of k networks' values."""
    return targets.q_learning(), {"num_networks": k}


def _n_step_dqn(n: int = TO_END) -> TargetRule:
    """The uncorrected n-step return."""
    return targets.n_step(n)


def _lambda_dqn(lam: float = 0.9) -> TargetRule:
    """The λ-return, Peng's Q(λ)."""
    return targets.peng_q_lambda(lam)


def _watkins_dqn(lam: float = 0.9) -> TargetRule:
    """Watkins's Q(λ): cut at the first action that is not greedy."""
    return targets.watkins_q_lambda(lam)


def _tree_backup_dqn(lam: float = 1.0) -> TargetRule:
    """Tree Backup(λ)."""
    return targets.tree_backup(lam)


def _retrace(lam: float = 1.0) -> TargetRule:
    """Retrace(λ) from stored action probabilities."""
    return targets.retrace(lam)


def _n_step_highway_dqn(n: int = TO_END) -> TargetRule:
    """The gated n-step return."""
    return targets.highway(n)


def _soft_highway_dqn(depths: tuple[int, ...] = (1, 2, TO_END), alpha: float = 0.005) -> TargetRule:
    """Gated returns of several depths, in a softmax."""
    return targets.soft_highway(depths, alpha)


def _highway_gate_0(n: int = TO_END) -> TargetRule:
    """Ablation: the gate compares with Q itself."""
    return TargetRule(table1.limited_gate(n, 0))


def _highway_gate_3(n: int = TO_END) -> TargetRule:
    """Ablation: the gate compares with the 3-step return."""
    return TargetRule(table1.limited_gate(n, 3))


def _highway_mean_gate(n: int = TO_END) -> TargetRule:
    """Ablation: the gate's max replaced by a mean."""
    return TargetRule(table1.expectation_gate(n))


ALGORITHMS: Registry[Maker] = Registry(
    "algorithm",
    "algorithms",
    {
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
    },
)


def register_algorithm(name: str, make: Maker | TargetRule) -> Maker | TargetRule:
    """Makes `--algo name` mean this rule: a `TargetRule`, or a function of options that returns one."""
    if not isinstance(make, TargetRule) and not callable(make):
        raise checks.refusal("make", make, "a TargetRule, or a function that returns one")
    return ALGORITHMS.add(name, make if not isinstance(make, TargetRule) else lambda: make)


def options_of(name: str) -> dict[str, Any]:
    """The options a named algorithm takes, with their defaults."""
    maker = ALGORITHMS.find(name)
    if isinstance(maker, TargetRule | Backup):
        return {}
    if not callable(maker):
        raise ValueError(f"{name} is a {type(maker).__name__}: give a TargetRule, or a function that returns one")
    return {p.name: p.default for p in inspect.signature(maker).parameters.values()}


def make_rule(name: str, **options: Any) -> tuple[TargetRule, Settings]:
    """The rule of a named algorithm, and the settings that belong to it; the depth "end" is TO_END."""
    maker = ALGORITHMS.find(name)
    checks.options(name, options, options_of(name))
    for option in ("n", "depths"):
        value = options.get(option)
        if isinstance(value, str) and value != "end":
            raise checks.refusal(option, value, "whole numbers >= 1, or end")
    if isinstance(maker, TargetRule | Backup):
        made: Any = maker
    else:
        made = maker(**{option: _depths(value) for option, value in options.items()})
    rule, settings = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
    rule = TargetRule(rule) if isinstance(rule, Backup) else rule
    if not isinstance(rule, TargetRule):
        raise ValueError(f"algorithm {name!r} made a {type(rule).__name__}: give a function that returns a TargetRule")
    return rule, dict(settings)


def with_bootstrap(rule: TargetRule, name: str) -> TargetRule:
    """The rule with another end of its returns, where it has the plain one."""
    checks.choice("bootstrap", name, BOOTSTRAPS)
    if not isinstance(rule.bootstrap, Greedy) or name == "greedy":
        return rule
    return dataclasses.replace(rule, bootstrap=BOOTSTRAPS[name])


def _depths(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_depths(one) for one in value)
    return TO_END if isinstance(value, str) and value == "end" else value


def named_agent(name: str, *, bootstrap: str = "greedy", rule: Settings | None = None, **settings: Any) -> DQN:
    """A named agent: `rule` are options of the algorithm, the rest fields of `DQN`.

    >>> named_agent("n-step-dqn", rule={"n": 3}, discount=0.9).rule.backup.depths
    (3,)
    """
    made, implied = make_rule(name, **(rule or {}))
    return DQN(rule=with_bootstrap(made, bootstrap), **(implied | settings))
