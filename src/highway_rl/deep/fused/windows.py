"""From bits to windows to features, and the gradient of the convolution between the last two."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jaxtyping import Array

from highway_rl.deep.fused.memory import below, div, dot, grid, load, rem, store
from highway_rl.deep.fused.sizes import Sizes, power


def tap_of(s: Sizes, group: Array, inner: Array) -> tuple[Array, Array]:
    """The number of a tap among the convolution's weights, and whether there is one."""
    (size, _), channels = s.window, s.board[2]
    row, column = div(group, s.groups_a_row), rem(group, s.groups_a_row) * 16 + inner
    return row * size * channels + column, (row < size) & (column < size * channels)


def windows_of(s: Sizes, byte_at: Any, transposed: bool = False) -> Array:
    """Every window of an observation as 0 and 1 in half precision, [places, groups · 16], or the other way round.

    The 16 taps of a group are neighbours among the bits: three bytes hold them, wherever they begin.
    """
    stride, (height, width, channels) = s.window[1], s.board
    groups, places = s.groups, power(s.places)
    shape = (groups, places) if transposed else (places, groups)
    place, group = (jax.lax.broadcasted_iota(jnp.int32, shape, int(transposed) ^ axis) for axis in (0, 1))
    row = jnp.minimum(div(place, s.columns) * stride + div(group, s.groups_a_row), height - 1)
    column = rem(place, s.columns) * stride
    first = (row * width + column) * channels + rem(group, s.groups_a_row) * 16
    first = jnp.minimum(first, height * width * channels - 1)
    byte, last = first >> 3, (height * width * channels + s.beside - 1) >> 3
    word = jnp.int32(0)
    for i in range(3):
        word = (word << 8) | byte_at(jnp.minimum(byte + i, last)).astype(jnp.int32)
    word = word << (first & 7)  # the first tap is now bit 23
    if transposed:
        inner = jax.lax.broadcasted_iota(jnp.int32, (groups, 16, places), 1)
        bits = (word[:, None, :] >> (23 - inner)) & 1
    else:
        inner = jax.lax.broadcasted_iota(jnp.int32, (places, groups, 16), 2)
        bits = (word[:, :, None] >> (23 - inner)) & 1
    found = jnp.where(bits != 0, jnp.float16(1), jnp.float16(0))
    return found.reshape((groups * 16, places) if transposed else (places, groups * 16))


def beside_of(s: Sizes, byte_at: Any) -> tuple[Array, Array]:
    """Truth values of the observation that are not on its board: their numbers, and 0 or 1 in half precision."""
    other = jnp.arange(power(s.beside))
    index = int(np.prod(s.board)) + jnp.minimum(other, s.beside - 1)
    bits = byte_at(index >> 3).astype(jnp.int32) & (jnp.int32(128) >> (index & 7))
    return other, jnp.where(bits != 0, jnp.float16(1), jnp.float16(0))


def convolution(s: Sizes, small: Any, network: Any) -> tuple[Array, Array]:
    """Weights, zero where a group has no tap, and biases of a network's convolution."""
    k, filter_ = grid(16 * s.groups, s.filters)
    tap, real = tap_of(s, k >> 4, k & 15)
    weight = load(small, (network, tap * s.filters + filter_), real).astype(jnp.float16)
    return weight, load(small, (network, pl.ds(s.taps * s.filters, s.filters)))


def write_features(s: Sizes, windows: Array, weight: Array, bias: Array, x: Any, row: tuple) -> None:
    """Writes a row's features, of a network."""
    place, filter_ = grid(power(s.places), s.filters)
    y = jax.nn.relu(dot(windows, weight) + bias[None, :]).astype(jnp.float16)
    store(x, (*row, place * s.filters + filter_), y, below(place, s.places, power(s.places)))


def see(s: Sizes, number: Any, net: Any, here: Any, batch: Any, small: Any, x: Any) -> None:
    """A program a row: the batch with network `net`, then the observations to act on with each network."""
    t, row = number[0], pl.program_id(0)
    learns, view = row < s.batch, jnp.maximum(row - s.batch, 0)
    network = jnp.where(learns, net[t], div(view, s.here))
    in_batch, in_here = jnp.minimum(row, s.batch - 1), rem(view, s.here)

    def byte_at(index: Array) -> Array:  # one load or the other
        return jax.lax.cond(learns, lambda: load(batch, (t, in_batch, index)), lambda: load(here, (in_here, index)))

    write_features(s, windows_of(s, byte_at), *convolution(s, small, network), x, (row,))
    if s.beside:
        other, is_one = beside_of(s, byte_at)
        store(x, (row, s.features + other), is_one, other < s.beside)


def see_all(s: Sizes, rows: Any, small: Any, x: Any) -> None:
    """A program some rows: what every network's dense layer gets of them."""
    networks = [convolution(s, small, j) for j in range(s.networks)]
    first = pl.program_id(0) * s.cut.see_all

    def one(i: Any, _: Any) -> None:
        row = jnp.minimum(first + i, rows.shape[0] - 1)
        byte_at = lambda index: load(rows, (row, index))  # noqa: E731
        windows = windows_of(s, byte_at)
        for j, network in enumerate(networks):
            write_features(s, windows, *network, x, (j, row))
        if s.beside:
            other, is_one = beside_of(s, byte_at)
            for j in range(s.networks):
                store(x, (j, row, s.features + other), is_one, other < s.beside)

    jax.lax.fori_loop(0, s.cut.see_all, one, None)


def windows(s: Sizes, number: Any, unit: Any, batch: Any, dx: Any, sums: Any) -> None:
    """A program some rows of the batch: the gradient of the convolution's weights and biases."""
    part = pl.program_id(0)
    place, filter_ = grid(power(s.places), s.filters)
    k, filter__ = grid(16 * s.groups, s.filters)
    weight, bias = jnp.zeros(k.shape, jnp.float32), jnp.zeros(s.filters, jnp.float32)
    for i in range(s.cut.windows):
        row = part * s.cut.windows + i
        dy = load(dx, (row, place * s.filters + filter_), below(place, s.places, power(s.places)))
        weight += dot(windows_of(s, lambda index, row=row: load(batch, (number[0], row, index)), True), dy)
        bias += jnp.sum(dy.astype(jnp.float32), axis=0)
    store(sums, (part, k * s.filters + filter__), weight * unit[0])
    sums[part, pl.ds(k.size, s.filters)] = bias * unit[0]
