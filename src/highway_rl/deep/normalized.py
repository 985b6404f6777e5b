"""Observations brought to one scale: (x − mean)/deviation of every real number, over the steps in the store.

The numbers live beside the weights of each network, so that whatever keeps, copies or loads an agent has them. They
change at a refresh, never between two, and no gradient reaches them.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt8

from highway_rl.data.codec import codec_of
from highway_rl.deep.networks import MakeNetwork
from highway_rl.types import Spec

LEAST = 1e-3
"""Deviations below this count as this: a number that never changes is only shifted."""


def is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


class Normalized(eqx.Module):
    """A network, and what is subtracted from and divided out of the real numbers it sees, by leaf."""

    network: Any
    mean: list[Float[Array, "..."]]
    deviation: list[Float[Array, "..."]]

    def __call__(self, obs: PyTree) -> Float[Array, "a"]:
        leaves, structure = jax.tree.flatten(obs)
        shift, scale = (iter(jax.lax.stop_gradient(x)) for x in (self.mean, self.deviation))
        seen = [(leaf - next(shift)) / next(scale) if is_real(leaf) else leaf for leaf in leaves]
        return self.network(jax.tree.unflatten(structure, seen))


def normalized(make: MakeNetwork) -> MakeNetwork:
    """Networks of `make` that normalise, at first with mean zero and deviation one."""

    def made(spec: Spec, key: PRNGKeyArray) -> Normalized:
        shapes = [leaf.shape for leaf in jax.tree.leaves(spec.observation) if is_real(leaf)]
        return Normalized(make(spec, key), [jnp.zeros(s) for s in shapes], [jnp.ones(s) for s in shapes])

    return made


def with_numbers_of(network: Normalized, spec: Spec, obs: UInt8[Array, "n w"], real: Bool[Array, "n"]) -> Normalized:
    """The network with the mean and deviation of these coded observations, those that are real."""
    leaves = [x for x in jax.tree.leaves(jax.vmap(codec_of(spec).decode)(obs)) if is_real(x)]
    count = jnp.maximum(jnp.sum(real), 1)

    def moments(x: Array) -> tuple[Array, Array]:
        counted = real.reshape(-1, *[1] * (x.ndim - 1))
        x = x.astype(jnp.float32)
        mean = jnp.sum(jnp.where(counted, x, 0), axis=0) / count
        square = jnp.sum(jnp.where(counted, jnp.square(x - mean), 0), axis=0) / count
        return mean, jnp.maximum(jnp.sqrt(square), LEAST)

    found = [moments(x) for x in leaves]
    return eqx.tree_at(lambda n: (n.mean, n.deviation), network, ([m for m, _ in found], [d for _, d in found]))
