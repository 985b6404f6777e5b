"""Highway reinforcement learning: fast, exact credit for rewards that come late.

    solve(mdp)                 plan on a known model, with a certified error
    train(task), load(folder)  train deep agents, and have them again
    sweep(tasks, algos, …)     many training runs, on one machine or many, into a folder
    make(name)                 an environment or model by name
    targets(rule, data, q, …)  the paper's targets for data of your own, with the named rules below
    register_env, …            names for things of your own

What needs much to import is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from highway_rl.core.backup import TO_END, Backup, combine_returns, gate, smax
from highway_rl.core.rules import (
    TargetRule,
    expected_sarsa,
    highway,
    highway_optimality,
    importance_sampling,
    monte_carlo,
    n_step,
    n_step_sarsa,
    peng_q_lambda,
    q_lambda,
    q_learning,
    q_sigma,
    retrace,
    sarsa_lambda,
    soft_highway,
    tree_backup,
    watkins_q_lambda,
)
from highway_rl.core.targets import Trajectory, targets
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.mdp.operators import operator
from highway_rl.solvers import Solution, solve
from highway_rl.version import VERSION

__version__ = VERSION

_LATER = {
    "Config": "runs",
    "TrainedAgent": "runs",
    "fit": "runs",
    "load": "runs",
    "make": "envs",
    "register_algorithm": "deep.algorithms",
    "register_env": "envs",
    "register_network": "deep.networks",
    "register_optimizer": "deep.optimizers",
    "sweep": "runs",
    "train": "runs",
}
"""Name → the room that has it."""

__all__ = [
    "MDP",
    "TO_END",
    "Backup",
    "Config",
    "Solution",
    "SparseMDP",
    "TargetRule",
    "TrainedAgent",
    "Trajectory",
    "combine_returns",
    "expected_sarsa",
    "fit",
    "gate",
    "highway",
    "highway_optimality",
    "importance_sampling",
    "load",
    "make",
    "monte_carlo",
    "n_step",
    "n_step_sarsa",
    "operator",
    "peng_q_lambda",
    "q_lambda",
    "q_learning",
    "q_sigma",
    "register_algorithm",
    "register_env",
    "register_network",
    "register_optimizer",
    "retrace",
    "sarsa_lambda",
    "smax",
    "soft_highway",
    "solve",
    "sweep",
    "targets",
    "train",
    "tree_backup",
    "watkins_q_lambda",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'highway_rl' has no attribute {name!r}")
    return getattr(importlib.import_module(f"highway_rl.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
