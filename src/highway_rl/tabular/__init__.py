"""Learning by table: one agent, Highway Q-learning's memory, RUDDER, their loop. Imports types, checks, core, envs."""

from highway_rl.tabular.agent import AGENTS, TabularAgent, highway_q_learning, learner, tabular_agent
from highway_rl.tabular.loop import Learned, Learner, trainer, training

__all__ = [
    "AGENTS",
    "Learned",
    "Learner",
    "TabularAgent",
    "highway_q_learning",
    "learner",
    "tabular_agent",
    "trainer",
    "training",
]
