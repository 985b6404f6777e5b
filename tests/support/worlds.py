"""Random Markov decision processes, their policies and their exact values: the ground the theorems are tested on.

Everything here is a pure function of a key, so a batch of worlds is a `vmap`. The values are computed from dense
matrices and never through `highway_rl.mdp.operators`, which is what the tests check against them.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.mdp.model import MDP

NUM_WORLDS = int(os.environ.get("WORLDS", "64"))
STATES, ACTIONS, BRANCHES, POLICIES = 7, 3, 4, 3


class World(NamedTuple):
    """One random problem with all that a theorem quantifies over: policies, selection weights, value functions."""

    mdp: MDP
    discount: Any  # [] the one discount of this world
    best: Any  # [s a] Q*
    policies: Any  # [m s a] one random, one deterministic, one that is nearly optimal
    own: Any  # [m s a] Q^π of each
    policy_prior: Any  # [s a m] differs per (s,a)
    depth_weight: Any  # [s a m 4] differs per (s,a) and policy; `depth_prior` cuts it to fewer depths
    q: Any  # [s a] anything
    other: Any  # [s a] anything else
    below: Any  # [s a] ≤ Q*
    draw: Any  # [2048] uniform numbers left over

    def depth_prior(self, depths: tuple[int, ...]) -> Any:
        weight = self.depth_weight[..., : len(depths)]
        return weight / jnp.sum(weight, axis=-1, keepdims=True)


class Draws:
    """Random numbers handed out from one draw: compiling many small draws would cost more than the tests."""

    def __init__(self, numbers: Any) -> None:
        self.numbers, self.used = numbers, 0

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Any:
        start, self.used = self.used, self.used + math.prod(shape)
        assert self.used <= self.numbers.size
        return low + (high - low) * self.numbers[start : self.used].reshape(shape)

    def whole(self, low: int, high: int, *shape: int) -> Any:
        return jnp.floor(self.uniform(*shape, low=low, high=high)).astype(jnp.int32)

    def signed(self, *shape: int) -> Any:
        return self.uniform(*shape, low=-1.0)

    def weights(self, *shape: int, floor: float = 0.05) -> Any:
        """Probabilities over the last axis: evenly spread over the simplex, then kept away from zero."""
        weight = -jnp.log(self.uniform(*shape)) + floor
        return weight / jnp.sum(weight, axis=-1, keepdims=True)

    def mdp(
        self, states: int = STATES, actions: int = ACTIONS, branches: int = BRANCHES, never_entered: int = 0
    ) -> MDP:
        """Two to `branches` successors, rewards of both signs, one discount; the first states are never entered."""
        shape = (states, actions, branches)
        count = self.whole(2, branches + 1, states, actions, 1)
        weight = jnp.where(jnp.arange(branches, dtype=jnp.int32) < count, self.uniform(*shape, low=0.05), 0.0)
        probability = weight / jnp.sum(weight, axis=-1, keepdims=True)
        reward = self.signed(states, actions) * self.uniform(low=0.5, high=5.0)
        discount = jnp.broadcast_to(self.uniform(low=0.5, high=0.97), reward.shape)
        return MDP(reward, self.whole(never_entered, states, *shape), probability, discount)

    def policy(self, states: int = STATES, actions: int = ACTIONS) -> Any:
        """Every action with some probability, [s a]."""
        return self.weights(states, actions)

    def actions(self, states: int = STATES, actions: int = ACTIONS) -> Any:
        """A deterministic policy as probabilities, [s a]."""
        return jax.nn.one_hot(self.whole(0, actions, states), actions, dtype=float)


def dense(mdp: MDP) -> Any:
    """P[s, a, s'] with repeated successors added up."""
    return jnp.einsum("sak,sakt->sat", mdp.probability, jax.nn.one_hot(mdp.successor, mdp.num_states, dtype=float))


def values_of(mdp: MDP, policy: Any) -> Any:
    """Q^π = r + γPV with V^π from the linear system (I − γP^π)V = r^π, [s a]."""
    P = dense(mdp) * mdp.discount[..., None]
    forward = jnp.einsum("sa,sat->st", policy, P)
    v = jnp.linalg.solve(jnp.eye(mdp.num_states) - forward, jnp.sum(policy * mdp.reward, axis=-1))
    return mdp.reward + jnp.sum(P * v, axis=-1)


def one_step_value(mdp: MDP, q: Any) -> Any:
    """𝓑Q = r + γP max Q, [s a]."""
    return mdp.reward + mdp.discount * jnp.sum(dense(mdp) * jnp.max(q, axis=-1), axis=-1)


def policy_value(mdp: MDP, policy: Any, q: Any) -> Any:
    """𝓑^πQ = r + γP ΣπQ, [s a]. `policy` may be any weights over actions."""
    return mdp.reward + mdp.discount * jnp.sum(dense(mdp) * jnp.sum(policy * q, axis=-1), axis=-1)


def n_step_value(mdp: MDP, policy: Any, q: Any, n: int) -> Any:
    """(𝓑^π)ⁿ⁻¹𝓑Q, [s a]."""
    value = one_step_value(mdp, q)
    for _ in range(n - 1):
        value = policy_value(mdp, policy, value)
    return value


def optimal_values(mdp: MDP) -> Any:
    """Q* by policy iteration from the policy greedy for the reward, [s a]; 30 rounds are many for a few states."""
    return jax.lax.fori_loop(0, 30, lambda _, q: values_of(mdp, acting_best(q)), mdp.reward)


def acting_best(q: Any) -> Any:
    """The policy that takes a best action under `q`, [s a]."""
    return jax.nn.one_hot(jnp.argmax(q, axis=-1), q.shape[-1], dtype=float)


def random_world(key: Any, never_entered: int = 0) -> World:
    numbers = jax.random.uniform(key, (4096,), minval=1e-9)
    draw = Draws(numbers[:2048])
    mdp = draw.mdp(never_entered=never_entered)
    best = optimal_values(mdp)
    nearly = 0.9 * acting_best(best) + 0.1 * draw.policy()
    scale = 10.0 ** draw.uniform(low=-2.0, high=2.0)
    policies = jnp.stack([draw.policy(), draw.actions(), nearly])
    return World(
        mdp=mdp,
        discount=mdp.discount[0, 0],
        best=best,
        policies=policies,
        own=jax.vmap(lambda policy: values_of(mdp, policy))(policies),
        policy_prior=draw.weights(*best.shape, POLICIES),
        depth_weight=draw.weights(*best.shape, POLICIES, 4),
        q=best + scale * draw.signed(*best.shape),
        other=best + scale * draw.signed(*best.shape),
        below=best - scale * draw.uniform(*best.shape) ** 2,
        draw=numbers[2048:],
    )


@functools.cache
def random_worlds(never_entered: int = 0, seed: int = 0) -> World:
    """`NUM_WORLDS` of them, stacked along the first axis."""
    keys = jax.random.split(jax.random.key(seed), NUM_WORLDS)
    return jax.jit(jax.vmap(lambda key: random_world(key, never_entered)))(keys)


def norm(x: Any) -> Any:
    """The sup norm."""
    return jnp.max(jnp.abs(x))


def path(rng: np.random.Generator, steps: int, actions: int = 3) -> dict[str, np.ndarray]:
    """A random sampled path as arrays: several episodes in a row, some terminated, some cut, the last left open.

    `next_q` is `q` of the next row, except where the path is cut and the successor is a state of its own.
    """
    terminated, cut = rng.random(steps) < 0.12, rng.random(steps) < 0.08
    last = terminated | cut
    q = rng.normal(size=(steps, actions))
    alone = last | (np.arange(steps) == steps - 1)
    return {
        "action": rng.integers(actions, size=steps),
        "reward": rng.normal(size=steps),
        "discount": np.where(terminated, 0.0, 0.9),
        "last": last,
        "behaviour": rng.uniform(0.2, 1.0, steps),
        "q": q,
        "next_q": np.where(alone[:, None], rng.normal(size=(steps, actions)), np.roll(q, -1, axis=0)),
    }
