"""What chance decides in a period, drawn when it begins: when to explore, and how."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from highway_rl.deep.agent import Agent
from highway_rl.deep.schedule import Schedule
from highway_rl.types import Spec


class Turn(NamedTuple):
    """The randomness of one turn: a key for each environment, whether it explores, and with which action."""

    key: Key[Array, "*turn env"]
    explores: Bool[Array, "*turn env"]
    action: Int[Array, "*turn env"]


class Drawn(NamedTuple):
    """A period as it begins: its number, all its randomness, the step of each turn, its share of random actions."""

    number: Int[Array, ""]
    turns: Turn
    steps: Int[Array, "turn"]
    epsilon: Float[Array, "turn"]
    keys: Key[Array, "3"]


def draw(spec: Spec, agent: Agent, schedule: Schedule, key: PRNGKeyArray, number: Int[Array, ""]) -> Drawn:
    """What chance decides in a period, but for the batches, which the agent draws at its refresh with `keys`."""
    shape = (schedule.turns, schedule.num_envs)
    keys = jax.random.split(jax.random.fold_in(key, number), 6)
    steps = number * schedule.refresh + schedule.num_envs * jnp.arange(schedule.turns)
    epsilon = jnp.where(steps < schedule.start, 1.0, agent.epsilon(steps))
    explores = jax.random.uniform(keys[1], shape) < epsilon[:, None]
    action = jax.random.randint(keys[2], shape, 0, spec.num_actions)
    if schedule.hold > 1:
        explores, action = held(explores, action, 1 + (schedule.hold - 1) * epsilon, jax.random.fold_in(keys[1], 1))
    turns = Turn(jax.random.split(keys[0], shape), explores, action)
    return Drawn(number, turns, steps, epsilon, keys[3:])


def held(
    explores: Bool[Array, "turn env"], action: Int[Array, "turn env"], mean: Float[Array, "turn"], key: PRNGKeyArray
) -> tuple[Bool[Array, "turn env"], Int[Array, "turn env"]]:
    """What chance said, kept for `mean` turns on average in place of one: at each turn it is asked again with
    probability 1/mean. As many turns explore as before, in fewer and longer stretches, which end with the period."""
    again = jax.random.bernoulli(key, 1 / mean[:, None], explores.shape)
    since = jax.lax.cummax(jnp.where(again, jnp.arange(len(mean))[:, None], 0))
    return jnp.take_along_axis(explores, since, axis=0), jnp.take_along_axis(action, since, axis=0)
