"""Known models: tables of rewards and transitions, exact operators on them, files. Imports types, checks, core."""

from highway_rl.mdp.files import load_mdp, save_mdp
from highway_rl.mdp.layouts import from_mdptoolbox, from_quantecon, to_mdptoolbox, to_quantecon
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.mdp.operators import operator

__all__ = [
    "MDP",
    "SparseMDP",
    "from_mdptoolbox",
    "from_quantecon",
    "load_mdp",
    "operator",
    "save_mdp",
    "to_mdptoolbox",
    "to_quantecon",
]
