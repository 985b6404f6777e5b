"""The numbers of a network apart from its shape: what an optimiser steps and a checkpoint keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

SMALL = 2**16
"""Most numbers in an array that is gathered with others."""


class Weights(NamedTuple):
    """The numbers of a network: its large arrays, and all others as one vector, since a GPU pays for each array."""

    large: list[Float[Array, "..."]]
    small: Float[Array, "n"]


def weights_of(module: Any) -> Weights:
    """The numbers of a module."""
    leaves = jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array))
    small = [x.reshape(-1) for x in leaves if x.size <= SMALL]
    return Weights([x for x in leaves if x.size > SMALL], jnp.concatenate([jnp.zeros(0, jnp.float32), *small]))


def with_weights(module: Any, weights: Weights) -> Any:
    """The module with these numbers in place of its own."""
    like, rest = eqx.partition(module, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(like)
    cuts = np.cumsum([x.size for x in leaves if x.size <= SMALL])
    large, small = iter(weights.large), iter(jnp.split(weights.small, cuts[:-1]))
    found = [next(large if x.size > SMALL else small).reshape(x.shape).astype(x.dtype) for x in leaves]
    return eqx.combine(jax.tree.unflatten(structure, found), rest)
