"""Models to and from the layouts of other packages: QuantEcon's DiscreteDP and pymdptoolbox's P, R.

    QuantEcon       R[s,a], Q[s,a,s'], beta; or pairs: R[i], Q[i,s'], beta, s_indices[i], a_indices[i]
    pymdptoolbox    P[a][s,s'], R[s], R[s,a] or R[a][s,s'], one discount

A `Solution`'s `value` and `policy` are arrays over states, as both packages have them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from highway_rl import checks
from highway_rl.mdp import validate
from highway_rl.mdp.model import MDP, SparseMDP


class Pairs(NamedTuple):
    """What `DiscreteDP(*pairs)` takes: one entry per state-action pair."""

    R: np.ndarray
    Q: sp.csr_matrix
    beta: float
    s_indices: np.ndarray
    a_indices: np.ndarray


def from_quantecon(ddp: Any) -> SparseMDP:
    """The model of a `DiscreteDP` in either of its layouts.

    An action that a state does not have (reward −∞, or no such pair) becomes one that it has: V* and the best
    policy's value stay the same.
    """
    for name in ("R", "Q", "beta"):
        if not hasattr(ddp, name):
            raise ValueError(f"ddp has no {name}: give a quantecon DiscreteDP, or build with MDP.from_scipy")
    R, Q = np.asarray(ddp.R, np.float64), ddp.Q
    if R.ndim == 2:
        S, A = R.shape
        rows = np.arange(S * A).reshape(S, A)
        Q, R = sp.csr_array(Q.reshape(S * A, S) if not sp.issparse(Q) else Q), R.ravel()
    else:
        S, A = Q.shape[1], int(np.max(ddp.a_indices)) + 1
        rows = np.full((S, A), -1)
        rows[ddp.s_indices, ddp.a_indices] = np.arange(len(R))
        Q = sp.csr_array(Q)
    missing = (rows < 0) | ~np.isfinite(R)[rows]
    if missing.all(axis=1).any():
        raise ValueError(f"state {int(np.argmax(missing.all(axis=1)))} has no action: give each state one at least")
    first = rows[np.arange(S), missing.argmin(axis=1)]
    chosen = np.where(missing, first[:, None], rows).ravel()
    return MDP.from_scipy(Q[chosen], R[chosen].reshape(S, A), float(ddp.beta))


def to_quantecon(mdp: MDP | SparseMDP) -> Pairs:
    """The same model for `DiscreteDP(*to_quantecon(mdp))`."""
    model = mdp.sparse()
    S, A = model.reward.shape
    return Pairs(
        model.reward.ravel(),
        sp.csr_matrix(model.transition),
        _one_discount(model),
        np.repeat(np.arange(S), A),
        np.tile(np.arange(A), S),
    )


def from_mdptoolbox(P: Any, R: Any, discount: float) -> MDP | SparseMDP:
    """From P[a][s,s'] and R[s], R[s,a] or R[a][s,s'], dense or one sparse matrix per action."""
    if any(sp.issparse(p) for p in P):
        by_action = isinstance(R, list | tuple) and any(sp.issparse(r) for r in R)
        return MDP.from_scipy(list(P), list(R) if by_action else R, discount)
    P, R = validate.numbers("P", P, 3), validate.numbers("R", R)
    return MDP.from_dense(P.transpose(1, 0, 2), R.transpose(1, 0, 2) if R.ndim == 3 else R, discount)


def to_mdptoolbox(mdp: MDP | SparseMDP) -> tuple[list[sp.csr_matrix], np.ndarray, float]:
    """P, R and the discount for any solver of `mdptoolbox.mdp`."""
    model = mdp.sparse()
    A = model.num_actions
    return [sp.csr_matrix(model.transition[a::A]) for a in range(A)], model.reward, _one_discount(model)


def _one_discount(model: SparseMDP) -> float:
    first = float(model.discount.flat[0])
    if np.any(model.discount != first):
        raise checks.refusal("discount", "one per state and action", "a model with one discount: others know no more")
    return first
