"""Deep agents: one for the DQN family, by its target rule, and one loop. Imports types, checks, core, data, envs."""
