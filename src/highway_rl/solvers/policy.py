"""A model under one deterministic policy: one row per state, and its exact evaluation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import bicgstab, splu

from highway_rl import checks
from highway_rl.mdp import validate
from highway_rl.mdp.model import SparseMDP
from highway_rl.solvers.loop import Policy, Value


class PolicyModel(NamedTuple):
    """One row per state: the model under a deterministic policy. `successor` is set when nothing is random."""

    reward: Value
    discount: Value
    transition: sp.csr_array
    successor: Policy | None
    tables: dict[tuple[int, ...], Any]

    @staticmethod
    def of(model: SparseMDP, policy: Policy) -> PolicyModel:
        states = np.arange(model.num_states)
        P = model.transition[states * model.num_actions + policy]
        successor = P.indices if P.nnz == len(states) and np.all(P.data == 1) else None
        return PolicyModel(model.reward[states, policy], model.discount[states, policy], P, successor, {})

    def backup(self, v: Value) -> Value:
        """(𝓑^πV)(s) = r + γ Σ P V, one row read per state."""
        return self.reward + self.discount * (self.transition @ v)


def evaluate(policy: PolicyModel, guess: Value) -> Value:
    """V^π: a direct solve while that is cheap, else BiCGSTAB polished by sweeps. NaN where V^π is infinite."""
    S = len(guess)
    matrix = sp.eye_array(S, format="csr") - sp.diags_array(policy.discount) @ policy.transition
    ends = (np.asarray(policy.transition.diagonal()) == 1) & (policy.discount == 1) & (policy.reward == 0)
    if ends.any():
        matrix = matrix + sp.diags_array(ends.astype(np.float64))  # V = 0 where the policy stays for nothing
    if S > 500 and policy.successor is None:  # a random graph fills a factorisation up
        solved, info = bicgstab(matrix, policy.reward, x0=guess, rtol=1e-12, atol=0.0, maxiter=2000)
        if not info and np.all(np.isfinite(solved)):
            return policy.backup(policy.backup(solved))
    try:
        return splu(sp.csc_array(matrix)).solve(policy.reward)
    except RuntimeError:  # singular: the policy can go round for ever, undiscounted
        return np.full(S, np.nan)


def ending_policy(model: SparseMDP) -> Policy:
    """A policy to start policy iteration from: with discount 1, one that moves towards an end or a discounted step."""
    if not np.any(model.discount >= 1):
        return model.reward.argmax(axis=1)
    distance = validate.reaches_end(model)
    P, A = model.transition, model.num_actions
    row = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    nearer = np.bincount(row, P.data * (distance[P.indices] < distance[row // A]), minlength=P.shape[0])
    return np.where(model.discount < 1, 2.0, nearer.reshape(model.reward.shape)).argmax(axis=1)


def check_policy(policy: Any, states: int, num_actions: int) -> Policy:
    actions = np.asarray(policy)
    if actions.shape != (states,) or actions.dtype.kind not in "iu":
        raise ValueError(
            f"policy has shape {actions.shape} and dtype {checks.one_line(actions.dtype)}: "
            f"give {states} whole numbers, one action per state"
        )
    if np.any((actions < 0) | (actions >= num_actions)):
        state = int(np.argmax((actions < 0) | (actions >= num_actions)))
        raise ValueError(f"policy takes action {actions[state]} in state {state}: give 0 to {num_actions - 1}")
    return actions


def check_prior(prior: Any, policies: int) -> np.ndarray:
    weights = validate.numbers("policy_prior", prior)
    checks.shares("policy_prior", weights, policies)
    return weights
