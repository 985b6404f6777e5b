"""Other people's interfaces, each imported on demand: Gymnasium. Imports types, checks and envs."""
