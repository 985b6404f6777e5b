"""Scales of what a network sees and says. Observations: (x − mean)/deviation of every real number, over the steps in
the store (`normalize`). Values: counted in units of the largest reward met (`rescale`), so that a network that learns
numbers of about one learns what is paid in hundreds just as soon; and from the worst reward upwards, so that a network
that starts at zero starts below what follows. A gate opens for returns that exceed the value: where all is cost and
values start at zero it is shut, and Highway is DQN.

The scales live beside the weights of each network, so that whatever keeps, copies or loads an agent has them. They
change at a refresh, never between two, and no gradient reaches them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt8

from highway_rl.core.targets import TargetRule
from highway_rl.data.codec import codec_of
from highway_rl.deep.networks import MakeNetwork, of_many
from highway_rl.types import Spec

LEAST = 1e-3
"""Deviations below this count as this: a number that never changes is only shifted."""


def is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


class Scaled(eqx.Module):
    """A network; what is subtracted from and divided out of the real numbers it sees, by leaf, or nothing; and the unit
    of its values and where they start, or neither: Q = floor + unit · network."""

    network: Any
    mean: list[Float[Array, "..."]]
    deviation: list[Float[Array, "..."]]
    unit: Float[Array, ""] | None = None
    floor: Float[Array, ""] | None = None

    def __call__(self, obs: PyTree) -> Float[Array, "a"]:
        return self._around(self.network, obs)

    def many(self, obs: PyTree) -> Float[Array, "n a"]:
        """Of n observations."""
        return self._around(lambda seen: of_many(self.network, seen), obs)

    def _around(self, network: Callable[[PyTree], Array], obs: PyTree) -> Float[Array, "*n a"]:
        if self.mean:
            leaves, structure = jax.tree.flatten(obs)
            shift, scale = (iter(jax.lax.stop_gradient(x)) for x in (self.mean, self.deviation))
            seen = [(leaf - next(shift)) / next(scale) if is_real(leaf) else leaf for leaf in leaves]
            obs = jax.tree.unflatten(structure, seen)
        values = network(obs)
        if self.unit is None or self.floor is None:
            return values
        unit, floor = jax.lax.stop_gradient((self.unit, self.floor))
        return floor + unit * values


def scaled(make: MakeNetwork, normalize: bool, rescale: bool) -> MakeNetwork:
    """Networks of `make` with scales, at first mean zero, deviation one, unit one and floor zero; without any,
    `make` itself."""
    if not normalize and not rescale:
        return make

    def made(spec: Spec, key: PRNGKeyArray) -> Scaled:
        shapes = [leaf.shape for leaf in jax.tree.leaves(spec.observation) if is_real(leaf) and normalize]
        values = (jnp.ones(()), jnp.zeros(())) if rescale else (None, None)
        return Scaled(make(spec, key), [jnp.zeros(s) for s in shapes], [jnp.ones(s) for s in shapes], *values)

    return made


def with_scales_of(network: Scaled, other: Scaled) -> Scaled:
    """The network with the scales of another."""
    return dataclasses.replace(other, network=network.network)


def unit_of(network: Any) -> Any:
    """What the network's values are counted in."""
    unit = getattr(network, "unit", None)
    return 1.0 if unit is None else jax.lax.stop_gradient(unit)


def in_units(rule: TargetRule, unit: Any) -> TargetRule:
    """The rule with each α for values counted in `unit`: exp(α · value/unit), so that rewards of any size are weighed
    alike. α = 0 and ∞ stay what they are."""
    if isinstance(unit, float):
        return rule
    alphas = {name: getattr(rule.backup, name) for name in ("depth_alpha", "policy_alpha")}
    per: Any = {name: x if isinstance(x, float) and math.isinf(x) else x / unit for name, x in alphas.items()}
    return dataclasses.replace(rule, backup=dataclasses.replace(rule.backup, **per))


NOTHING = 0.1
"""A network that says less than this, in units and on average over the store, has learned nothing yet."""


def in_own_units(network: Any, obs: PyTree) -> Float[Array, "n"]:
    """How large what it says of each of n observations is, without unit and floor."""
    values = of_many(network, obs)
    return jnp.max(jnp.abs(values - network.floor) / network.unit, axis=-1)


def with_unit_of(
    network: Scaled, reward: Float[Array, "n"], real: Bool[Array, "n"], ended: Bool[Array, "n"], may: Any = True
) -> Scaled:
    """The network with the largest of these rewards as its unit and the smallest as its floor, or zero if none is below
    that; of those that are real.

    Only where rewards are late, at most one step in ten pays without ending its episode: among many small ones a large
    one says little of values.
    And only where the largest is more than ten units of before: with a unit that grew with every record all values
    would change each time. And only where it `may` change: what was learned in another unit would be wrong at once.
    """
    paid = jnp.where(real, reward, 0.0)
    largest, lowest = jnp.max(jnp.abs(paid)), jnp.min(paid)
    unit: Any = network.unit
    floor: Any = network.floor
    new = may & (largest > 10 * unit) & (10 * jnp.sum((paid != 0) & ~ended) <= jnp.sum(real))
    found = jnp.where(new, largest, unit), jnp.where(new, lowest, floor)
    return eqx.tree_at(lambda n: (n.unit, n.floor), network, found)


def with_numbers_of(network: Scaled, spec: Spec, obs: UInt8[Array, "n w"], real: Bool[Array, "n"]) -> Scaled:
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
