"""The largest average reward per step, with a certified error: relative value iteration.

For ANY h, with low ≤ 𝓑h − h ≤ high and no discount, the greedy policy earns at least `low` per step from every state,
and no policy earns more than `high` from any. Where one gain holds everywhere (every state can reach every other under
some policy) both come together. Periodic models are slowed to staying put with some chance, which changes no gain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from highway_rl import checks
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers.drift import EPS
from highway_rl.solvers.loop import Policy, Value, checked
from highway_rl.solvers.policy import PolicyModel

STAY = 0.2
"""Chance to stay put, against periods."""


class Average(NamedTuple):
    """The gain within `bound` of the largest, a policy that earns at least gain − bound, and its relative values."""

    gain: float
    bias: Value
    policy: Policy
    bound: float
    num_iters: int
    converged: bool


def average_reward(mdp: MDP | SparseMDP, tol: float = 1e-6, *, sweeps: int = 10, max_iters: int = 100_000) -> Average:
    """h ← (𝓑^π)ᵐ 𝓑h, less a constant, until high − low ≤ 2·tol; the model's own discount plays no part.

    >>> two = MDP.from_dense([[[0.0, 1.0]], [[1.0, 0.0]]], [[3.0], [1.0]], 0.9)
    >>> round(average_reward(two).gain, 6)
    2.0
    """
    checks.between("tol", tol, 0)
    checks.whole("sweeps", sweeps, 0)
    checks.whole("max_iters", max_iters, 1)
    model = checked(mdp).sparse()
    model = SparseMDP(model.reward, model.transition, np.ones_like(model.discount))
    longest = int(np.diff(model.transition.indptr).max(initial=0))
    h = np.zeros(model.num_states)
    for k in range(1, max_iters + 1):
        q = model.q_values(h)
        policy, change = q.argmax(axis=1), q.max(axis=1) - h
        slack = (longest + 8) * EPS * float(np.abs(model.reward).max() + np.abs(h).max())
        low, high = float(change.min()) - slack, float(change.max()) + slack
        if high - low <= 2 * tol or k == max_iters:
            break
        h = h + (1 - STAY) * (change - low)
        chosen = PolicyModel.of(model, policy)
        for _ in range(sweeps):
            step = chosen.backup(h) - h
            h = h + (1 - STAY) * (step - step.min())
        h = h - h[0]
    return Average((low + high) / 2, h, policy, (high - low) / 2, k, high - low <= 2 * tol)
