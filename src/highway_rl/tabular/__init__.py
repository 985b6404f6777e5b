"""Learning by table: one agent, Highway Q-learning's memory, RUDDER, their loop. Imports types, checks, core, envs."""
