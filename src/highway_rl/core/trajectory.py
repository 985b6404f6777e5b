"""Experience as a person has it, and as the mathematics takes it: lists, integers and flags become arrays."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from highway_rl.checks import is_concrete
from highway_rl.core.checks import check_actions, check_flags, check_real, check_shape
from highway_rl.types import AnyArray, record

Steps = Any
"""One number per step, [..., T]: a NumPy or JAX array, or a list, which no static type covers at once."""


@record
class Trajectory:
    """T transitions in the order they happened: [T], or [..., T] for many such paths.

    `discount` is γ, or 0 where the step terminated; one number is the γ of every step. `last` is true (or 1) where
    the path is cut, at a termination or a truncation; the last row always is. `behaviour` is π(a|s) of the action
    taken, which only a rule with a trace asks for.
    """

    action: Steps
    reward: Steps
    discount: Steps
    last: Steps
    behaviour: Steps = None


def as_arrays(
    trajectory: Any, q: Any, next_q: Any, beside: Any = None
) -> tuple[Trajectory, Float[AnyArray, "*b t a"], Float[AnyArray, "*b t a"]]:
    """The same data as arrays in the namespace and dtype of `q`, or a `ValueError` that says which is wrong and how.

    Lists become NumPy arrays and whole numbers real ones. Where anything, `beside` included, is traced by JAX, all are
    JAX arrays.
    """
    if not isinstance(trajectory, Trajectory):
        raise ValueError(f"trajectory is of type {type(trajectory).__name__}: give a Trajectory")
    xp = _namespace(q, (trajectory, q, next_q, beside))
    q = _real("q", _array(xp, "q", q), None)
    if q.ndim < 2:
        raise ValueError(f"q has shape {q.shape}: give [..., T, A], a number per step and action")
    shape = q.shape[:-1]
    next_q = _real("next_q", _array(xp, "next_q", next_q), q.dtype)
    check_shape("next_q", next_q.shape, q.shape, "one number per step and action, as q has")

    def steps(name: str) -> Any:
        array = _array(xp, name, getattr(trajectory, name))
        if not (name == "discount" and array.ndim == 0):
            check_shape(name, array.shape, shape, "one number per step of q")
        return array

    action, last = steps("action"), steps("last")
    check_actions(action, q.shape[-1])
    check_flags("last", last)
    reward, discount = (_real(name, steps(name), q.dtype) for name in ("reward", "discount"))
    behaviour = None if trajectory.behaviour is None else _real("behaviour", steps("behaviour"), q.dtype)
    whole = xp.astype(action, xp.asarray(0).dtype)  # the type in which actions are counted
    data = Trajectory(whole, reward, xp.broadcast_to(discount, shape), xp.astype(last, bool), behaviour)
    return data, q, next_q


def _namespace(q: Any, everything: Any) -> ModuleType:
    known = all(map(is_concrete, jax.tree.leaves(everything)))
    return np if known and not isinstance(q, jax.Array) else jnp


def _array(xp: ModuleType, name: str, value: Any) -> Any:
    try:
        return xp.asarray(value)
    except (ValueError, TypeError):
        raise ValueError(f"{name} is no array: give numbers, every row of them as long as the others") from None


def _real(name: str, array: Any, dtype: Any) -> Any:
    """Real numbers in that dtype; None keeps a floating one and makes whole numbers floating."""
    xp = array.__array_namespace__()
    floating = check_real(name, array)
    if dtype is None:
        dtype = array.dtype if floating else xp.asarray(0.0).dtype
    return xp.astype(array, dtype)
