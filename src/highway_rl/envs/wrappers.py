"""Pure wrappers: each takes an environment and returns one, for any environment that is an `Env` of pure functions.

The state of a wrapped environment is a record whose `inner` is the state underneath.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from highway_rl import checks
from highway_rl.envs import keys
from highway_rl.types import Env, Step, record

INNER, OWN = 0, 1
NO_PAYMENT_DUE = 0
FEATURES = ("count", "score", "amount")
"""What an observation may tell of rewards that are withheld."""
SIZES = np.array([1, 10, 100, 1_000], np.float32)
"""Of what may be owed: `amounts` has a number for each."""


@record
class StickyState:
    """The action that was executed last."""

    inner: PyTree
    last_action: Int[Array, ""]


@record
class TimedState:
    """The number of steps taken in this episode."""

    inner: PyTree
    elapsed: Int[Array, ""]


@record
class AutoResetState:
    """The observation to act on next: after an episode's end, the first one of the next episode."""

    inner: PyTree
    obs: PyTree


@record
class DelayedState:
    """Rewards of this episode: how many were not zero, what is still owed, and the steps until the next payment."""

    inner: PyTree
    count: Int[Array, ""]
    owed: Float[Array, ""]
    due: Int[Array, ""]


@record
class DelayedObservation:
    """The observation underneath, and one of `width` places for the count or the score so far, or the amount owed."""

    obs: PyTree
    feature: Bool[Array, "width"] | Float[Array, "1"]


def sticky_actions(env: Env, probability: float) -> Env:
    """With this probability a step repeats the action executed before it; before the first step that is action 0."""
    probability = checks.number("probability", probability, 0, 1)

    def reset(key: PRNGKeyArray) -> tuple[StickyState, PyTree]:
        inner, obs = env.reset(key)
        return StickyState(inner, jnp.asarray(0, jnp.int32)), obs

    def step(state: StickyState, action: Array, key: PRNGKeyArray) -> Step:
        repeats = keys.chance(keys.words(keys.derive(key, OWN))[0], probability)
        action = jnp.where(repeats, state.last_action, jnp.asarray(action, jnp.int32))
        out = env.step(state.inner, action, keys.derive(key, INNER))
        return dataclasses.replace(out, state=StickyState(out.state, action))

    return env.wrapped(name=f"{env.spec.name}-sticky", reset=reset, step=step)


def time_limit(env: Env, steps: int) -> Env:
    """Cuts an episode after so many steps: truncated, not terminated, unless it also terminates there."""
    steps = checks.whole("steps", steps, 1)

    def reset(key: PRNGKeyArray) -> tuple[TimedState, PyTree]:
        inner, obs = env.reset(key)
        return TimedState(inner, jnp.asarray(0, jnp.int32)), obs

    def step(state: TimedState, action: Array, key: PRNGKeyArray) -> Step:
        out = env.step(state.inner, action, key)
        elapsed = state.elapsed + 1
        cut = (elapsed >= steps) & ~out.terminated
        return dataclasses.replace(out, state=TimedState(out.state, elapsed), truncated=out.truncated | cut)

    horizon = min(steps, env.spec.horizon or steps)
    return env.wrapped(name=f"{env.spec.name}-{steps}", horizon=horizon, reset=reset, step=step)


def carry_over(ended: PyTree, fresh: PyTree) -> PyTree:
    """The state that begins the next episode: fresh, except that MinAtar's last action outlives a reset."""
    if isinstance(ended, StickyState):
        fresh = dataclasses.replace(fresh, last_action=ended.last_action)
    if hasattr(ended, "inner"):
        fresh = dataclasses.replace(fresh, inner=carry_over(ended.inner, fresh.inner))
    return fresh


def auto_reset(env: Env) -> Env:
    """Starts the next episode within the step that ends one.

    `Step.obs` stays the true successor, so a final observation is never lost; `Step.state.obs` is the one to act
    on next, and the two differ exactly where an episode ended.
    """

    def reset(key: PRNGKeyArray) -> tuple[AutoResetState, PyTree]:
        inner, obs = env.reset(key)
        return AutoResetState(inner, obs), obs

    def step(state: AutoResetState, action: Array, key: PRNGKeyArray) -> Step:
        out = env.step(state.inner, action, keys.derive(key, INNER))
        fresh, first = env.reset(keys.derive(key, OWN))
        ended = out.terminated | out.truncated
        pick = lambda new, old: jnp.where(ended, new, old)  # noqa: E731
        inner = jax.tree.map(pick, carry_over(out.state, fresh), out.state)
        return dataclasses.replace(out, state=AutoResetState(inner, jax.tree.map(pick, first, out.obs)))

    return env.wrapped(name=f"{env.spec.name}-auto", reset=reset, step=step)


def as_delay(given: Any) -> Any:
    """A delay as it is meant: "end", a number of steps, a range of them; as files and command lines write it, too.

    >>> as_delay("20"), as_delay("1-20"), as_delay([1, 20])
    (20, range(1, 21), range(1, 21))
    """
    if isinstance(given, str) and (found := re.fullmatch(r"(\d+)(?:-(\d+))?", given)):
        given = (int(found[1]), int(found[2])) if found[2] else int(found[1])
    if isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(x, int) for x in given):
        return range(given[0], given[1] + 1)
    return given


def check_delay(until: Any, feature: Any, width: Any, name: str = "until") -> None:
    """Raises an error that names the first argument of a delay that cannot be."""
    checks.whole("width", width, 1)
    checks.choice("feature", feature, FEATURES)
    if isinstance(until, range):
        if not 1 <= len(until) <= 256 or min(until) < 1:
            raise checks.refusal(name, until, "a range of 1 to 256 numbers of steps, all >= 1")
    elif isinstance(until, int) and not isinstance(until, bool):
        checks.whole(name, until, 1)
    elif not (isinstance(until, str) and until == "end"):
        raise checks.refusal(name, until, "'end', a number of steps or a range of them, such as '1-20'")


def amounts(owed: Any) -> Any:
    """What is owed, as numbers between −1 and 1 that a network can add up: x/(c + |x|) for c = 1, 10, 100, 1000.

    Each is nearly straight where |x| is below its c, so that of some every difference can be seen, whatever the size.

    >>> amounts(np.float64(-30)).round(2).tolist()
    [-0.97, -0.75, -0.23, -0.03]
    """
    x = owed[..., None]
    return x / (SIZES + abs(x))


def delay_reward(
    env: Env,
    until: Literal["end"] | int | range = "end",
    *,
    feature: Literal["count", "score", "amount"] = "count",
    width: int = 64,
) -> Env:
    """Withholds rewards and pays their sum later: MinAtar-Delay for any environment.

    until="end"           pays at the end of the episode, terminated or truncated: where all is paid, all ends, so a
                          truncation becomes a termination
    until=20              pays every 20 steps, and at the end
    until=range(1, 21)    after each payment draws the number of steps to the next one, uniformly; and at the end;
                          "1-20" says the same

    The observation gains a one-hot feature, clipped to its last place: the number of non-zero rewards in the episode so
    far ("count") or the score still owed ("score"), which for until="end" is the whole score so far. With the score,
    what a step pays follows from the feature and what the step itself earns; with the count it does so only where every
    reward is 0 or 1. For rewards of any size there is the score as `amounts` ("amount").
    """
    until = as_delay(until)
    check_delay(until, feature, width)

    def next_due(key: PRNGKeyArray) -> Array:
        if isinstance(until, range):
            return until.start + until.step * keys.below(keys.words(key)[0], len(until))
        return jnp.asarray(NO_PAYMENT_DUE if until == "end" else until, jnp.int32)

    def observed(state: DelayedState, obs: PyTree) -> DelayedObservation:
        if feature == "amount":
            return DelayedObservation(obs, amounts(state.owed))
        value = state.count if feature == "count" else state.owed.astype(jnp.int32)
        return DelayedObservation(obs, jnp.arange(width) == jnp.clip(value, 0, width - 1))

    def reset(key: PRNGKeyArray) -> tuple[DelayedState, DelayedObservation]:
        inner, obs = env.reset(keys.derive(key, INNER))
        due = next_due(keys.derive(key, OWN))
        state = DelayedState(inner, jnp.asarray(0, jnp.int32), jnp.asarray(0.0, jnp.float32), due)
        return state, observed(state, obs)

    def step(state: DelayedState, action: Array, key: PRNGKeyArray) -> Step:
        out = env.step(state.inner, action, keys.derive(key, INNER))
        owed = state.owed + out.reward
        pays = out.terminated | out.truncated | (state.due == 1)
        new = DelayedState(
            inner=out.state,
            count=state.count + (out.reward != 0),
            owed=jnp.where(pays, 0.0, owed),
            due=jnp.where(pays, next_due(keys.derive(key, OWN)), state.due - (state.due > 0)),
        )
        # the successor of a last step shows the score that was paid: nothing acts on it, and it tells what happened
        shown = dataclasses.replace(new, owed=owed)
        reward = jnp.where(pays, owed, 0.0)
        if until == "end":
            ended = out.terminated | out.truncated
            out = dataclasses.replace(out, terminated=ended, truncated=jnp.zeros_like(ended))
        return dataclasses.replace(
            out, state=new, obs=observed(shown if until == "end" else new, out.obs), reward=reward
        )

    numbers: Any = jax.ShapeDtypeStruct(SIZES.shape, jnp.float32)
    places: Any = jax.ShapeDtypeStruct((width,), bool)
    shown = DelayedObservation(env.spec.observation, numbers if feature == "amount" else places)
    return env.wrapped(name=f"{env.spec.name}-delay", observation=shown, reset=reset, step=step)


def late_discount(horizon: int | None) -> float:
    """The discount to learn with where rewards come late, if nobody names one: 1 − 0.2/horizon, at least 0.99.

    T rewards of one, paid after T steps, are worth γᵀT at the first one. With this γ one more step is worth at least
    four fifths of what it is without a discount, up to the horizon; with 1 − 1/horizon the last ones are worth nothing.

    >>> late_discount(500), late_discount(10), late_discount(None)
    (0.9996, 0.99, 0.9992)
    """
    return 0.9992 if horizon is None else max(0.99, 1 - 0.2 / horizon)
