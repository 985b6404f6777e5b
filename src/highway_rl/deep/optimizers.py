"""Optimisers by name. Each is a function that makes an Optax optimiser of step size one; the agent's `learning_rate`,
which runs of one program may have each their own, multiplies its steps."""

from __future__ import annotations

import functools
from collections.abc import Callable

import optax

from highway_rl import checks
from highway_rl.registry import Registry

MakeOptimizer = Callable[[], optax.GradientTransformation]


def centred_rmsprop() -> optax.GradientTransformation:
    """RMSprop around the mean gradient, ε outside the root, as PyTorch has it: the paper's."""
    return optax.rmsprop(1.0, decay=0.95, eps=0.01, centered=True, eps_in_sqrt=False)


OPTIMIZERS: Registry[MakeOptimizer] = Registry(
    "optimizer",
    "optimizers",
    {
        "rmsprop": centred_rmsprop,
        "adam": functools.partial(optax.adam, 1.0),
        "adamw": functools.partial(optax.adamw, 1.0),
        "radam": functools.partial(optax.radam, 1.0),
        "lion": functools.partial(optax.lion, 1.0),
        "sgd": functools.partial(optax.sgd, 1.0),
    },
)


def register_optimizer(name: str, make: MakeOptimizer) -> MakeOptimizer:
    """Makes `optimizer=name` mean the Optax optimiser that `make()` returns, for a step size of one."""
    if not callable(make):
        raise checks.refusal("make", make, "a function that makes an Optax optimiser of step size one")
    return OPTIMIZERS.add(name, make)
