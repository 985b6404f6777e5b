"""Highway value iteration, the paper's Algorithm 1, made as cheap as it can be."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from highway_rl import checks
from highway_rl.core.backup import TO_END, Backup, combine_returns
from highway_rl.core.lookahead import lookahead
from highway_rl.core.table1 import highway_optimality
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers.loop import Move, Policy, Queries, Solution, Value, iterate
from highway_rl.solvers.policy import PolicyModel, check_policy, check_prior


def highway_value_iteration(
    mdp: MDP | SparseMDP,
    *,
    backup: Backup | None = None,
    num_policies: int = 5,
    policy_interval: int = 7,
    policies: Any = None,
    policy_prior: Any = None,
    lift: bool = False,
    **options: Any,
) -> Solution:
    """Algorithm 1: V ← 𝒢V over a first-in-first-out set of greedy policies.

    Every `policy_interval` (K) iterations, from the first, the greedy policy joins the set of at most
    `num_policies` (M); `policies` is the initial set, [m, s] actions. `backup` says depths and aggregation: by
    default the largest gated return over 1…10, which is what the paper's figure needs (`highway(range(1, 11))`
    is Algorithm 1 read literally, the mean). `policy_prior`, newest last, is a function of how many policies
    there are. `lift` moves V₀ to its certified lower bound and raises each later V to its own: that stays below
    V* and costs no query.

    Paper: Eq. 7, Algorithm 1 (Highway Value Iteration).
    """
    backup = highway_optimality(range(1, 11)) if backup is None else backup
    checks.whole("num_policies", num_policies, 1)
    checks.whole("policy_interval", policy_interval, 1)
    if TO_END in backup.depths:
        raise checks.refusal("depths", backup.depths, "finite depths, or solve by policy_iteration, which has n = ∞")
    if backup.gate_depth != 1:
        raise checks.refusal("gate_depth", backup.gate_depth, "1, the return Highway value iteration compares with")

    def build(model: SparseMDP) -> Move:
        S = model.num_states
        chosen: deque[PolicyModel] = deque(maxlen=num_policies)
        for policy in [] if policies is None else policies:
            chosen.append(PolicyModel.of(model, check_policy(policy, model.num_states, model.num_actions)))

        def move(k: int, v: Value, q: np.ndarray, policy: Policy) -> tuple[Value, Queries]:
            new = (k - 1) % policy_interval == 0
            if new:
                chosen.append(PolicyModel.of(model, policy))
            one_step = q.max(axis=1)
            columns, sweeps = zip(*(_policy_returns(m, one_step, backup) for m in chosen), strict=True)
            # [depth, policy, state] in memory, so that aggregating is a pass over whole rows
            returns = np.moveaxis(np.stack(columns, axis=1), (0, 1, 2), (2, 1, 0))
            reference = np.broadcast_to(one_step[:, None], returns.shape[:2])
            prior = None if policy_prior is None else check_prior(policy_prior(len(chosen)), len(chosen))
            v = np.asarray(combine_returns(backup, returns, reference, policy_prior=prior))
            fresh = len(chosen) if k == 1 else int(new)
            return v, Queries(sum(sweeps) * S, 0, fresh * S)

        return move

    return iterate("highway", mdp, build, lift=lift, **options)


def _policy_returns(policy: PolicyModel, one_step: Value, backup: Backup) -> tuple[np.ndarray, int]:
    """(𝓑^π)ⁿ⁻¹𝓑V for each depth, [n, s], and how many policy sweeps that took."""
    depths = backup.depths
    if policy.successor is not None:
        if depths not in policy.tables:  # pointer doubling, once per policy: n steps become one look-up
            never = np.zeros(len(one_step), bool)
            further = tuple(n - 1 for n in depths if n > 1)
            maps = lookahead(policy.reward, policy.discount, never, further, policy.successor) if further else []
            policy.tables[depths] = [(m.reward, m.discount, policy.successor[m.end]) for m in maps]
        tables = iter(policy.tables[depths])
        found = [one_step if n == 1 else (m := next(tables))[0] + m[1] * one_step[m[2]] for n in depths]
        return np.stack(found), max(depths) - 1
    columns = {1: one_step}
    largest_only = isinstance(backup.depth_alpha, float) and backup.depth_alpha == np.inf and backup.depth_prior is None
    v = unbeaten = one_step  # a later return that nowhere exceeds `unbeaten` changes nothing
    for n in range(2, max(depths) + 1):
        deeper = policy.backup(v)
        # 𝓑^π is monotone: once a sweep raises nothing, no later one does.
        if np.all(deeper <= v) and np.all(deeper <= unbeaten):
            return np.stack([columns.get(m, deeper) for m in depths]), n - 1
        columns[n] = v = deeper
        if largest_only and n in depths:
            unbeaten = np.maximum(unbeaten, deeper)
    return np.stack([columns[n] for n in depths]), max(depths) - 1
