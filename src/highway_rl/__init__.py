"""Highway reinforcement learning: fast, exact credit for rewards that come late."""
