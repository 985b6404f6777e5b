"""The dense layer and the head: values, loss and actions, and what comes back."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from highway_rl.deep.fused.memory import below, div, dot, fine, grid, load, rem, store
from highway_rl.deep.fused.sizes import Sizes, power


def dense(s: Sizes, number: Any, net: Any, x: Any, wide: Any, sums: Any) -> None:
    """A program a partial sum and a network: X·W of the observations to act on, and of the batch, which is kept where
    the network is `net`."""
    tile, parts = s.cut.dense, sums.shape[0]
    part, j = pl.program_id(0) // s.networks, pl.program_id(0) % s.networks
    share, rows = -(-s.inputs // (tile * parts)), sums.shape[2]
    row, column = grid(rows, tile)
    place = lambda row: jnp.where(row < s.batch, row, jnp.minimum(row, s.batch + s.here - 1) + j * s.here)  # noqa: E731

    def add(i: Any, total: Array) -> Array:
        first = (part * share + i) * tile
        inside = below(first + grid(tile, s.hidden)[0], s.inputs, tile * parts)
        w = load(wide, (j, pl.ds(first, tile), slice(None)), inside).astype(jnp.float16)
        return total + dot(load(x, (place(row), first + column), below(first + column, s.inputs, tile * parts)), w)

    total = jax.lax.fori_loop(0, share, add, jnp.zeros((rows, s.hidden), jnp.float32))
    row, column = grid(rows, s.hidden)
    wanted = (row < s.batch + s.here) & ((row >= s.batch) | (j == net[number[0]]))
    store(sums, (part, j, row, column), total, wanted)


def head(
    huber: bool, s: Sizes, number: Any, net: Any, small: Any, sums: Any, taken: Any, target: Any, d: Any, unit: Any,
    beyond: Any, loss: Any, best: Any,
) -> None:  # fmt: skip
    """Three programs, with the values they need: the loss and D, what comes back to the dense layer; the best actions;
    the gradients beyond the dense layer.

    D is in half precision, in units that keep its largest number near 16.
    """
    t, program = number[0], pl.program_id(0)
    bias, weight, last = s.convolution, s.convolution + s.hidden, s.small - s.outputs
    hidden, outputs = jnp.arange(s.hidden), power(s.outputs)

    def features(j: Any, first: Any, rows: int) -> Array:
        h = load(small, (j, pl.ds(bias, s.hidden)))[None, :]
        for part in range(sums.shape[0]):
            h += load(sums, (part, j, pl.ds(first, rows), slice(None)))
        return jax.nn.relu(h)

    @pl.when(program == 1)
    def _() -> None:
        for i in range(s.here):
            each = [features(j, s.batch + i, 1) for j in range(s.networks)]
            top, greedy = jnp.float32(-jnp.inf), jnp.int32(0)
            for action in range(s.actions):
                says = [load(small, (j, weight + hidden * s.outputs + action)) for j in range(s.networks)]
                q = [
                    jnp.sum(h * w[None, :]) + small[j, last + action]
                    for j, (h, w) in enumerate(zip(each, says, strict=True))
                ]
                lowest = functools.reduce(jnp.minimum, q)
                greedy = jnp.where(lowest > top, jnp.int32(action), greedy)
                top = jnp.where(lowest > top, lowest, top)
            best[i] = greedy

    def errors() -> tuple[Array, Array, Array, Array]:
        """h, the head's weights, and the error of every head at the action taken with its slope: zero elsewhere."""
        n = net[t]
        h, (row, column) = features(n, 0, s.batch), grid(s.batch, outputs)
        inner, output = grid(s.hidden, outputs)
        w = load(small, (n, weight + inner * s.outputs + output), below(output, s.outputs, outputs))
        q = fine(h, w) + load(small, (n, last + column), below(column, s.outputs, outputs))
        it = (rem(column, s.actions) == load(taken, (t, row))) & (column < s.outputs)
        wanted = load(target, (t, row) if s.heads == 1 else (t, row, div(column, s.actions)), it)
        error = jnp.where(it, wanted - q, 0.0)
        return h, w, error, (jnp.clip(error, -1.0, 1.0) if huber else error) / -s.batch

    @pl.when(program == 0)
    def _() -> None:
        h, w, error, slope = errors()
        dh = jnp.where(h > 0, fine(slope, w.T), 0.0)
        peak = jnp.max(jnp.abs(dh))
        exponent = jax.lax.bitcast_convert_type(peak, jnp.int32) & 0x7F800000
        one = jnp.where(peak > 1e-30, jax.lax.bitcast_convert_type(exponent, jnp.float32) / 16, 1.0)
        unit[0] = one
        d[...] = (dh / one).astype(jnp.float16)
        size = jnp.abs(error)
        loss[0] = jnp.sum(jnp.where((size <= 1) | (not huber), 0.5 * error * error, size - 0.5)) / s.batch
        beyond[pl.ds(0, s.hidden)] = jnp.sum(dh, axis=0)

    @pl.when(program == 2)
    def _() -> None:
        h, _, _, slope = errors()
        inner, output = grid(s.hidden, outputs)
        inside = below(output, s.outputs, outputs)
        store(beyond, (s.hidden + inner * s.outputs + output,), fine(h.T, slope), inside)
        output = jnp.arange(outputs)
        store(beyond, (last - bias + output,), jnp.sum(slope, axis=0), below(output, s.outputs, outputs))


def inputs_of(s: Sizes, x: Any, tile: int) -> tuple[Any, Array]:
    """A program's inputs of the dense layer, and what the batch gives there."""
    at = pl.ds(pl.program_id(0) * tile, tile)
    column = pl.program_id(0) * tile + grid(s.batch, tile)[1]
    return at, load(x, (pl.ds(0, s.batch), at), below(column, s.inputs, tile))


def rows_of(s: Sizes, tile: int) -> Array | None:
    """Which rows of W in a program's tile there are."""
    return below(pl.program_id(0) * tile + grid(tile, s.hidden)[0], s.inputs, tile)


def back(s: Sizes, number: Any, net: Any, d: Any, unit: Any, x: Any, wide: Any, dx: Any, lengths: Any) -> None:
    """A program a tile: what comes back to the convolution, and the tile's share of the gradient's squared length."""
    tile = s.cut.back
    at, seen = inputs_of(s, x, tile)
    w = load(wide, (net[number[0]], at, slice(None)), rows_of(s, tile)).astype(jnp.float16)
    dh = d[...]
    g = dot(seen.T, dh) * unit[0]
    lengths[pl.program_id(0)] = jnp.sum(g * g)
    below_it = jnp.where(seen > 0, dot(dh, w.T), 0.0).astype(jnp.float16)
    column = pl.program_id(0) * tile + grid(s.batch, tile)[1]
    store(dx, (pl.ds(0, s.batch), at), below_it, column < s.features)
