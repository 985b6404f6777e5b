"""Markov decision processes as tables: a padded form for devices, a sparse form for millions of states.

    reward[s,a] = 𝔼[r | s,a]          P(s' | s,a)          discount[s,a] ∈ [0,1]

`MDP` holds the K successors of each (s,a) in rectangular arrays and is a JAX pytree, so a batch of worlds is
a `vmap`. `SparseMDP` holds one CSR row per (s,a) on the host, which is what the solvers read. An *absorbing*
state is one whose actions all lead back to it with reward 0; with discount 1 every state must be able to
reach one.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.sparse.csgraph import dijkstra

from highway_rl import checks
from highway_rl.mdp import validate
from highway_rl.types import AnyArray, record

if TYPE_CHECKING:
    import gymnasium


@record
class MDP:
    """K padded successors per state and action; padding has probability 0."""

    reward: Float[AnyArray, "*w s a"]
    successor: Int[AnyArray, "*w s a k"]
    probability: Float[AnyArray, "*w s a k"]
    discount: Float[AnyArray, "*w s a"]

    @property
    def num_states(self) -> int:
        return self.reward.shape[-2]

    @property
    def num_actions(self) -> int:
        return self.reward.shape[-1]

    @staticmethod
    def from_table(reward: Any, successor: Any, probability: Any, discount: Any, *, check: bool = True) -> MDP:
        """From the padded arrays themselves, `reward[s,a]`, `successor[s,a,k]`, `probability[s,a,k]`."""
        reward = validate.numbers("reward", reward, 2)
        probability = validate.numbers("probability", probability, 3)
        successor = validate.numbers("successor", successor, 3)
        validate.same_shape("successor", successor, "probability", probability)
        validate.same_shape("reward", reward, "probability[..., 0]", probability[..., 0])
        discount = validate.discounts(discount, reward.shape)
        if check:
            validate.successors(successor, reward.shape[0])
            rows = np.repeat(np.arange(reward.size), probability.shape[-1])
            validate.not_negative(rows, successor.ravel(), probability.ravel(), reward.shape[1])
        mdp = MDP(reward.copy(), successor.astype(np.int32), probability.copy(), discount)
        if check:
            validate.model(mdp.sparse())
        return mdp

    @staticmethod
    def from_dense(P: Any, R: Any, discount: Any, *, check: bool = True) -> MDP:
        """From `P[s,a,s']` and `R[s]`, `R[s,a]` or `R[s,a,s']`.

        >>> MDP.from_dense([[[0.0, 1.0]], [[0.0, 1.0]]], [[1.0], [0.0]], 0.9).num_states
        2
        """
        P = validate.numbers("P", P, 3)
        S, A, last = P.shape
        if last != S:
            raise checks.wrong_shape("P", P, "[states, actions, states]")
        if check:
            validate.not_nan("P", P)
        R = validate.rewards(R, S, A, P)
        return _sparse(sp.csr_array(P.reshape(S * A, S)), R, discount, check).padded()

    @staticmethod
    @validate.QUIET
    def from_scipy(P: Any, R: Any, discount: Any, *, check: bool = True) -> SparseMDP:
        """From a list of sparse `P[a][s,s']`, one per action, or one matrix of rows (s,a) in state-major order.

        `R` is `R[s]`, `R[s,a]`, or sparse in the same form as `P`. Stays sparse: see `SparseMDP`.
        """
        rows = _state_major("P", P)
        S, A = rows.shape[1], rows.shape[0] // rows.shape[1]
        if sp.issparse(R) or (isinstance(R, list | tuple) and any(sp.issparse(r) for r in R)):
            paid = _state_major("R", R)
            validate.same_shape("R as rows (s,a)", paid, "P", rows)
            R = (rows * paid).sum(axis=1).reshape(S, A)
        return _sparse(rows, validate.rewards(R, S, A), discount, check)

    @staticmethod
    @validate.QUIET
    def from_gymnasium(env: gymnasium.Env | str, discount: Any, *, check: bool = True) -> MDP:
        """From a toy-text environment's own table `P` (FrozenLake, Taxi, CliffWalking, …), or its id.

        A state entered with `terminated` becomes absorbing. Should an episode also be able to pass through
        it, the terminal outcomes lead to one extra absorbing state, the last, instead.
        """
        (row, column, probability, reward, done), S, A, initial = validate.gymnasium_table(env)
        if check:
            validate.not_negative(row, column, probability, A)
        reward = np.where(probability == 0, 0.0, reward)
        ends = np.unique(column[done])
        if np.isin(ends, _reachable(row[~done] // A, column[~done], initial, S)).any():
            column, ends, S = np.where(done, S, column), np.array([S]), S + 1
        alive = ~np.isin(row // A, ends)
        R = np.zeros(S * A)
        np.add.at(R, row[alive], (probability * reward)[alive])
        end_rows = (ends[:, None] * A + np.arange(A)).ravel()
        row = np.concatenate([row[alive], end_rows])
        column = np.concatenate([column[alive], np.repeat(ends, A)])
        probability = np.concatenate([probability[alive], np.ones(len(end_rows))])
        P = sp.csr_array((probability, (row, column)), shape=(S * A, S))
        return _sparse(P, R.reshape(S, A), discount, check).padded()

    def padded(self) -> MDP:
        return self

    def sparse(self) -> SparseMDP:
        S, A, K = self.successor.shape
        live = np.asarray(self.probability).ravel() != 0
        rows = np.repeat(np.arange(S * A), K)[live]
        columns = np.asarray(self.successor).ravel()[live]
        P = sp.csr_array((np.asarray(self.probability, np.float64).ravel()[live], (rows, columns)), shape=(S * A, S))
        return SparseMDP(np.asarray(self.reward, np.float64), P, np.asarray(self.discount, np.float64))


@dataclasses.dataclass(frozen=True)
class SparseMDP:
    """One CSR row P(· | s,a) per state-action pair, row s·A + a; float64 on the host."""

    reward: Float[np.ndarray, "s a"]
    transition: sp.csr_array
    discount: Float[np.ndarray, "s a"]

    @property
    def num_states(self) -> int:
        return self.reward.shape[0]

    @property
    def num_actions(self) -> int:
        return self.reward.shape[1]

    def sparse(self) -> SparseMDP:
        return self

    def padded(self) -> MDP:
        """The same model in rectangular arrays: as wide as its longest row, so mind rows of uneven length."""
        S, A = self.reward.shape
        count = np.diff(self.transition.indptr)
        K = max(1, int(count.max(initial=0)))
        successor = np.repeat(np.repeat(np.arange(S, dtype=np.int32), A)[:, None], K, axis=1)
        probability = np.zeros((S * A, K))
        slot = np.arange(K) < count[:, None]
        successor[slot] = self.transition.indices
        probability[slot] = self.transition.data
        return MDP(self.reward, successor.reshape(S, A, K), probability.reshape(S, A, K), self.discount)

    def q_values(self, value: Float[np.ndarray, "s"]) -> Float[np.ndarray, "s a"]:
        """r(s,a) + γ Σ P(s'|s,a) V(s'): one read of every row."""
        return self.reward + self.discount * (self.transition @ value).reshape(self.reward.shape)


def _reachable(source: np.ndarray, target: np.ndarray, initial: np.ndarray, states: int) -> np.ndarray:
    graph = sp.csr_array((np.ones(len(source)), (source, target)), shape=(states, states))
    return np.flatnonzero(np.isfinite(dijkstra(graph, indices=initial, unweighted=True, min_only=True)))


def _state_major(name: str, value: Any) -> sp.csr_array:
    """One CSR row per (s,a), from such a matrix or from one [s,s'] matrix per action."""
    if sp.issparse(value):
        rows = validate.sparse_matrix(name, value)
        if rows.shape[0] % rows.shape[1]:
            raise checks.wrong_shape(name, rows, "states x actions rows and states columns")
        return rows
    matrices = validate.matrices(name, value)
    stacked = sp.csr_array(sp.vstack(matrices, format="csr"))  # action-major rows
    return stacked[np.arange(stacked.shape[0]).reshape(len(matrices), -1).T.ravel()]


def _sparse(P: sp.csr_array, R: np.ndarray, discount: Any, check: bool) -> SparseMDP:
    P = sp.csr_array(P, dtype=np.float64, copy=True)  # the caller's matrix stays as it was
    P.sum_duplicates()
    P.eliminate_zeros()
    mdp = SparseMDP(R, P, validate.discounts(discount, R.shape))
    if check:
        validate.model(mdp)
    return mdp
