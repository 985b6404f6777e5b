"""The dense layer and the head: values, loss and actions, and what comes back."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from highway_rl.deep.fused.memory import below, div, dot, grid, load, rem, store
from highway_rl.deep.fused.sizes import Sizes, power


def dense(s: Sizes, number: Any, net: Any, x: Any, wide: Any, small: Any, sums: Any, turned: Any) -> None:
    """A program a partial sum and a network: X·W of the observations to act on, and of the batch, which is kept where
    the network is `net`. And one a network that turns the last layer round: the weights of an output side by side."""
    first, j = div(pl.program_id(0), s.networks), rem(pl.program_id(0), s.networks)
    pl.when(first < sums.shape[0])(lambda: add_up(s, first, j, number, net, x, wide, sums))

    @pl.when(first == sums.shape[0])
    def _() -> None:
        place = jnp.arange(power(s.hidden * s.outputs))
        real = below(place, s.hidden * s.outputs, place.size)
        unit, output = div(place, s.outputs), rem(place, s.outputs)
        store(turned, (j, output, unit), load(small, (j, s.convolution + s.hidden + place), real), real)


def add_up(s: Sizes, part: Array, j: Array, number: Any, net: Any, x: Any, wide: Any, sums: Any) -> None:
    """One partial sum of X·W with the weights of network j."""
    tile, parts = s.cut.dense, sums.shape[0]
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
    huber: bool, s: Sizes, number: Any, net: Any, small: Any, sums: Any, turned: Any, taken: Any, target: Any, d: Any,
    unit: Any, beyond: Any, loss: Any, best: Any,
) -> None:  # fmt: skip
    """Three programs, and one for each head after Q's, with the values they need: the loss and D, what comes back to
    the dense layer; the best actions; the gradients beyond the dense layer, of a head each.

    D is in half precision, in units that keep its largest number near 16.
    """
    t, program = number[0], pl.program_id(0)
    bias, last, hidden = s.convolution, s.small - s.outputs, jnp.arange(s.hidden)

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
                w = [load(turned, (j, action, hidden)) for j in range(s.networks)]
                q = [jnp.sum(h * w[j][None, :]) + small[j, last + action] for j, h in enumerate(each)]
                lowest = functools.reduce(jnp.minimum, q)
                greedy = jnp.where(lowest > top, jnp.int32(action), greedy)
                top = jnp.where(lowest > top, lowest, top)
            best[i] = greedy

    def batch() -> tuple[Array, Array]:
        return features(net[t], 0, s.batch), load(taken, (t, pl.ds(0, s.batch)))

    def errors(h: Array, action_of: Array, which: Any) -> tuple[Array, Array, Array]:
        output = which * s.actions + action_of
        w = load(turned, (net[t], output[:, None], hidden[None, :]))
        chosen = jnp.sum(h * w, axis=1) + load(small, (net[t], last + output))
        wanted = (t, pl.ds(0, s.batch)) if s.heads == 1 else (t, pl.ds(0, s.batch), which)
        error = load(target, wanted) - chosen
        slope = (jnp.clip(error, -1.0, 1.0) if huber else error) / -s.batch
        return error, slope, jnp.where(h > 0, slope[:, None] * w, 0.0)

    @pl.when(program == 0)
    def _() -> None:
        h, action_of = batch()
        each = [errors(h, action_of, which) for which in range(s.heads)]
        dh = functools.reduce(jnp.add, [found[-1] for found in each])
        peak = jnp.max(jnp.abs(dh))
        exponent = jax.lax.bitcast_convert_type(peak, jnp.int32) & 0x7F800000
        one = jnp.where(peak > 1e-30, jax.lax.bitcast_convert_type(exponent, jnp.float32) / 16, 1.0)
        unit[0] = one
        d[...] = (dh / one).astype(jnp.float16)
        total = jnp.float32(0)
        for error, _, _ in each:
            size = jnp.abs(error)
            each_row = jnp.where(size <= 1, 0.5 * error * error, size - 0.5) if huber else 0.5 * error * error
            total += jnp.sum(each_row)
        loss[0] = total / s.batch
        beyond[pl.ds(0, s.hidden)] = jnp.sum(dh, axis=0)

    @pl.when(program >= 2)
    def _() -> None:
        first = (program - 2) * s.actions
        h, action_of = batch()
        _, slope, _ = errors(h, action_of, program - 2)
        for action in range(s.actions):
            dq = jnp.where(action_of == action, slope, 0.0)
            store(beyond, (s.hidden + hidden * s.outputs + first + action,), jnp.sum(h * dq[:, None], axis=0))
            beyond[last - bias + first + action] = jnp.sum(dq)


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
