"""Where work is done: this process, others on this machine, a Ray cluster, all called alike. Imports checks."""

from highway_rl.machines.workers import EXECUTORS, Died, Processes, Workers, here, workers

__all__ = ["EXECUTORS", "Died", "Processes", "Workers", "here", "workers"]
