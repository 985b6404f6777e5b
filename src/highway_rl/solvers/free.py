"""Models that compute their rows instead of storing them.

    step_model(states, actions) → successors [n, k], probabilities [n, k], rewards [n]

is asked for many pairs at once and must answer the same each time. Beside its own needs a solve then takes a few
vectors of one number per state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from highway_rl import checks
from highway_rl.solvers.drift import EPS, Drift, Spread, spread
from highway_rl.solvers.rows import Actions, Value

StepModel = Callable[[np.ndarray, np.ndarray], tuple[Any, Any, Any]]
CHUNK = 2**16
"""Pairs (s,a) that are asked for at once."""


class FreeRows:
    """The rows of a `step_model`, for `highway_solve`; the discount is one number below 1."""

    def __init__(self, step_model: StepModel, states: int, actions: int, discount: float) -> None:
        self.shape = checks.whole("states", states, 1, 2**32 - 1), checks.whole("actions", actions, 1)
        self.step_model, self.discount = step_model, checks.number("discount", discount, 0.0, 1.0)
        self.work = 0
        weight = np.empty(states)
        flattest, largest, longest = 0.0, 0.0, 0
        for first, last in self._parts(actions):
            to, chance, paid = self._ask(np.arange(first, last))
            total = chance.sum(axis=-1)
            if np.any(np.abs(total - 1) > 1e-8):
                s, a = np.argwhere(np.abs(total - 1) > 1e-8)[0]
                raise ValueError(
                    f"step_model's probabilities at state {first + s}, action {a} sum to {total[s, a]:.12g}: "
                    "give probabilities that sum to 1"
                )
            stays = np.all((to == np.arange(first, last)[:, None, None]) | (chance == 0), axis=(1, 2))
            weight[first:last] = ~(stays & np.all(paid == 0, axis=1))
            flattest, largest = max(flattest, float(total.max())), max(largest, float(np.abs(paid).max()))
            longest, self.work = max(longest, chance.shape[-1]), self.work + chance.size
        rounding, least = (longest + 8) * EPS, 1 - self.discount * flattest
        if least <= 4 * rounding:
            raise checks.refusal("discount", discount, "a number below 1 for a model that computes its rows")
        self.alive = weight > 0
        self.drift: Drift | None = Drift(weight, least, 1.0, rounding, largest)

    def _parts(self, per_state: int) -> list[tuple[int, int]]:
        step = max(1, CHUNK // per_state)
        return [(first, min(first + step, self.shape[0])) for first in range(0, self.shape[0], step)]

    def _ask(self, states: np.ndarray, policy: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Successors and probabilities [s, a, k] and rewards [s, a]; one action each under a policy."""
        A = self.shape[1] if policy is None else 1
        actions = np.tile(np.arange(A), len(states)) if policy is None else policy[states]
        to, chance, paid = (np.asarray(x) for x in self.step_model(np.repeat(states, A), actions))
        n = len(states) * A
        if to.ndim != 2 or to.shape != chance.shape or len(to) != n or paid.shape != (n,):
            raise ValueError(
                f"step_model answered with shapes {to.shape}, {chance.shape}, {paid.shape}: "
                f"give ({n}, k), ({n}, k) and ({n},) for {n} pairs"
            )
        if to.size and (to.min() < 0 or to.max() >= self.shape[0]):
            raise ValueError(f"step_model leads to state {to.max()}: give 0 to {self.shape[0] - 1}")
        if not (np.all(np.isfinite(paid)) and np.all(chance >= 0)):
            raise ValueError("step_model gave rewards or probabilities that cannot be: give finite ones, not below 0")
        return to.reshape(len(states), A, -1), chance.reshape(len(states), A, -1), paid.reshape(-1, A)

    def backup(self, x: Value, out: Value) -> tuple[Spread, Actions]:
        policy = np.empty(self.shape[0], np.int32)
        for first, last in self._parts(self.shape[1]):
            to, chance, paid = self._ask(np.arange(first, last))
            q = paid + self.discount * np.einsum("sak,sak->sa", chance, x[to])
            policy[first:last], out[first:last] = q.argmax(axis=1), q.max(axis=1)
        return spread(x, out, self.alive), policy

    def under(self, policy: Actions) -> FreePolicy:
        return FreePolicy(self, policy)


class FreePolicy:
    """The rows of one policy, computed at each sweep."""

    def __init__(self, rows: FreeRows, policy: Actions) -> None:
        self.rows, self.policy, self.work = rows, policy, rows.work // rows.shape[1]
        self.reward = np.empty(rows.shape[0])
        self.follow(np.zeros(rows.shape[0]), np.empty(rows.shape[0]))

    def sweep(self, x: Value, out: Value) -> Spread:
        self.follow(x, out)
        out += self.reward
        return spread(x, out, self.rows.alive)

    def follow(self, x: Value, out: Value) -> None:
        for first, last in self.rows._parts(1):
            to, chance, paid = self.rows._ask(np.arange(first, last), self.policy)
            out[first:last] = self.rows.discount * np.einsum("sk,sk->s", chance[:, 0], x[to[:, 0]])
            self.reward[first:last] = paid[:, 0]
