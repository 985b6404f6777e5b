"""The few types every layer shares: the record decorator, environments, transitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

T = TypeVar("T")

NEVER = 2**31 - 1
"""The number of an episode or a step that no run reaches, the largest int32: what stands where nothing happened."""

AnyArray = Array | np.ndarray  # the mathematics of `core` runs on either, in the dtype it is given


def static(*, default: Any = dataclasses.MISSING) -> Any:
    """A field of a `record` that is part of its shape: hashed by `jit`, never traced."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static,))
def record(cls: type[T]) -> type[T]:
    """A frozen dataclass that is a JAX pytree: plain fields are leaves, `static()` ones are structure.

    Rebuilding one from its leaves skips `__init__`, so validation runs where a person builds the
    record and not on the tracers and placeholders that JAX passes through it.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    structure = [f.name for f in fields if f.metadata.get("static")]

    def flatten(self: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        keyed = [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in leaves]
        return keyed, tuple(getattr(self, name) for name in structure)

    def unflatten(aux: tuple[Any, ...], children: Any) -> T:
        new = object.__new__(cls)
        for name, value in [*zip(leaves, children, strict=True), *zip(structure, aux, strict=True)]:
            object.__setattr__(new, name, value)
        return new

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


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
class Spec:
    """What an agent has to know of an environment before it meets one.

    `observation` is a tree of shapes and types. `discount` is the one to learn with where the user names none, and
    `horizon` the most steps an episode has; None where nobody knows. `spaces` are Gymnasium's, as JSON, where its own
    observations and actions look different. `frames`: the last axis of what it shows are so many frames, the oldest
    first, at the beginning of an episode all the first one; the store then keeps every frame once.
    """

    name: str
    observation: PyTree
    num_actions: int
    discount: float | None = None
    horizon: int | None = None
    spaces: str | None = None
    frames: int = 1


@dataclasses.dataclass(frozen=True)
class Env:
    """An environment: its spec, and two pure functions to be jitted and vmapped by whoever uses it.

    reset(key) -> (state, obs)        step(state, action, key) -> Step
    """

    spec: Spec
    reset: Callable[[PRNGKeyArray], tuple[PyTree, PyTree]]
    step: Callable[[PyTree, Array, PRNGKeyArray], Step]

    def wrapped(self, *, reset: Any, step: Any, **changed: Any) -> Env:
        """The same kind of environment with other functions, and what that changes in its spec."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, **changed), reset=reset, step=step)


@dataclasses.dataclass(frozen=True)
class DiscreteEnv(Env):
    """An environment whose observation is the number of its state: what a table can learn. Its horizon is known.

    In a `clocked` one the state tells the time, so no state is met twice in an episode. `solved(q)` says whether the
    greedy policy of q[s, a] is optimal, without ties; `on_track(states, actions)` whether an episode did what the
    optimal policy does; `features(state)` is the state as a vector.
    """

    num_states: int
    clocked: bool
    solved: Callable[[Array], Bool[Array, ""]]
    on_track: Callable[[Array, Array], Bool[Array, ""]]
    features: Callable[[Array], Array]

    @property
    def horizon(self) -> int:
        return self.spec.horizon or 0


@dataclasses.dataclass(frozen=True)
class HostEnv:
    """An environment that steps outside JAX: its spec, `start(count, seed)`, which begins so many side by side, and
    `one(**options)`, a Gymnasium environment like those, made with these options besides.

    What it starts has reset() → obs, send(actions), receive() → what came of them, close(): see `envs.host.worlds`.
    """

    spec: Spec
    start: Callable[[int, int], Any]
    one: Callable[..., Any]
