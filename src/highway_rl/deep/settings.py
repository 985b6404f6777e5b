"""What the deep agent and its schedule refuse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax

from highway_rl import checks
from highway_rl.core.targets import TargetRule
from highway_rl.types import Spec

if TYPE_CHECKING:
    from highway_rl.deep.dqn import DQN
    from highway_rl.deep.schedule import Schedule

MOST_ROWS = 2**31 - 2
"""Rows of a store are counted in 32 bits."""


def check_agent(agent: DQN) -> None:
    for name in ("discount", "epsilon_start", "epsilon_end"):
        checks.unit_interval(name, getattr(agent, name))
    checks.positive("epsilon_steps", agent.epsilon_steps)
    checks.positive("learning_rate", agent.learning_rate)
    checks.numbers("max_gradient", agent.max_gradient, lambda x: x > 0, "> 0")
    for name in ("num_networks", "batch_size", "num_policies"):
        checks.whole(name, getattr(agent, name), 1)
    checks.whole("average", agent.average, 0)
    for name in ("normalize", "rescale"):
        if not isinstance(getattr(agent, name), bool):
            raise checks.refusal(name, getattr(agent, name), "true or false")
    checks.choice("chooser", agent.chooser, ("sample", "learned", "grouped"))
    most = math.inf if agent.chooser == "grouped" else 0.0
    wanted = "that is finite" if most else "equal to 0, or chooser=grouped, which knows how sure it is"
    checks.numbers("confidence", agent.confidence, lambda x: (x == 0) | (abs(x) < most), wanted)
    wanted = "that is finite and at least 0" if most else "equal to 0, or chooser=grouped, which knows what is luck"
    for name in ("caution", "optimism"):
        checks.numbers(name, getattr(agent, name), lambda x: (x == 0) | ((x > 0) & (x < most)), wanted)
    checks.choice("loss", agent.loss, ("huber", "squared"))
    if not agent.rules:
        raise ValueError("rule is an empty tuple: give at least one target rule")
    for rule in agent.rules:
        if not isinstance(rule, TargetRule):
            raise checks.refusal("rule", rule, "a TargetRule, such as highway_rl.soft_highway(), or a tuple of them")
    count = len(agent.rules)
    checks.numbers(
        "which", agent.which, lambda x: (x >= 0) & (x < count), f"from 0 to {count - 1}, the rule that counts"
    )
    if not callable(agent.network):
        raise checks.refusal("network", agent.network, "a function of (spec, key) that makes one")
    if not callable(agent.optimizer):
        raise checks.refusal("optimizer", agent.optimizer, "a function that makes an Optax optimiser of step size one")
    if agent.num_policies > 1 and any(rule.trace is not None for rule in agent.rules):
        raise checks.refusal("num_policies", agent.num_policies, "1: rules with a trace follow one path")


def check_spec(spec: Spec) -> None:
    """Actions are finite, and observations arrays."""
    checks.whole(f"{spec.name}: num_actions", spec.num_actions, 1)
    if not jax.tree.leaves(spec.observation):
        raise checks.refusal(f"{spec.name}: observation", spec.observation, "shape and type of at least one array")


def check_schedule(schedule: Schedule) -> None:
    for name in ("capacity", "refresh", "num_envs"):
        checks.whole(name, getattr(schedule, name), 1)
    checks.whole("capacity", schedule.capacity, 1, MOST_ROWS)
    checks.whole("start", schedule.start, 0)
    checks.whole("steps", schedule.steps, 1)
    checks.positive("updates_per_step", schedule.updates_per_step)
    checks.choice("policy_is", schedule.policy_is, ("refresh", "episode"))
    checks.number("hold", schedule.hold, 1)
    period = schedule.refresh
    if schedule.capacity < period:
        raise checks.refusal("capacity", schedule.capacity, f"at least the steps between refreshes, refresh={period}")
    for name in ("refresh", "capacity"):
        if getattr(schedule, name) % schedule.num_envs:
            near = -(-getattr(schedule, name) // schedule.num_envs) * schedule.num_envs
            wanted = f"a multiple of num_envs={schedule.num_envs}, such as {near}"
            raise checks.refusal(name, getattr(schedule, name), wanted)
    if schedule.steps % period:
        near = -(-schedule.steps // period) * period
        raise checks.refusal(
            "steps",
            schedule.steps,
            f"a multiple of refresh={period}, such as {near}, or a refresh that divides it (--setting refresh=…)",
        )
    updates = schedule.num_envs * schedule.updates_per_step
    if abs(updates - round(updates)) > 1e-9 or updates < 1:
        wanted = f"a number that times num_envs={schedule.num_envs} is whole and >= 1"
        raise checks.refusal("updates_per_step", schedule.updates_per_step, wanted)
    if schedule.start < period:
        raise checks.refusal("start", schedule.start, f"at least the steps between refreshes, refresh={period}")


def check_run(agent: DQN, schedule: Schedule) -> None:
    """What only the two together can get wrong."""
    if schedule.capacity < agent.batch_size:
        raise checks.refusal("capacity", schedule.capacity, f"at least the batch, batch_size={agent.batch_size}")
