"""What the deep agent and its schedule refuse, and the sentence they refuse it with."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from highway_rl import checks
from highway_rl.core.bootstrap import Greedy


def check_agent(agent: Any) -> None:
    for name in ("discount", "epsilon_start", "epsilon_end"):
        checks.unit_interval(name, getattr(agent, name))
    _above("epsilon_steps", agent.epsilon_steps)
    _above("learning_rate", agent.learning_rate)
    checks.numbers("max_gradient", agent.max_gradient, lambda x: x > 0, "> 0")
    for name in ("num_networks", "batch_size", "num_policies"):
        checks.whole(name, getattr(agent, name), 1)
    _among("bootstrap", agent.bootstrap, "greedy", "epsilon-greedy", "double")
    _among("loss", agent.loss, "huber", "squared")
    _among("policy_is", agent.policy_is, "refresh", "episode")
    if not agent.rules:
        raise ValueError("rule is an empty tuple: give at least one target rule")
    count = len(agent.rules)
    checks.numbers(
        "which", agent.which, lambda x: (x >= 0) & (x < count), f"from 0 to {count - 1}, the rule that counts"
    )
    if not callable(agent.network):
        raise ValueError(f"network={agent.network!r}: give a function of (env, key) that makes one")
    if not callable(agent.optimizer):
        raise ValueError(
            f"optimizer={agent.optimizer!r}: give a function that makes an optax optimiser of step size one"
        )
    if agent.bootstrap != "greedy" and not all(isinstance(rule.bootstrap, Greedy) for rule in agent.rules):
        raise ValueError(f"bootstrap={agent.bootstrap!r}: one of the rules has a bootstrap of its own; use 'greedy'")
    if agent.num_policies > 1 and any(rule.trace is not None for rule in agent.rules):
        raise ValueError(f"num_policies={agent.num_policies}: rules with a trace follow one path; use num_policies=1")


def check_env(env: Any) -> None:
    """Actions are finite, and observations arrays."""
    checks.whole(f"{env.name}: num_actions", env.num_actions, 1)
    if not jax.tree.leaves(env.observation):
        raise ValueError(f"{env.name}: observation={env.observation!r}: give the shape and type of at least one array")


def check_schedule(schedule: Any) -> None:
    for name in ("capacity", "refresh", "num_envs"):
        checks.whole(name, getattr(schedule, name), 1)
    checks.whole("start", schedule.start, 0)
    checks.whole("steps", schedule.steps, 1)
    _above("updates_per_step", schedule.updates_per_step)
    if schedule.capacity < schedule.refresh:
        raise ValueError(
            f"capacity={schedule.capacity}: the store must hold at least one refresh period, {schedule.refresh} steps"
        )
    for name in ("refresh", "capacity"):
        if getattr(schedule, name) % schedule.num_envs:
            raise ValueError(f"{name}={getattr(schedule, name)}: it must be a multiple of num_envs={schedule.num_envs}")
    if schedule.steps % schedule.refresh:
        raise ValueError(f"steps={schedule.steps}: it must be a multiple of refresh={schedule.refresh}")
    updates = schedule.num_envs * schedule.updates_per_step
    if abs(updates - round(updates)) > 1e-9 or updates < 1:
        raise ValueError(
            f"updates_per_step={schedule.updates_per_step}: times num_envs={schedule.num_envs} it must be whole, >= 1"
        )
    if schedule.start < schedule.refresh:
        raise ValueError(
            f"start={schedule.start}: learning can begin after the first refresh, {schedule.refresh} steps"
        )


def check_run(agent: Any, schedule: Any) -> None:
    """What only the two together can get wrong."""
    if schedule.capacity < agent.batch_size:
        raise ValueError(f"capacity={schedule.capacity}: it must be at least the batch, {agent.batch_size}")


def _above(name: str, value: Any) -> None:
    checks.numbers(name, value, lambda x: (x > 0) & (x < np.inf), "> 0 and < inf")


def _among(name: str, value: Any, *allowed: str) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: choose from {', '.join(allowed)}")
