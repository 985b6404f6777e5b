"""Compiled questions about a model's shape: its ends, distances to them, the reach of its moves. Needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from highway_rl.solvers.kernels import NONE, ONE, begin, compiled

FAR = np.uint32(2**32 - 1)


@compiled
def row_facts(start: Any, successor: Any, probability: Any, reward: Any, ends: Any, totals: Any) -> None:
    """Which states are absorbing, and Σ P of each row."""
    actions = np.uint64(reward.shape[1])
    for s in range(np.uint64(reward.shape[0])):
        stays = True
        for a in range(actions):
            total = 0.0
            for i in range(begin(start, s * actions + a), begin(start, s * actions + a + ONE)):
                total += probability[i]
                stays = stays and (successor[i] == s or not probability[i] > 0)
            totals[s, a] = total
            stays = stays and reward[s, a] == 0
        ends[s] = stays


@compiled
def by_distance(start: Any, successor: Any, probability: Any, actions: Any, ends: Any) -> Any:
    """States in the order of a breadth-first search backwards from the ends, as far as it gets; the distances."""
    states, actions = np.uint64(len(ends)), np.uint64(actions)
    into = np.zeros(len(ends) + 2, np.uint64)
    for s in range(states):
        for i in range(begin(start, s * actions), begin(start, (s + ONE) * actions)):
            if probability[i] > 0 and successor[i] != s:
                into[np.uint64(successor[i]) + ONE + ONE] += ONE
    for s in range(states):
        into[s + ONE + ONE] += into[s + ONE]
    source = np.empty(into[states + ONE], np.uint32)
    for s in range(states):
        for i in range(begin(start, s * actions), begin(start, (s + ONE) * actions)):
            if probability[i] > 0 and successor[i] != s:
                place = np.uint64(successor[i]) + ONE
                source[into[place]] = s
                into[place] += ONE
    order, distance = np.empty(states, np.uint32), np.full(states, FAR)
    count, head = NONE, NONE
    for s in range(states):
        if ends[s]:
            order[count], distance[s] = s, 0
            count += ONE
    while head < count:
        t = np.uint64(order[head])
        head += ONE
        for i in range(into[t], into[t + ONE]):
            before = np.uint64(source[i])
            if distance[before] == FAR:
                distance[before] = distance[t] + np.uint32(1)
                order[count] = before
                count += ONE
    return order[:count], distance


@compiled
def nearer(start: Any, successor: Any, probability: Any, actions: Any, distance: Any) -> Any:
    """How many states have an action that comes nearer to an end more likely than not."""
    found, actions = 0, np.uint64(actions)
    for s in range(np.uint64(len(distance))):
        for a in range(actions):
            chance = 0.0
            for i in range(begin(start, s * actions + a), begin(start, s * actions + a + ONE)):
                if distance[successor[i]] < distance[s]:
                    chance += probability[i]
            if chance > 0.5:
                found += 1
                break
    return found


@compiled
def reach(start: Any, successor: Any, probability: Any, actions: Any, states: Any, most: Any) -> Any:
    """The furthest move to a lower state number and to a higher one, up to the first that goes further than `most`."""
    down, up, actions = np.int64(0), np.int64(0), np.uint64(actions)
    for s in range(np.uint64(states)):
        for i in range(begin(start, s * actions), begin(start, (s + ONE) * actions)):
            if probability[i] > 0:
                step: Any = np.int64(successor[i]) - np.int64(s)
                down, up = max(down, -step), max(up, step)
        if max(down, up) > most:
            break
    return down, up


@compiled
def fill_bands(start: Any, successor: Any, probability: Any, discount: Any, weight: Any, up: Any, bands: Any) -> None:
    """I − γP of a policy's rows by diagonals, the highest first, as LAPACK has them; ends are worth nothing."""
    for s in range(np.uint64(len(weight))):
        bands[up, s] += 1.0
        if weight[s] > 0:
            for i in range(begin(start, s), begin(start, s + ONE)):
                if probability[i] > 0:
                    bands[np.int64(up) + np.int64(s) - np.int64(successor[i]), successor[i]] -= (
                        discount * probability[i]
                    )
