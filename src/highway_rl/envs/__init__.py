"""Environments and model generators, all made by name: `make("multi-room", rooms=8)`."""

from highway_rl.envs.registry import TASKS, make, make_task, names

__all__ = ["TASKS", "make", "make_task", "names"]
