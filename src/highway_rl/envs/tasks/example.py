"""The paper's illustrative MDP as a task to learn from steps: a low reward on one branch hides a high one behind it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from highway_rl import checks
from highway_rl.envs.tasks.delayed import STATE, one_hot, prefers
from highway_rl.types import DiscreteEnv, Spec, Step

GO, LEAVE = 0, 1
ON, ORANGE, LEFT = range(3)


def example_walk(*, delay: int = 10, lower: float = 6.0) -> DiscreteEnv:
    """`envs.make("example")` step by step: three times GO pays 9 at the last of `delay` steps.

        LEAVE at the first step    `lower` at once
        LEAVE at the second        −9 at once
        LEAVE at the third         3 at the last step

    From then on actions change nothing. The state is (time, which branch); who has left waits for the end, so that
    every episode has `delay` steps. With 10 of them it is the paper's. Nothing in it is chance.
    """
    delay = checks.whole("delay", delay, 4, 10_000)
    lower = checks.between("lower", lower, 3, 9)
    end = 3 * delay

    def reset(key: PRNGKeyArray) -> tuple[Any, Any]:
        return jnp.int32(ON), jnp.int32(ON)

    def step(state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray) -> Step:
        time, branch = state // 3, state % 3
        leaves = (branch == ON) & (action == LEAVE) & (time < 3)
        at_once = jnp.where(leaves & (time == 0), lower, 0.0) - jnp.where(leaves & (time == 1), 9.0, 0.0)
        branch = jnp.where(leaves, jnp.where(time == 2, ORANGE, LEFT), branch)
        last = time == delay - 1
        paid = jnp.where(last, jnp.asarray([9.0, 3.0, 0.0])[branch], 0.0)
        state = jnp.where(last, end, 3 * (time + 1) + branch).astype(jnp.int32)
        return Step(state, state, (at_once + paid).astype(float), last, jnp.zeros_like(last))

    def features(state: Int[Array, ""]) -> Float[Array, "f"]:
        here = jnp.concatenate([(state // 3)[None].astype(float) / delay, one_hot(state % 3, 3)])
        return jnp.where(state == end, 0.0, here)

    return DiscreteEnv(
        Spec("example-walk", STATE, 2, horizon=delay),
        reset,
        step,
        num_states=end + 1,
        clocked=True,
        solved=lambda q: prefers(q, 0, GO) & prefers(q, 3, GO) & prefers(q, 6, GO),
        on_track=lambda states, actions: (actions[:3] == GO).all(),
        features=features,
    )
