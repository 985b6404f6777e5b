"""Environments and model generators, all made by name: `make("multi-room", rooms=8)`."""

from highway_rl.envs.registry import make, names

__all__ = ["make", "names"]
