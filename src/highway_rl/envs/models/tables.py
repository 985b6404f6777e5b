"""The plain tables every model generator returns, and the checks of their options."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int, Int32

from highway_rl import checks


class Table(NamedTuple):
    """A finite MDP without its discount: r(s,a) and at most K successors of each state-action.

        P(s' | s, a) = Σₖ probability[s,a,k] · 1{successor[s,a,k] = s'}

    Unused places have probability 0 and name the state itself; a successor may be named twice.
    A state is absorbing (an end) when every action returns to it and pays nothing.
    """

    reward: Float64[np.ndarray, "s a"]
    successor: Int32[np.ndarray, "s a k"]
    probability: Float64[np.ndarray, "s a k"]


def absorbing_states(table: Table) -> Bool[np.ndarray, " s"]:
    """True where every action returns to the state with probability one and reward 0."""
    own = np.arange(len(table.reward))[:, None, None]
    leaves = (table.successor != own) & (table.probability > 0)
    return ~leaves.any((1, 2)) & (table.reward == 0).all(1)


def deterministic_table(reward: Float64[np.ndarray, "s a"], successor: Int[np.ndarray, "s a"]) -> Table:
    """The table of a model with one certain successor per state-action, K = 1."""
    return Table(reward, successor.astype(np.int32)[..., None], np.ones((*successor.shape, 1)))


Outcome = tuple[Float64[np.ndarray, "n a"], Int[np.ndarray, "n a"]]


def reachable_table(
    step: Callable[[Int[np.ndarray, " n"]], Outcome], start: int, num_codes: int
) -> tuple[Table, Int[np.ndarray, " s"]]:
    """The deterministic model of all states that can be reached from `start`, and the code of each.

    `step(codes)` gives the reward and the successor code of every action, for many codes in `range(num_codes)`
    at once. States are numbered in breadth-first order: the start is 0, ties go to the earlier parent and action.
    """
    number = np.full(num_codes, -1, np.int32)
    frontier, count = np.array([start]), 0
    codes, rewards, successors = [], [], []
    while frontier.size:
        number[frontier] = np.arange(count, count + frontier.size)
        count += frontier.size
        reward, successor = step(frontier)
        codes.append(frontier)
        rewards.append(reward)
        successors.append(successor)
        new = successor[number[successor] < 0]
        frontier = new[np.sort(np.unique(new, return_index=True)[1])]
    return deterministic_table(np.concatenate(rewards), number[np.concatenate(successors)]), np.concatenate(codes)


def seeded(seed: object) -> np.random.Generator:
    """A generator of random numbers that depends on the seed only."""
    return np.random.default_rng(checks.whole("seed", seed, 0, 2**63 - 1))


def poisson(mean: float, limit: int) -> Float64[np.ndarray, " d"]:
    """P(D = d | D ≤ limit), d = 0..limit, of a Poisson variable D with the given mean.

    >>> poisson(1.0, 1)
    array([0.5, 0.5])
    """
    count = np.arange(limit + 1)
    log_weight = count * math.log(mean) - np.array([math.lgamma(d + 1.0) for d in count])
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()
