"""Models by name: the example MDP, Multi-Room, Garnet, mazes, chains, inventory, queues. Imports types, checks, mdp."""
