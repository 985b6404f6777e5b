"""What learning changes, and what it learns from."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, UInt8

from highway_rl.deep.weights import Weights


class Mean(NamedTuple):
    """Networks over so many `refreshes`, the late ones counting most. What each update changes in the last one, where
    two actions are worth nearly the same, this has not."""

    refreshes: Int[Array, ""]
    params: Weights


def averaged(mean: Mean, params: Weights, over: int) -> Mean:
    """The mean with the networks of one more refresh: m ← (1 − w)·m + w·θ, w = max(1/over, 4/(3 + refreshes)) up to 1.

    It is over the last quarter of the refreshes at first, and over about `over` of them from 4·over on, and never has
    the networks of the first one, which have learned nothing; over = 1 is the networks themselves.
    """
    share = jnp.minimum(1.0, jnp.maximum(1 / over, 4 / (3 + mean.refreshes.astype(jnp.float32))))
    return Mean(mean.refreshes + 1, jax.tree.map(lambda m, new: (1 - share) * m + share * new, mean.params, params))


class Learning(NamedTuple):
    """What learning changes: k networks stacked along a first axis, their optimisers, the networks of the refresh
    before, where a rule doubles, and their mean over refreshes, where that is asked for."""

    params: Weights
    moments: PyTree
    older: Weights | None = None
    mean: Mean | None = None


class Batch(NamedTuple):
    """One update: which network learns, and from what; the target of every head, where there are several. With `row`,
    which is for large observations, `obs` is the whole store and `row` says where the batch is."""

    net: Int[Array, "*u"]
    obs: UInt8[Array, "*u b w"] | UInt8[Array, "rows w"]
    taken: Int[Array, "*u b"]
    target: Float[Array, "*u b"] | Float[Array, "*u b h"]
    row: Int[Array, "*u b"] | Int[Array, "*u b f"] | None = None
