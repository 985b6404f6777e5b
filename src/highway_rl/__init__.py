"""Highway reinforcement learning: fast, exact credit for rewards that come late."""

from highway_rl.core.backup import TO_END, Backup, combine_returns, gate, smax
from highway_rl.core.targets import TargetRule
from highway_rl.mdp import MDP, SparseMDP
from highway_rl.operators import operator
from highway_rl.solvers import Solution, solve

__version__ = "0.1.0"

__all__ = [
    "MDP",
    "TO_END",
    "Backup",
    "Solution",
    "SparseMDP",
    "TargetRule",
    "combine_returns",
    "gate",
    "operator",
    "smax",
    "solve",
]
