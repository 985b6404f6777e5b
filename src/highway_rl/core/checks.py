"""What the core refuses of a backup."""

from __future__ import annotations

from typing import Any

import numpy as np

from highway_rl import checks


def check_depths(depths: tuple[int, ...]) -> None:
    if not depths:
        raise ValueError("depths is empty: give at least one lookahead depth, such as (1,)")
    for n in depths:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"depth {n!r} is not a lookahead depth: give whole numbers >= 1, or TO_END")
    if len(set(depths)) != len(depths):
        raise checks.refusal("depths", depths, "each depth once")


def check_backup(backup: Any) -> None:
    """Structure always; numbers where they are known, which inside `jit` they are not."""
    check_depths(backup.depths)
    if backup.gate_depth is not None and (not isinstance(backup.gate_depth, int) or backup.gate_depth < 0):
        raise checks.refusal("gate_depth", backup.gate_depth, "a depth >= 0, or None for no gate")
    for name in ("depth_alpha", "policy_alpha"):
        checks.numbers(name, getattr(backup, name), lambda x: x >= 0, "in [0, inf]")
    if backup.depth_prior is not None and checks.is_concrete(backup.depth_prior):
        checks.shares("depth_prior", backup.depth_prior, len(backup.depths))
