"""What can be set of a run, what it means, and what it is in a preset."""

from __future__ import annotations

import dataclasses
from typing import Any

from highway_rl.deep.dqn import DQN
from highway_rl.deep.schedule import Schedule
from highway_rl.runs.config import SHORT
from highway_rl.runs.presets import PRESETS

MEANING = {
    "k": "networks, of whose values the smallest counts (num_networks)",
    "learning_rate": "step size of the optimiser",
    "optimizer": "rmsprop (the centred one), adam, adamw, radam, lion, sgd, or a registered one",
    "network": "auto (by the observation), calm, level, uniform, minatar, nature, mlp, dueling-…, or a registered one",
    "batch_size": "steps of the store that one update learns from",
    "loss": "huber or squared",
    "max_gradient": "largest norm of a gradient",
    "discount": "what a reward one step later is worth; by default the task's",
    "bootstrap": "what a return ends in: greedy (max Q) or epsilon-greedy (the mean under that policy)",
    "capacity": "steps in the store",
    "start": "steps before the first update, all random",
    "refresh": "steps between two refreshes of the targets",
    "updates_per_step": "updates for each step of an environment",
    "num_envs": "environments that step together; steps are counted over all of them",
    "epsilon_start": "share of random actions at first",
    "epsilon_end": "share of random actions at last",
    "epsilon_steps": "steps from the one to the other",
    "hold": "steps for which a random action is held on average, while all are random; fewer as they get fewer",
    "average": "refreshes over which the networks that training leaves are averaged; 0: the last ones",
    "rescale": "whether values are counted in units of large late rewards",
    "normalize": "whether real numbers of observations are brought to mean 0, deviation 1",
    "chooser": "who says which return is paid: sample (the paper), learned or grouped",
    "confidence": "standard errors by which the chooser grouped has to be sure",
    "caution": "how often the chooser grouped takes off what luck adds to the largest value",
    "optimism": "rows that a return counts for in its own average (chooser grouped)",
    "num_policies": "behavioural policies whose returns are told apart; the best one counts",
    "policy_is": "what a behavioural policy is: what acted between two refreshes (refresh), or in one episode",
}
"""By name, in the order in which people need them."""


def value(name: str, preset: str) -> str:
    """What a setting is in a preset, as text."""
    name = SHORT.get(name, name)
    chosen: dict[str, Any] = {f.name: f.default for cls in (DQN, Schedule) for f in dataclasses.fields(cls)}
    chosen |= {"bootstrap": "greedy", "network": "auto", "optimizer": "rmsprop", "discount": "the task's"}
    found = (chosen | PRESETS[preset])[name]
    if isinstance(found, bool):
        return "true" if found else "false"
    return found if isinstance(found, str) else f"{found:,.7g}"


def table() -> list[tuple[str, ...]]:
    """Name, what it is in the presets `paper` and `general`, what it means."""
    return [(name, value(name, "paper"), value(name, "general"), meaning) for name, meaning in MEANING.items()]
