"""The step of the optimiser: of all small weights at once, and of the dense layer tile by tile."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, PyTree

from highway_rl.deep.fused.layers import inputs_of, rows_of
from highway_rl.deep.fused.memory import div, dot, load, rem, store
from highway_rl.deep.fused.sizes import Sizes, power


def step_of(optimizer: Any, rate: Array, gradient: Array, params: Array, moments: PyTree) -> PyTree:
    """Numbers and their moments after a step of the optimiser."""
    change, moments = optimizer.update(gradient, moments, params)
    return params + rate * change, moments


def small_step(step: Any, structure: Any, s: Sizes, *refs: Any) -> None:
    """How much the gradient is shrunk, in units of D, and the step of the small numbers: of the convolution's by the
    first program, and of those beyond the dense layer by all of them, a head each."""
    number, net, rate, most, lengths, conv, beyond, unit, *rest = refs
    count = structure.num_leaves
    given, (*made, shrink) = rest[:count], rest[count:]
    n, tile = net[number[0]], jnp.arange(power(lengths.shape[0]))
    total = jnp.sum(load(lengths, (tile,), tile < lengths.shape[0]))
    place = jnp.arange(power(s.convolution))
    gradient = jnp.zeros(place.shape, jnp.float32)
    tap = div(place, s.filters)
    row, column = div(tap, s.taps // s.window[0]), rem(tap, s.taps // s.window[0])
    k = jnp.where(
        place < s.taps * s.filters, (row * s.groups_a_row + (column >> 4)) * 16 + (column & 15), s.groups * 16
    )
    for part in range(conv.shape[0]):
        gradient += load(conv, (part, k * s.filters + rem(place, s.filters)), place < s.convolution)
    every = jnp.arange(power(s.small - s.convolution))
    above = load(beyond, (every,), every < s.small - s.convolution)
    total += jnp.sum(gradient * gradient) + jnp.sum(above * above)
    factor = jnp.minimum(1.0, most[0] / jnp.maximum(jnp.sqrt(total), 1e-12))

    def step_at(place: Array, real: Array, gradient: Array) -> None:
        params, moments = jax.tree.unflatten(structure, [load(ref, (n, place), real) for ref in given])
        after = step(rate[0], gradient * factor, params, moments)
        for ref, value in zip(made, jax.tree.leaves(after), strict=True):
            store(ref, (n, place), value, real)

    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        shrink[0] = factor * unit[0]
        step_at(place, place < s.convolution, gradient)

    mine = pl.program_id(0) * s.share + jnp.arange(s.share)
    real = mine < s.small - s.convolution
    step_at(s.convolution + mine, real, load(beyond, (mine,), real))


def large_step(step: Any, structure: Any, s: Sizes, *refs: Any) -> None:
    """A program a tile: its gradient, made here, and the step of the dense layer's weights."""
    number, net, rate, shrink, d, x, *rest = refs
    given, made = rest[: structure.num_leaves], rest[structure.num_leaves :]
    at, seen = inputs_of(s, x, s.cut.large)
    place, inside = (net[number[0]], at, slice(None)), rows_of(s, s.cut.large)
    # the weights are read again by the next step, and better stay near; their moments are not
    keep: list[dict] = [{}] + [{"eviction_policy": "evict_first"}] * (len(given) - 1)
    params, moments = jax.tree.unflatten(
        structure, [load(ref, place, inside, **how) for ref, how in zip(given, keep, strict=True)]
    )
    after = step(rate[0], dot(seen.T, d[...]) * shrink[0], params, moments)
    for ref, value, how in zip(made, jax.tree.leaves(after), keep, strict=True):
        store(ref, place, value, inside, **how)
