"""Environments and models by name: `make("multi-room", rooms=8)`. Imports types, checks, registry, core, mdp."""

from highway_rl.envs.registry import (
    ENVS,
    MODELS,
    TASKS,
    learnable,
    make,
    make_env,
    make_task,
    names,
    register_env,
)

__all__ = ["ENVS", "MODELS", "TASKS", "learnable", "make", "make_env", "make_task", "names", "register_env"]
