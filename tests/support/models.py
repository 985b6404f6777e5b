"""Random and hand-made models that several test files share."""

from __future__ import annotations

import numpy as np

from highway_rl.mdp.model import MDP


def random_mdp(seed: int, *, deterministic: bool = False, discount: object = None, ends: int = 0) -> MDP:
    """Up to 12 states and 4 actions; `ends` absorbing states at the end, reachable from everywhere."""
    rng = np.random.default_rng(seed)
    S, A, K = int(rng.integers(2 + ends, 13)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    P = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            k = 1 if deterministic else min(K, S)
            P[s, a, rng.choice(S, k, replace=False)] = rng.dirichlet(np.ones(k))
    R = rng.normal(size=(S, A)) * rng.choice([0.01, 1.0, 10.0])
    for s in range(S - ends, S):
        P[s], R[s] = np.eye(S)[s], 0.0
    if discount is None:
        discount = rng.choice([0.0, 0.5, 0.9, 0.95])
    elif discount == "per pair":
        discount = rng.choice([0.0, 0.3, 0.9, 0.99], size=(S, A))
    return MDP.from_dense(P / P.sum(-1, keepdims=True), R, discount)


def stopping_mdp(seed: int, *, cost: bool = False) -> MDP:
    """Discount 1. Every action may end (probability ≥ 0.05); with `cost` only one does, but each step costs."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 10)), int(rng.integers(2, 4))
    P = np.zeros((S, A, S))
    P[:, :, :-1] = rng.dirichlet(np.ones(S - 1), size=(S, A))
    leak = np.full((S, A), 0.0 if cost else 0.05) + rng.uniform(size=(S, A)) * (0 if cost else 0.3)
    if cost:
        leak[:, 0] = rng.uniform(0.1, 1.0, size=S)
    P *= 1 - leak[..., None]
    P[:, :, -1] = leak
    R = -rng.uniform(0.5, 2.0, size=(S, A)) if cost else rng.normal(size=(S, A))
    P[-1], R[-1] = np.eye(S)[-1], 0.0
    return MDP.from_dense(P, R, 1.0)


def grid(side: int, discount: float, *, slip: float = 0.0, step_reward: float = 0.0) -> MDP:
    """Four moves on a square; the last cell is the absorbing goal, entered for reward 1. Full of ties."""
    S = side * side
    move = np.zeros((S, 4), int)
    for s in range(S):
        y, x = divmod(s, side)
        targets = [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
        move[s] = [min(max(j, 0), side - 1) * side + min(max(i, 0), side - 1) for j, i in targets]
    P = np.zeros((S, 4, S))
    for a in range(4):
        for b in range(4):
            np.add.at(P[:, a], (np.arange(S), move[:, b]), (1 - slip) * (a == b) + slip / 4)
    R = P[:, :, -1] * 1.0 + step_reward
    P[-1], R[-1] = np.eye(S)[-1], 0.0
    return MDP.from_dense(P, R, discount)


def dense(mdp: MDP) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P[s,a,s'], R[s,a] and discount[s,a] as plain arrays."""
    S, A = mdp.num_states, mdp.num_actions
    return mdp.sparse().transition.toarray().reshape(S, A, S), np.asarray(mdp.reward), np.asarray(mdp.discount)


def precise_value(mdp: MDP, num_iters: int = 100_000) -> np.ndarray:
    """V* to long-double precision: policy iteration in float64, then value iteration in long double."""
    P, R, g = (x.astype(np.longdouble) for x in dense(mdp))
    S = R.shape[0]
    absorbing = (P[np.arange(S), :, np.arange(S)] == 1).all(1) & (R == 0).all(1)
    policy = mdp_policy_towards_end(P, g) if np.any(g == 1) else R.argmax(1)
    v = np.zeros(S, np.longdouble)
    for _ in range(200):
        rows = np.arange(S)
        A = np.eye(S) - (g[rows, policy, None] * P[rows, policy]).astype(float)
        A[absorbing] = np.eye(S)[absorbing]
        v = np.linalg.solve(A, R[rows, policy].astype(float)).astype(np.longdouble)
        for _ in range(3):  # iterative refinement: the residual in long double
            residual = R[rows, policy] + g[rows, policy] * (P[rows, policy] @ v) - v
            residual[absorbing] = -v[absorbing]
            v = v + np.linalg.solve(A, residual.astype(float))
        q = R + g * (P @ v)
        better = q.max(1) > q[rows, policy] + 1e-15 * (1 + np.abs(v).max())
        if not better.any():
            return v
        policy = np.where(better, q.argmax(1), policy)
    raise AssertionError("the reference did not converge")


def mdp_policy_towards_end(P: np.ndarray, g: np.ndarray) -> np.ndarray:
    """For each state the action that moves with most probability towards an end, by breadth-first layers."""
    S = len(P)
    reached = (P[np.arange(S), :, np.arange(S)] == 1).all(1)
    policy = np.zeros(S, int)
    while not reached.all():
        share = np.where(g < 1, 2.0, (P * reached).sum(-1).astype(float))
        new = ~reached & (share.max(1) > 0)
        assert new.any()
        policy[new] = share[new].argmax(1)
        reached = reached | new
    return policy
