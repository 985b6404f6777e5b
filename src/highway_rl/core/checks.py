"""What the core refuses, and the sentence it refuses it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def check_depths(depths: tuple[int, ...]) -> None:
    if not depths:
        raise ValueError("depths is empty: give at least one lookahead depth, such as (1,)")
    for n in depths:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"depth {n!r} is not a lookahead depth: give whole numbers >= 1, or TO_END")
    if len(set(depths)) != len(depths):
        raise ValueError(f"depths={depths}: each depth may stand there once")


def check_backup(backup: Any) -> None:
    """Structure always; numbers where they are known, which inside `jit` they are not."""
    check_depths(backup.depths)
    if backup.gate_depth is not None and (not isinstance(backup.gate_depth, int) or backup.gate_depth < 0):
        raise ValueError(f"gate_depth={backup.gate_depth!r}: give a depth >= 0, or None for no gate")
    for name in ("depth_alpha", "policy_alpha"):
        check_numbers(name, getattr(backup, name), lambda x: x >= 0, "in [0, inf]")
    if backup.depth_prior is not None and is_concrete(backup.depth_prior):
        check_shares("depth_prior", backup.depth_prior, len(backup.depths))


def check_shares(name: str, value: Any, entries: int) -> None:
    """Probabilities over the last axis, which has that many entries."""
    shares = np.asarray(value)
    if shares.ndim == 0 or shares.shape[-1] != entries:
        raise ValueError(f"{name} has shape {shares.shape}: it needs {entries} entries")
    bad = ~(np.all(shares >= 0, axis=-1) & np.isclose(shares.sum(-1), 1, atol=1e-6))
    if np.any(bad):
        raise ValueError(f"{name}={shares[bad][0].tolist()}: entries must be >= 0 and sum to one")


def check_unit_interval(name: str, value: Any) -> None:
    check_numbers(name, value, lambda x: (x >= 0) & (x <= 1), "in [0, 1]")


def check_numbers(name: str, value: Any, holds: Callable[[Any], Any], allowed: str) -> None:
    """A number, or an array of them, all of which are allowed. Inside `jit` nobody knows, and everything passes."""
    if not is_concrete(value):
        return
    try:
        array = np.asarray(value)
        number = jax.dtypes.issubdtype(array.dtype, np.floating) or array.dtype.kind in "biu"
    except (ValueError, TypeError):  # ragged, or no array at all
        number = False
    if not number or not np.all(holds(array)):
        raise ValueError(f"{name}={value!r}: give a number {allowed}")


def is_concrete(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer)
