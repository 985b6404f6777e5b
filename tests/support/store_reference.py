"""The targets of one ring by loops written from the equations, row by row, in NumPy and float64."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """A step as the reference sees it; rows that are not real have only an observation."""

    obs: tuple[bool, ...]
    action: int = 0
    reward: float = 0.0
    terminated: bool = False
    behaviour: float = 1.0
    policy: int = 0
    real: bool = True
    born: int = 0


@dataclasses.dataclass(frozen=True)
class Known:
    """What the reference needs to know of an algorithm. `trace`: c(π', π, greedy?) without λ, or "peng"; `bootstrap`:
    "greedy", "shared" where ties are shared, "epsilon-greedy", or "double"."""

    depths: tuple[int, ...] = (1,)
    gate: int | None = None
    alpha: float = 0.0
    policy_alpha: float = 0.0
    weights: tuple[float, ...] | None = None
    trace: Any = None
    lam: float = 1.0
    bootstrap: str = "greedy"


def smax(values, alpha, weights=None):
    """Σ w e^{αx} x / Σ w e^{αx}: the mean at α = 0, the largest at α = ∞."""
    values = np.asarray(values, np.float64)
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    if alpha == math.inf:
        return values[weights > 0].max()
    weights = weights * np.exp(alpha * values)
    return float((weights * values).sum() / weights.sum())


class Reference:
    """One ring: its rows in the order they happened, the last of them the observation to act on next, and the values
    at each: `q` prices actions, `newer_q` chooses them where the bootstrap is double."""

    def __init__(self, rows, q, newer_q, epsilon, discount):
        self.rows, self.q, self.newer_q = rows, q, newer_q
        self.epsilon, self.discount = epsilon, discount
        self.pool = [self]

    def target_policy(self, i, known):
        """π'(·|sᵢ)."""
        q = self.newer_q[i] if known.bootstrap == "double" else self.q[i]
        even = (q == q.max()) / (q == q.max()).sum()
        if known.bootstrap == "shared":
            return even
        if known.bootstrap == "epsilon-greedy":
            return (1 - self.epsilon) * even + self.epsilon / len(q)
        return np.eye(len(q))[q.argmax()]

    def value(self, i, known):
        """V(sᵢ)."""
        return float(self.target_policy(i, known) @ self.q[i])

    def q_taken(self, i):
        return float(self.q[i][self.rows[i].action])

    def ends(self, i):
        """Whether no step follows step i on its path."""
        return self.rows[i].terminated or not self.rows[i + 1].real

    def after(self, i, known):
        """What step i is worth after its reward: nothing if it terminated."""
        return 0.0 if self.rows[i].terminated else self.value(i + 1, known)

    def n_step(self, t, n, known):
        total = 0.0
        for k in itertools.count():
            total += self.discount**k * self.rows[t + k].reward
            if k + 1 == n or self.ends(t + k):
                return total + self.discount ** (k + 1) * self.after(t + k, known)

    def traced(self, t, n, known):
        total, weight = self.q_taken(t), 1.0
        for i in itertools.count(t):
            error = self.rows[i].reward + self.discount * self.after(i, known) - self.q_taken(i)
            total += weight * error
            if i + 1 == t + n or self.ends(i):
                return total
            following = self.rows[i + 1]
            chance = self.target_policy(i + 1, known)[following.action]
            is_greedy = self.q[i + 1][following.action] == self.q[i + 1].max()
            weight *= self.discount * known.lam * known.trace(chance, following.behaviour, is_greedy)

    def peng(self, t, n, known):
        here = self.rows[t].reward
        if n == 1 or self.ends(t):
            return here + self.discount * self.after(t, known)
        later = self.peng(t + 1, n - 1, known)
        return here + self.discount * ((1 - known.lam) * self.value(t + 1, known) + known.lam * later)

    def returns(self, t, known):
        """The return of each depth, and what the gate compares with."""
        find = self.peng if known.trace == "peng" else self.n_step if known.trace is None else self.traced
        found = [find(t, n, known) for n in known.depths]
        return found, self.q_taken(t) if known.gate == 0 else find(t, known.gate, known) if known.gate else None

    def combine(self, found, reference, known):
        gated = found if known.gate is None else [max(x, reference) for x in found]
        return smax(gated, known.alpha, known.weights)

    def target(self, t, known):
        return self.combine(*self.returns(t, known), known)

    def of_policies(self, t, known):
        """What the gate of each policy that met the pair of row t compares, in any ring: averages."""
        met: dict[int, list[Any]] = {}
        for ring in self.pool:
            for i, row in enumerate(ring.rows):
                if row.real and (row.obs, row.action) == (self.rows[t].obs, self.rows[t].action):
                    met.setdefault(row.policy, []).append(ring.returns(i, known))
        for policy, each in met.items():
            mean = [float(np.mean([found[n] for found, _ in each])) for n in range(len(known.depths))]
            yield policy, mean, None if known.gate is None else float(np.mean([r for _, r in each]))

    def by_policy(self, t, known):
        """The value of each policy that met the pair of row t, averages before the gate."""
        return {policy: self.combine(mean, near, known) for policy, mean, near in self.of_policies(t, known)}
