"""The few types every layer shares: the record decorator, environments, transitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

T = TypeVar("T")


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field of a `record` that is part of its shape: hashed by `jit`, never traced."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static,))
def record(cls: type[T]) -> type[T]:
    """A frozen dataclass that is a JAX pytree: plain fields are leaves, `static()` ones are structure."""
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    return jax.tree_util.register_dataclass(
        cls,
        data_fields=[f.name for f in fields if not f.metadata.get("static")],
        meta_fields=[f.name for f in fields if f.metadata.get("static")],
    )


@record
class Step:
    """What one environment step returns.

    `obs` is always the true successor of the transition, also where the episode ends there.
    Termination means that nothing follows; truncation only that the episode was cut.
    """

    state: PyTree
    obs: PyTree
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class Env:
    """An environment as two pure functions, to be jitted and vmapped by whoever uses it.

    reset(key) -> (state, obs)        step(state, action, key) -> Step
    """

    name: str
    num_actions: int
    observation: jax.ShapeDtypeStruct
    reset: Callable[[PRNGKeyArray], tuple[PyTree, Array]]
    step: Callable[[PyTree, Array, PRNGKeyArray], Step]
