"""Deep agents: one for the DQN family, by its target rule, and one loop. Imports types, checks, registry, core, data,
envs."""

from highway_rl.deep.agent import Agent
from highway_rl.deep.algorithms import ALGORITHMS, make_rule, named_agent, register_algorithm
from highway_rl.deep.dqn import DQN
from highway_rl.deep.networks import NETWORKS, register_network
from highway_rl.deep.optimizers import OPTIMIZERS, register_optimizer
from highway_rl.deep.refresh import make_agent
from highway_rl.deep.schedule import Schedule

__all__ = [
    "ALGORITHMS",
    "DQN",
    "NETWORKS",
    "OPTIMIZERS",
    "Agent",
    "Schedule",
    "make_agent",
    "make_rule",
    "named_agent",
    "register_algorithm",
    "register_network",
    "register_optimizer",
]
