"""Highway reinforcement learning: fast, exact credit for rewards that come late."""

from highway_rl.core.backup import TO_END, Backup, combine_returns, gate, smax
from highway_rl.core.targets import TargetRule
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.mdp.operators import operator
from highway_rl.solvers import Solution, solve
from highway_rl.version import VERSION

__version__ = VERSION

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
