"""Other people's interfaces, each imported when it is asked for: `gymnasium`, `gymnasium_tasks`. Imports types, checks,
core, envs."""

__all__: list[str] = []  # importing a room here would need its package
