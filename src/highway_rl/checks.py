"""What is refused, in one grammar: what it is, a colon, what to give instead.

    learning_rate=-1: give a number > 0 and < inf          unknown algorithm 'dqm': did you mean 'dqn'?
    R has shape (3,): give (5,) or (5, 2)                   P sums to 0.9, not 1: divide each row by its sum

Every check takes the name a person typed and the value they gave, and returns the value in its own type or raises a
`ValueError` with that sentence. A refusal no check fits is written by hand in the same grammar: what stands after the
colon says what to type or do (`tests/structure/test_checks.py` reads them all). Inside `jit` numbers are not known, and
everything passes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np


def refusal(name: str, value: object, give: str) -> ValueError:
    """The error for a value that cannot be: what it is, what to give."""
    return ValueError(f"{name}={one_line(repr(value))}: give {give}")


def wrong_shape(name: str, array: Any, give: str) -> ValueError:
    """The error for an array of a shape that cannot be."""
    return ValueError(f"{name} has shape {tuple(array.shape)}: give {give}")


def unknown(what: str, name: str, choices: Iterable[str]) -> ValueError:
    """The refusal of a name that is none of the choices."""
    choices = list(choices)
    close = difflib.get_close_matches(str(name), choices, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(choices)}"
    return ValueError(f"unknown {what} {name!r}: {hint}")


def one_line(error: object) -> str:
    """A message of many lines as one."""
    return " ".join(str(error).split())


def _real(value: object) -> bool:
    """Whether this is one number; True and False are none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not good or value < least or (most is not None and value > most):  # type: ignore[operator]
        raise refusal(
            name, value, f"a whole number >= {least}" if most is None else f"a whole number from {least} to {most}"
        )
    return int(value)  # type: ignore[call-overload]


def number(name: str, value: object, low: float = -1e30, high: float = 1e30) -> float:
    """A number from `low` to `high`."""
    if not _real(value) or not low <= value <= high:  # type: ignore[operator]
        raise refusal(name, value, f"a number from {low:g} to {high:g}")
    return float(value)  # type: ignore[arg-type]


def between(name: str, value: object, low: float, high: float = np.inf) -> float:
    """A number above `low` and below `high`."""
    if not _real(value) or not low < value < high:  # type: ignore[operator]
        raise refusal(name, value, f"a number > {low:g} and < {high:g}")
    return float(value)  # type: ignore[arg-type]


def number_list(name: str, value: Any, count: int, low: float) -> np.ndarray:
    """So many numbers, none below `low`."""
    if not isinstance(value, tuple | list | np.ndarray) or len(value) != count:
        raise refusal(name, value, f"{count} numbers >= {low:g}")
    return np.array([number(name, one, low) for one in value])


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise refusal(name, value, "True or False")
    return bool(value)


def choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """One of the allowed words."""
    allowed = tuple(allowed)
    if not isinstance(value, str) or value not in allowed:
        raise refusal(name, value, f"one of {', '.join(allowed)}")
    return value


def options(what: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Names of options, all of which exist."""
    allowed = list(allowed)
    for option in given:
        if option not in allowed:
            raise ValueError(
                f"{what} has no option {option!r}: " + (f"choose from {', '.join(allowed)}" if allowed else "give none")
            )


def actions(value: Any, count: int) -> np.ndarray:
    """One action or an array of them, each a whole number below `count`, as int32."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or np.any((array < 0) | (array >= count)):
        raise refusal("action", array.tolist(), f"a whole number from 0 to {count - 1}")
    return array.astype(np.int32)


def is_concrete(value: object) -> bool:
    """Whether a value is known, which inside `jit` it is not."""
    return not isinstance(value, jax.core.Tracer)


def numbers(name: str, value: Any, holds: Callable[[Any], Any], give: str) -> None:
    """A number, or an array of them, all of which hold."""
    if not is_concrete(value):
        return
    try:
        array = np.asarray(value)
        good = jax.dtypes.issubdtype(array.dtype, np.floating) or array.dtype.kind in "biu"
    except (ValueError, TypeError):  # ragged, or no array at all
        good = False
    if not good or not np.all(holds(array)):
        raise refusal(name, value, f"a number {give}")


def unit_interval(name: str, value: Any) -> None:
    numbers(name, value, lambda x: (x >= 0) & (x <= 1), "in [0, 1]")


def positive(name: str, value: Any) -> None:
    numbers(name, value, lambda x: (x > 0) & (x < np.inf), "> 0 and < inf")


def shares(name: str, value: Any, entries: int) -> None:
    """Probabilities over the last axis, which has that many entries."""
    array = np.asarray(value)
    if array.ndim == 0 or array.shape[-1] != entries:
        raise wrong_shape(name, array, f"{entries} entries")
    bad = ~(np.all(array >= 0, axis=-1) & np.isclose(array.sum(-1), 1, atol=1e-6))
    if np.any(bad):
        raise refusal(name, array[bad][0].tolist(), "entries >= 0 that sum to one")
