"""How agents of Freeway-Delay play, and what they think on the way: values, and the gap of going up.

    gap = Q(s, up) − max of the other actions         share = how often that is above 0

Means are over all steps of play at a place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from highway_rl.deep import dqn
from highway_rl.envs.minatar import COUNT_WIDTHS
from highway_rl.envs.minatar.common import UP
from highway_rl.envs.minatar.freeway import BOTTOM, CHICKEN_X, CLOCK
from highway_rl.envs.wrappers import DelayedObservation
from highway_rl.experiments.base import Row
from highway_rl.types import Env

COUNTS = COUNT_WIDTHS["freeway"]
"""Places for the crossings."""
EVERY = 5
"""Of the crossings made, those at which all rows of the road are looked at; of those told, all that are asked about."""


class Play(NamedTuple):
    """Of each step of some episodes: the chicken's row, the crossings made, the values of all actions, and the largest
    one if as many crossings as each multiple of `EVERY` had been made."""

    row: np.ndarray
    crossings: np.ndarray
    q: np.ndarray
    told: np.ndarray


def bar(places: Bool[Array, "p"]) -> Bool[Array, "p"]:
    """All places up to the last one that is lit."""
    return jnp.cumsum(places[::-1])[::-1] > 0


def player(agent: dqn.DQN, env: Env, bars: bool) -> Callable[[Any, float, PRNGKeyArray], Play]:
    """Plays episodes side by side, one a key, by the networks and the ε it is given. `bars`: the count is shown so."""
    counts = jnp.arange(0, COUNTS, EVERY)[:, None] == jnp.arange(COUNTS)
    counts = jax.vmap(bar)(counts) if bars else counts

    def one(params: Any, epsilon: Array, key: PRNGKeyArray) -> tuple[Array, ...]:
        begin, going = jax.random.split(key)
        state, obs = env.reset(begin)

        def step(carry: tuple[Any, Any], key: PRNGKeyArray) -> tuple[tuple[Any, Any], Any]:
            state, obs = carry
            inner, explores, other = jax.random.split(key, 3)
            many = jax.tree.map(lambda x: jnp.repeat(x[None], 1 + len(counts), axis=0), obs)
            many = DelayedObservation(many.obs, many.feature.at[1:, :COUNTS].set(counts))
            q, *told = dqn.q_values(agent, env.spec, params, many)
            any_ = jax.random.randint(other, (), 0, env.spec.num_actions)
            out = env.step(state, jnp.where(jax.random.bernoulli(explores, epsilon), any_, jnp.argmax(q)), inner)
            count = jnp.max(jnp.where(obs.feature[:COUNTS], jnp.arange(COUNTS), 0))  # the last that is lit
            seen = jnp.argmax(obs.obs[:, CHICKEN_X, 0]), count, q, jnp.max(jnp.stack(told), axis=1)
            return (out.state, out.obs), seen

        return jax.lax.scan(step, (state, obs), jax.random.split(going, CLOCK + 1))[1]

    together = jax.jit(jax.vmap(one, (None, None, 0)))

    def play(params: Any, epsilon: float, episodes: PRNGKeyArray) -> Play:
        found = together(params, jnp.float32(epsilon), episodes)
        return Play(*(np.asarray(x).reshape(-1, *x.shape[2:]) for x in found))

    return play


def _thought(played: Play, here: np.ndarray) -> Row:
    """How many steps there are, their value, the gap, and how often up is the best action."""
    q = played.q[here]
    gap = q[:, UP] - np.delete(q, UP, axis=1).max(axis=1)
    means = {"value": q.max(axis=1).mean(), "gap": gap.mean(), "share": (gap > 0).mean()}
    return {"steps_there": int(here.sum()), **{name: float(x) for name, x in means.items()}}


def at_the_bottom(played: Play) -> list[Row]:
    """By the number of crossings."""
    here = [(int(c), (played.crossings == c) & (played.row == BOTTOM)) for c in np.unique(played.crossings)]
    return [{"count": count, **_thought(played, there)} for count, there in here if there.any()]


def along_the_road(played: Play) -> list[Row]:
    """By the chicken's row, from the top, and the crossings made, every fifth number of them."""
    pairs = sorted({(int(r), int(c)) for r, c in zip(played.row, played.crossings, strict=True) if c % EVERY == 0})
    here = [(r, c, (played.row == r) & (played.crossings == c)) for r, c in pairs]
    return [{"row": row, "made": made, **_thought(played, there)} for row, made, there in here]


def if_told(played: Play) -> list[Row]:
    """The value of the steps at the bottom by a number of crossings that they are told, whatever was made."""
    there = played.row == BOTTOM
    means = played.told[there].mean(axis=0) if there.any() else ()
    return [{"told": EVERY * i, "value": float(x)} for i, x in enumerate(means)]
