"""Environments that step outside JAX: Gymnasium's, one or many at a time, in this process or in others. Imports types,
checks, registry."""

from highway_rl.envs.host.make import host_env, known, maker

__all__ = ["host_env", "known", "maker"]
