"""Models by name: the example MDP, Multi-Room, Garnet, mazes, chains, inventory, queues. Imports types, checks, mdp."""

from highway_rl.envs.models.example import example_mdp, example_policies
from highway_rl.envs.models.generators import chain, garnet, inventory, maze, queue
from highway_rl.envs.models.multiroom import multi_room
from highway_rl.envs.models.tables import Table

__all__ = [
    "Table",
    "chain",
    "example_mdp",
    "example_policies",
    "garnet",
    "inventory",
    "maze",
    "multi_room",
    "queue",
]
