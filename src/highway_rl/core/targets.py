"""From experience to regression targets, by any target rule.

The rules themselves, and the algorithms the paper names, are in `rules.py`; they are importable from here too.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float

from highway_rl import checks
from highway_rl.core.backup import Backup, combine_returns
from highway_rl.core.bootstrap import greedy
from highway_rl.core.returns import lambda_returns, n_step_returns, traced_returns
from highway_rl.core.rules import (
    TargetRule,
    Trace,
    as_rule,
    expected_sarsa,
    highway,
    highway_optimality,
    importance_sampling,
    monte_carlo,
    n_step,
    n_step_sarsa,
    peng_q_lambda,
    q_lambda,
    q_learning,
    q_sigma,
    retrace,
    sarsa_lambda,
    soft_highway,
    tree_backup,
    watkins_q_lambda,
)
from highway_rl.core.trajectory import Trajectory, as_arrays
from highway_rl.types import AnyArray

__all__ = [
    "TargetRule",
    "Trace",
    "Trajectory",
    "expected_sarsa",
    "highway",
    "highway_optimality",
    "importance_sampling",
    "monte_carlo",
    "n_step",
    "n_step_sarsa",
    "peng_q_lambda",
    "q_lambda",
    "q_learning",
    "q_sigma",
    "retrace",
    "sampled_returns",
    "sarsa_lambda",
    "soft_highway",
    "targets",
    "tree_backup",
    "watkins_q_lambda",
]


def targets(rule: TargetRule | Backup, trajectory: Trajectory, q: Any, next_q: Any) -> Float[AnyArray, "*b t"]:
    """The regression target of each transition, each taken as its own behavioural policy (|𝓜| = 1).

        yₜ = smax_{n∈𝒩}  max{ Gⁿₜ, G¹ₜ },    Gⁿₜ = rₜ + γₜrₜ₊₁ + … + γₜ⋯γₜ₊ₙ₋₁ maxₐ Q(sₜ₊ₙ, a)

    with the gate, the aggregate, the bootstrap and the trace of the rule; a `Backup` bootstraps greedily. `q` are the
    action values at sₜ and `next_q` those at the true successor of each step, [..., T, A]. The leading axes are paths
    of their own. NumPy arrays, JAX arrays (traced or not) and lists all work; the targets [..., T] are of q's kind and
    dtype.

    Paper: Eq. 8.
    >>> path = Trajectory(action=[0, 1, 0], reward=[0, 0, 1], discount=[0.5, 0.5, 0], last=[0, 0, 1])
    >>> zeros = [[0, 0], [0, 0], [0, 0]]
    >>> targets(highway_optimality((1, 2)), path, q=zeros, next_q=zeros).tolist()
    [0.0, 0.5, 1.0]
    """
    rule = as_rule(rule)
    data, q, next_q = as_arrays(trajectory, q, next_q, beside=rule)
    if rule.trace is not None and data.behaviour is None:
        raise checks.refusal("behaviour", None, "π(a|s) of each action taken, which the trace of this rule needs")
    returns, reference = sampled_returns(rule, data, q, next_q)
    return combine_returns(rule.backup, returns[..., None, :], reference[..., None])


def sampled_returns(
    rule: TargetRule, data: Trajectory, q: Float[AnyArray, "*b t a"], next_q: Float[AnyArray, "*b t a"]
) -> tuple[Float[AnyArray, "*b t n"], Float[AnyArray, "*b t"]]:
    """The returns of every depth, and the return the gate compares with, at each transition.

    `q` are the action values at sₜ, `next_q` at the true successor (the final observation where the path is
    cut). SARSA's bootstrap has no next action there and takes the greedy one instead.
    """
    xp = q.__array_namespace__()
    next_row = xp.minimum(xp.arange(q.shape[-2]) + 1, q.shape[-2] - 1)
    last = data.last | (xp.arange(q.shape[-2]) == q.shape[-2] - 1)
    next_action = data.action[..., next_row]
    acted = xp.astype(next_action[..., None] == xp.arange(q.shape[-1]), q.dtype)
    target = rule.bootstrap(next_q, xp.where(last[..., None], greedy(next_q), acted))
    next_value = xp.sum(target * next_q, axis=-1)
    value = xp.sum(xp.where(data.action[..., None] == xp.arange(q.shape[-1]), q, xp.zeros_like(q)), axis=-1)
    gate_depth = rule.backup.gate_depth
    depths = rule.backup.depths + ((gate_depth,) if gate_depth and gate_depth not in rule.backup.depths else ())
    # Paths that are cut where they end may lie end to end in one array.
    flat = lambda x: xp.reshape(x, (-1,))  # noqa: E731
    reward, discount, end = flat(data.reward), flat(data.discount), flat(last)
    if rule.trace is None:
        returns = n_step_returns(reward, discount, flat(next_value), end, depths)
    else:
        trace = rule.trace(xp.sum(target * acted, axis=-1), data.behaviour[..., next_row])
        path = (reward, discount, flat(next_value), flat(trace), end, depths)
        returns = traced_returns(flat(value), *path) if rule.trace.around == "action" else lambda_returns(*path)
    returns = xp.reshape(returns, (*value.shape, len(depths)))
    reference = returns[..., depths.index(gate_depth)] if gate_depth else value
    return returns[..., : len(rule.backup.depths)], reference
