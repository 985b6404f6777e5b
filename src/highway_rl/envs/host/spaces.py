"""Gymnasium's spaces as what an agent knows: a tree of arrays for observations, a number for actions.

Box of truth values, MultiBinary      truth values                  kept as bits
Discrete, MultiDiscrete               one-hot truth values          kept as bits
Box of bytes                          bytes
any other Box                         float32, or float16 where it says so
Dict, Tuple                           a tree of these; texts are left out
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from highway_rl import checks

MOST_ACTIONS = 4096
"""Joint actions of a MultiDiscrete space that may be told apart one by one."""


class NoObservation(Exception):
    """What an environment showed is not in its space."""


class Seeing(NamedTuple):
    """How an observation is seen: its shapes and types, and `leaves(obs)`, its arrays in the tree's order.

    `leaves` raises `NoObservation`, which says what came in place of one.
    """

    like: Any
    leaves: Callable[[Any], list[np.ndarray]]
    bounds: list[tuple[np.ndarray, np.ndarray] | None]


def seeing(space: gymnasium.Space, where: str = "obs") -> Seeing | None:
    """How observations of a space are seen; None of a text, which is not."""
    if isinstance(space, spaces.Dict):
        return _joined({key: seeing(part, f"{where}[{key!r}]") for key, part in sorted(space.items())}, where)
    if isinstance(space, spaces.Tuple):
        return _joined({i: seeing(part, f"{where}[{i}]") for i, part in enumerate(space.spaces)}, where)
    if isinstance(space, spaces.Text):
        return None
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.array([space.n]), np.array([space.start]), (), where)
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(space.nvec.reshape(-1), np.asarray(space.start).reshape(-1), space.nvec.shape, where)
    if isinstance(space, spaces.MultiBinary):
        return _array(space.shape, np.dtype(bool), where, None)
    if isinstance(space, spaces.Box):
        kept = {"b": bool, "f2": np.float16, "u1": np.uint8}
        kind: Any = kept.get(space.dtype.kind, kept.get(space.dtype.str[1:], np.float32))
        return _array(space.shape, np.dtype(kind), where, (space.low, space.high))
    raise ValueError(
        f"{where} is a {type(space).__name__} space: give Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple, for"
        " example by a gymnasium.ObservationWrapper"
    )


def _array(shape: tuple[int, ...], dtype: np.dtype, where: str, bounds: tuple[np.ndarray, np.ndarray] | None) -> Seeing:
    def leaves(obs: Any) -> list[np.ndarray]:
        try:
            array = np.asarray(obs)
        except ValueError:  # ragged
            array = np.asarray(None)
        if array.shape != shape or array.dtype.kind not in "biuf":
            raise NoObservation(f"{where} is {described(obs)}, not {dtype} of shape {shape}")
        if dtype.kind == "f" or array.dtype == dtype:
            return [array.astype(dtype, copy=False)]
        most = np.iinfo(dtype).max if dtype.kind == "u" else 1
        if not np.all((array >= 0) & (array <= most) & (array == np.floor(array))):
            shown = array.tolist() if array.size < 20 else f"{described(array)} from {array.min()} to {array.max()}"
            raise NoObservation(f"{where} is {shown}, not whole numbers from 0 to {most}")
        return [array.astype(dtype)]

    finite = bounds is not None and dtype.kind == "f" and bool(np.isfinite(bounds).any())
    return Seeing(jax.ShapeDtypeStruct(shape, dtype), leaves, [bounds if finite else None])


def _one_hot(sizes: np.ndarray, starts: np.ndarray, shape: tuple[int, ...], where: str) -> Seeing:
    """Each number as one of so many places, one group of places after the other."""
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    total = int(sizes.sum())

    def leaves(obs: Any) -> list[np.ndarray]:
        numbers = np.asarray(obs)
        if numbers.shape != shape or numbers.dtype.kind not in "biu":
            raise NoObservation(f"{where} is {described(obs)}, not a whole number a place of shape {shape}")
        at = numbers.reshape(-1) - starts
        if np.any((at < 0) | (at >= sizes)):
            raise NoObservation(f"{where} is {described(obs)}, not below {sizes.tolist()} from {starts.tolist()}")
        found = np.zeros(total, bool)
        found[first + at] = True
        return [found]

    return Seeing(jax.ShapeDtypeStruct((total,), np.dtype(bool)), leaves, [None])


def _joined(parts: dict[Any, Seeing | None], where: str) -> Seeing | None:
    seen = {key: part for key, part in parts.items() if part is not None}
    if not seen:
        return None

    def leaves(obs: Any) -> list[np.ndarray]:
        try:
            return [leaf for key, part in seen.items() for leaf in part.leaves(obs[key])]
        except (KeyError, IndexError, TypeError):
            raise NoObservation(f"{where} is {described(obs)}, not one with {', '.join(map(str, parts))}") from None

    names = list(seen)
    like: Any = {str(key): part.like for key, part in seen.items()}
    if isinstance(names[0], int):
        like = tuple(part.like for part in seen.values())
    return Seeing(like, leaves, [bound for part in seen.values() for bound in part.bounds])


def described(value: Any) -> str:
    """What came, in a few words.

    >>> described(np.zeros((2, 3), np.float32)), described("x")
    ('float32 of shape (2, 3)', "'x'")
    """
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}" if value.size > 4 else f"{value.dtype} {value.tolist()}"
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value)) or 'nothing'}"
    return checks.one_line(repr(value))[:80]


class Acting(NamedTuple):
    """How many actions there are, and the environment's own action for each number."""

    number: int
    action: Callable[[int], Any]


def acting(space: gymnasium.Space, name: str) -> Acting:
    """The actions of a space as numbers from zero."""
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return Acting(int(space.n), lambda a: a + first)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        both: Any = space
        multi = isinstance(space, spaces.MultiDiscrete)
        sizes = both.nvec if multi else np.full(both.shape, 2)
        start = np.asarray(both.start) if multi else 0
        count = int(np.prod(sizes, dtype=np.float64))
        if count > MOST_ACTIONS:
            raise ValueError(
                f"{name} has {count:,} joint actions ({checks.one_line(space)}): give at most {MOST_ACTIONS}, for"
                " example a gymnasium.ActionWrapper with Discrete actions for those that matter"
            )
        table = np.stack(np.unravel_index(np.arange(count), sizes.reshape(-1)), axis=-1)
        table = (table.reshape(count, *sizes.shape) + start).astype(space.dtype)
        return Acting(count, lambda a: table[a])
    raise ValueError(
        f"{name} has actions {checks.one_line(space)}, and agents here choose among a few: give it Discrete actions,"
        " for example gymnasium.wrappers.TransformAction(env, lambda i: MOVES[i], Discrete(len(MOVES)))"
    )
