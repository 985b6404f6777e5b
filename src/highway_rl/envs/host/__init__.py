"""Environments that step outside JAX: Gymnasium's, one or many at a time, in this process or in others. Imports types,
checks, registry."""

from highway_rl.envs.host.make import host_env, known, maker
from highway_rl.envs.host.own import Own

__all__ = ["Own", "host_env", "known", "maker"]
