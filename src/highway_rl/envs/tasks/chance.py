"""Late tasks in which chance has a part: wrappers for any environment, and four tasks made with them.

key-door-noisy    Gaussian noise on every reward
key-door-slip     one action in five is another one
harvest-gamble    what is earned is doubled, or lost
lock-later        what is earned is paid after a random time
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from highway_rl import checks
from highway_rl.envs.tasks.late import key_door, lock
from highway_rl.envs.tasks.late_more import harvest
from highway_rl.types import Env, Step, record


@record
class Waiting:
    """An episode that is over underneath, and what is still to be paid."""

    inner: PyTree
    obs: PyTree
    over: Bool[Array, ""]
    owed: Float[Array, ""]


@record
class WaitingObservation:
    """The observation underneath, and whether its episode is over and only the payment is missing."""

    obs: PyTree
    over: Bool[Array, "1"]


def noisy(env: Env, deviation: float = 0.1) -> Env:
    """Every reward with Gaussian noise of this deviation: no policy earns more or less by it, on average."""
    deviation = checks.number("deviation", deviation, 0.0, 1e6)

    def step(state: PyTree, action: Array, key: PRNGKeyArray) -> Step:
        inner, own = jax.random.split(key)
        out = env.step(state, action, inner)
        return dataclasses.replace(out, reward=out.reward + deviation * jax.random.normal(own, dtype=jnp.float32))

    return env.wrapped(name=f"{env.spec.name}-noisy", reset=env.reset, step=step)


def slippery(env: Env, probability: float = 0.2) -> Env:
    """With this probability a step does not take the action chosen but any, each as likely."""
    probability = checks.number("probability", probability, 0.0, 1.0)

    def step(state: PyTree, action: Array, key: PRNGKeyArray) -> Step:
        inner, slips, other = jax.random.split(key, 3)
        any_ = jax.random.randint(other, (), 0, env.spec.num_actions, jnp.int32)
        return env.step(
            state, jnp.where(jax.random.bernoulli(slips, probability), any_, jnp.asarray(action, jnp.int32)), inner
        )

    return env.wrapped(name=f"{env.spec.name}-slip", reset=env.reset, step=step)


def gamble(env: Env) -> Env:
    """Every reward twice or not at all, by a fair coin."""

    def step(state: PyTree, action: Array, key: PRNGKeyArray) -> Step:
        inner, coin = jax.random.split(key)
        out = env.step(state, action, inner)
        return dataclasses.replace(out, reward=out.reward * jnp.where(jax.random.bernoulli(coin), 2.0, 0.0))

    return env.wrapped(name=f"{env.spec.name}-gamble", reset=env.reset, step=step)


def paid_later(env: Env, chance: float = 0.05) -> Env:
    """The last reward, and with it the end, waits: each step pays it with this chance, after 1/chance steps on average.

    Actions while it waits do nothing. The observation gains a bit that says so. An episode is cut underneath as before,
    and then ends at once.
    """
    chance = checks.number("chance", chance, 1e-6, 1.0)

    def reset(key: PRNGKeyArray) -> tuple[Waiting, WaitingObservation]:
        inner, obs = env.reset(key)
        return Waiting(inner, obs, jnp.asarray(False), jnp.float32(0.0)), WaitingObservation(obs, jnp.zeros(1, bool))

    def step(state: Waiting, action: Array, key: PRNGKeyArray) -> Step:
        inside, coin = jax.random.split(key)
        out = env.step(state.inner, action, inside)
        keep = lambda old, new: jnp.where(state.over, old, new)  # noqa: E731
        over = state.over | out.terminated
        pays = over & jax.random.bernoulli(coin, chance)
        owed = keep(state.owed, jnp.where(out.terminated, out.reward, 0.0))
        obs = jax.tree.map(keep, state.obs, out.obs)
        new = Waiting(jax.tree.map(keep, state.inner, out.state), obs, over, owed)
        earned = jnp.where(pays, owed, jnp.where(over, 0.0, out.reward))
        return Step(new, WaitingObservation(obs, over[None]), earned.astype(jnp.float32), pays, ~over & out.truncated)

    shown = WaitingObservation(env.spec.observation, jax.ShapeDtypeStruct((1,), bool))  # type: ignore[arg-type]
    horizon = None if env.spec.horizon is None else env.spec.horizon + int(5 / chance)
    return env.wrapped(name=f"{env.spec.name}-later", observation=shown, horizon=horizon, reset=reset, step=step)


def key_door_noisy(side: int = 6, deviation: float = 0.1) -> Env:
    """Key and door with noise on every reward. Optimal return: 1. Random play: 0.105 by default."""
    return noisy(key_door(side), deviation)


def key_door_slip(side: int = 6, probability: float = 0.2) -> Env:
    """Key and door on slippery ground. Random play: 0.105 by default, as without it."""
    return slippery(key_door(side), probability)


def harvest_gamble(seasons: int = 20) -> Env:
    """Harvests whose price is a coin's. Optimal and random return are those of the harvest."""
    return gamble(harvest(seasons))


def lock_later(digits: int = 3, num_actions: int = 4, wait: int = 1, chance: float = 0.05) -> Env:
    """A lock that pays after a random time. Optimal return: 1. Random play: num_actions^−digits."""
    return paid_later(lock(digits, num_actions, wait), chance)


CHANCE: dict[str, Callable[..., Env]] = {
    "key-door-noisy": key_door_noisy,
    "key-door-slip": key_door_slip,
    "harvest-gamble": harvest_gamble,
    "lock-later": lock_later,
}
