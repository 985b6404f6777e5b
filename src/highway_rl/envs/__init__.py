"""Environments and model generators, all made by name: `make("multi-room", rooms=8)`."""

from highway_rl.envs.registry import TASKS, learnable, make, make_learnable, make_task, names

__all__ = ["TASKS", "learnable", "make", "make_learnable", "make_task", "names"]
