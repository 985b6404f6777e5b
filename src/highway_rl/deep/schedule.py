"""When what happens in a run."""

from __future__ import annotations

import jax

from highway_rl.deep.settings import check_schedule
from highway_rl.types import record, static


@record
class Schedule:
    """How long, and what happens when; all in environment steps of one run. A behavioural policy is what acted between
    two refreshes, or in one episode."""

    steps: int = static(default=5_000_000)
    capacity: int = static(default=100_000)
    start: int = static(default=5_000)
    refresh: int = static(default=1_000)
    num_envs: int = static(default=1)
    updates_per_step: float = static(default=1.0)
    policy_is: str = static(default="refresh")
    hold: float = static(default=1.0)

    def __post_init__(self) -> None:
        check_schedule(self)

    @property
    def periods(self) -> int:
        return self.steps // self.refresh

    @property
    def turns(self) -> int:
        """Times a period that all environments step together."""
        return self.refresh // self.num_envs

    @property
    def updates_per_turn(self) -> int:
        return round(self.num_envs * self.updates_per_step)

    @property
    def at_once(self) -> int:
        """Turns written out one after the other in the compiled loop, of which a GPU copies something in every pass."""
        return 4 if jax.default_backend() == "gpu" and self.turns % 4 == 0 else 1
