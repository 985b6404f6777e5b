"""The classical methods: value iteration, policy iteration, ordered Gauss–Seidel."""

from __future__ import annotations

from typing import Any

import numpy as np

from highway_rl import checks
from highway_rl.mdp import validate
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers.bounds import EPS
from highway_rl.solvers.loop import Move, Policy, Queries, Solution, Value, iterate
from highway_rl.solvers.policy import PolicyModel, ending_policy, evaluate


def value_iteration(mdp: MDP | SparseMDP, **options: Any) -> Solution:
    """V ← 𝓑V. Paper: Eq. 1."""
    return iterate("value-iteration", mdp, lambda model: lambda k, v, q, policy: (q.max(axis=1), Queries()), **options)


def policy_iteration(mdp: MDP | SparseMDP, *, sweeps: int | None = None, **options: Any) -> Solution:
    """Evaluate the greedy policy, exactly or by `sweeps` backups, and become greedy again.

    sweeps = 0 → value iteration; None → Howard's policy iteration. The paper's PI has "lookahead depth" 10,
    read as 10 evaluation sweeps.
    """
    if sweeps is not None:
        checks.whole("sweeps", sweeps, 0)

    def exact(model: SparseMDP) -> Move:
        held = ending_policy(model)
        settled = False

        def move(k: int, v: Value, q: np.ndarray, policy: Policy) -> tuple[Value, Queries]:
            nonlocal held, settled
            if settled:
                return q.max(axis=1), Queries()
            size = float(np.abs(v).max())
            if k > 1:  # keep an action unless another is better by more than rounding: ties must not cycle
                best, kept = (np.take_along_axis(q, p[:, None], axis=1)[:, 0] for p in (policy, held))
                held = np.where(best > kept + 64 * EPS * size, policy, held)
            found = evaluate(PolicyModel.of(model, held), v)
            # an evaluation that no longer raises V has only rounding left to fix, and plain backups do that
            settled = k > 1 and float(np.max(found - v)) <= 1e-10 * size
            return found, Queries(len(v), 0, len(v))

        return move

    def partial(model: SparseMDP) -> Move:
        def move(k: int, v: Value, q: np.ndarray, policy: Policy) -> tuple[Value, Queries]:
            chosen = PolicyModel.of(model, policy)
            v = q.max(axis=1)
            for _ in range(sweeps or 0):
                v = chosen.backup(v)
            return v, Queries((sweeps or 0) * len(v), 0, len(v) if sweeps else 0)

        return move

    if sweeps is None:
        return iterate("policy-iteration", mdp, exact, **options)
    return iterate(f"policy-iteration({sweeps})", mdp, partial, **options)


def gauss_seidel(mdp: MDP | SparseMDP, **options: Any) -> Solution:
    """Value iteration in place, states in order of their distance to an end (level by level).

    The honest outsider: where V starts below V* and the way to a goal is certain, one sweep in the right order does
    what VI needs hundreds for. With a cost per step V₀ = 0 is above V*, and order gains nothing, unless `lift` (below
    discount 1) puts V₀ below. Without absorbing states the order starts at the best-paying state.
    """

    def build(model: SparseMDP) -> Move:
        levels = _levels(model)
        S, A = model.reward.shape
        blocks = [(states, (states[:, None] * A + np.arange(A)).ravel()) for states in levels]
        parts = [(states, model.transition[rows]) for states, rows in blocks]

        def move(k: int, v: Value, q: np.ndarray, policy: Policy) -> tuple[Value, Queries]:
            v = v.copy()
            for states, P in parts:
                v[states] = (model.reward[states] + model.discount[states] * (P @ v).reshape(-1, A)).max(axis=1)
            return v, Queries(S * A, 0, 0)  # the sweep reads again what the full backup has read

        return move

    return iterate("gauss-seidel", mdp, build, **options)


def _levels(model: SparseMDP) -> list[np.ndarray]:
    ends = validate.absorbing(model)
    if not ends.any():
        ends = model.reward.max(axis=1) == model.reward.max()
    distance = validate.steps_to(model, ends)
    distance = np.where(np.isinf(distance), np.max(distance[np.isfinite(distance)]) + 1, distance).astype(int)
    order = np.argsort(distance, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(distance[order])) + 1)
