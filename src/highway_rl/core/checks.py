"""What the core refuses of a backup, and of the data a person brings."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from highway_rl import checks


def check_depths(depths: tuple[int, ...]) -> None:
    if not depths:
        raise ValueError("depths is empty: give at least one lookahead depth, such as (1,)")
    for n in depths:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"depth {n!r} is no lookahead depth: give whole numbers >= 1, or TO_END (in texts: end)")
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


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...], what: str) -> None:
    if shape != expected:
        raise ValueError(f"{name} has shape {shape}: give {expected}, {what}")


def check_real(name: str, array: Any) -> bool:
    """Whether an array of real numbers holds floating ones; whole ones are the rest."""
    floating = bool(jax.dtypes.issubdtype(array.dtype, np.floating))
    if not floating and array.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {array.dtype}: give real numbers")
    return floating


def check_actions(action: Any, count: int) -> None:
    """The numbers of actions, each below `count`."""
    if action.dtype.kind not in "iu":
        raise ValueError(f"action has dtype {action.dtype}: give whole numbers, the actions taken")
    known = _known(action)
    wrong = known[(known < 0) | (known >= count)]
    if wrong.size:
        raise checks.refusal("action", int(wrong[0]), f"actions from 0 to {count - 1}, as q has {count}")


def check_flags(name: str, array: Any) -> None:
    """Bools, or numbers that are 0 or 1."""
    if array.dtype.kind != "b":
        check_real(name, array)
    known = _known(array)
    wrong = known[(known != 0) & (known != 1)]
    if wrong.size:
        raise checks.refusal(name, wrong[0].item(), "bools, or 0 and 1")


def _known(array: Any) -> np.ndarray:
    """The numbers of an array, none where JAX traces it."""
    return np.asarray(array) if checks.is_concrete(array) else np.zeros(0)
