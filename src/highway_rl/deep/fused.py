"""One update as seven kernels, for GPUs: what `dqn.learn` does, with the weights read and written once.

A step of many small runs is bound by memory and by the number of kernels. The gradient of the dense layer is the
product of what goes in, X, and what comes back, D, of which a tile is made where it is needed: once to be measured for
clipping, once for the step. It is never in memory. Of k networks only number `net` is touched, in place.

    see     bits → windows → convolution → X          all k networks at the observations to act on, one at the batch
    dense   X·W, in a few partial sums
    head    q, loss, the best actions, D, gradients of head and bias
    back    D·Wᵀ under the convolution, and Σ (XᵀD)² of each tile
    windows the convolution's gradient, in a few partial sums
    small   the length of the gradient, the step of all small weights
    large   the step of the dense layer: W and its moments, one read and one write

It fits a network of one convolution, one dense layer and a linear head that looks at truth values, which is MinAtar's,
and an optimiser that treats each number alone. Everything else takes the plain formula, which is also the reference
of the tests.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, PyTree, UInt8

from highway_rl.deep.networks import BoardNetwork, Linear
from highway_rl.deep.weights import Weights
from highway_rl.types import Spec

if TYPE_CHECKING:
    from highway_rl.deep.dqn import DQN, Batch, Learning


class Tuning(NamedTuple):
    """How the work of each kernel is cut. Measured on an H200, with 60 runs and with one."""

    see_all: int = 16
    """Observations of a program of `see_all`."""
    dense: int = 32
    """Inputs of the dense layer in a tile of the forward product."""
    parts: int = 6
    """Partial sums of that product: more programs at once, more to add up."""
    back: int = 64
    """Inputs of the dense layer in a program of `back`, and of `large`."""
    large: int = 16
    windows: int = 2
    """Rows of the batch in a partial sum of the convolution's gradient."""
    stages: int = 3
    """Tiles of that product under way at once."""
    evict: bool = True
    warps: tuple[int, ...] = (4, 4, 4, 8, 2, 16, 4)
    """Of each kernel in the order above."""


TUNING = Tuning()


class Sizes(NamedTuple):
    """What the kernels must know when they are compiled. `places` are the positions of a window, `taps` its numbers."""

    batch: int
    here: int
    networks: int
    board: tuple[int, int, int]
    window: tuple[int, int]
    filters: int
    beside: int
    hidden: int
    actions: int

    @property
    def columns(self) -> int:
        return (self.board[1] - self.window[0]) // self.window[1] + 1

    @property
    def places(self) -> int:
        return ((self.board[0] - self.window[0]) // self.window[1] + 1) * self.columns

    @property
    def taps(self) -> int:
        return self.window[0] ** 2 * self.board[2]

    @property
    def features(self) -> int:
        return self.places * self.filters

    @property
    def inputs(self) -> int:
        return self.features + self.beside

    @property
    def convolution(self) -> int:
        """Its weights and biases: the first so many of the small numbers, then the dense layer's bias and the head."""
        return (self.taps + 1) * self.filters

    @property
    def small(self) -> int:
        return self.convolution + self.hidden + (self.hidden + 1) * self.actions


def power(count: int, least: int = 16) -> int:
    """The next power of two: the only lengths that a kernel's arrays may have."""
    return max(least, 1 << (count - 1).bit_length())


def fits(agent: DQN, spec: Spec, envs: int) -> Sizes | None:
    """The sizes of an agent that these kernels can train, else None."""
    leaves = jax.tree.leaves(spec.observation)
    if any(leaf.dtype != bool for leaf in leaves) or leaves[0].ndim != 3:
        return None
    network = jax.eval_shape(lambda: agent.network(spec, jax.random.key(0)))
    if type(network) is not BoardNetwork or not isinstance(network.head, Linear):
        return None
    if len(network.convolutions) != 1 or len(network.hidden) != 1:
        return None
    inputs, hidden = network.hidden[0].weight.shape
    filters = network.convolutions[0].bias.shape[0]
    beside = sum(int(np.prod(leaf.shape)) for leaf in leaves[1:])
    sizes = Sizes(
        agent.batch_size, max(envs, 1), agent.num_networks, leaves[0].shape, network.windows[0], filters, beside,
        hidden, spec.num_actions,
    )  # fmt: skip
    weights = jax.eval_shape(lambda: Weights([jnp.zeros((inputs, hidden))], jnp.zeros(sizes.small)))
    state = jax.eval_shape(agent.optimizer().init, weights)
    alone = all(isinstance(leaf, Weights) for leaf in jax.tree.leaves(state, is_leaf=_is_weights))
    powers = all(n == power(n) and n <= 256 for n in (sizes.batch, filters, hidden))
    fine = sizes.inputs == inputs and inputs * hidden > 2**16 and powers and alone and envs <= 16
    return sizes if fine else None


def learn(
    agent: DQN,
    sizes: Sizes,
    learning: Learning,
    batches: Batch,
    at: tuple[Any, int],
    here: UInt8[Array, "e w"],
    interpret: bool = False,
) -> tuple[Learning, Float[Array, ""], Int[Array, "e"]]:
    """`dqn.learn`: one update on batch `at` of those drawn, its loss, and the best actions at `here` before it."""
    cut, (turn, update) = TUNING, at
    see, dense, head, back, windows, few, many = (functools.partial(_call, sizes, interpret, n) for n in cut.warps)
    number = jnp.asarray(turn, jnp.int32) * batches.net.shape[1] + update
    net, obs, taken, target = (x.reshape(-1, *x.shape[2:]) for x in batches)
    chosen = _Chosen(number.reshape(1), net)
    seen = here if here.shape[0] else obs[0, :1]
    (wide,), small = learning.params
    rows = sizes.batch + sizes.networks * sizes.here
    x = see(_see, rows, [_half(rows, sizes.inputs)], *chosen, seen, obs, small)[0]
    parts = min(cut.parts, -(-sizes.inputs // cut.dense))
    out = [_single(parts, sizes.networks, power(sizes.batch + sizes.here), sizes.hidden)]
    sums = dense(_dense, parts * sizes.networks, out, *chosen, x, wide)[0]
    out = [_half(sizes.batch, sizes.hidden), _single(1), _single(sizes.small - sizes.convolution), _single(1)]
    out.append(jax.ShapeDtypeStruct((sizes.here,), jnp.int32))
    huber = functools.partial(_head, agent.loss == "huber")
    d, unit, beyond, loss, best = head(huber, 3, out, *chosen, small, sums, taken, target)
    tiles = -(-sizes.inputs // cut.back)
    out = [_half(sizes.batch, sizes.features), _single(tiles)]
    dx, lengths = back(_back, tiles, out, *chosen, d, unit, x, wide)
    splits = -(-sizes.batch // cut.windows)
    conv = windows(
        _windows, splits, [_single(splits, (16 * _groups(sizes)[1] + 1) * sizes.filters)], chosen.number, unit, obs, dx
    )[0]
    step = functools.partial(_step, agent.optimizer())
    rate, most = (jnp.asarray(v, jnp.float32).reshape(1) for v in (agent.learning_rate, agent.max_gradient))
    # the small numbers first: that kernel also finds by how much the gradient is shrunk
    flat, structure = jax.tree.flatten((small, _part(learning.moments, lambda w: w.small)))
    given = (*chosen, rate, most, lengths, conv, beyond, unit, *flat)
    *flat, shrink = few(functools.partial(_small, step, structure), 1, [*flat, _single(1)], *given, inplace=len(flat))
    small, small_moments = jax.tree.unflatten(structure, flat)
    flat, structure = jax.tree.flatten((wide, _part(learning.moments, lambda w: w.large[0])))
    given = (*chosen, rate, shrink, d, x, *flat)
    tiles = -(-sizes.inputs // cut.large)
    flat = many(functools.partial(_large, step, structure), tiles, flat, *given, inplace=len(flat))
    wide, wide_moments = jax.tree.unflatten(structure, flat)
    moments = jax.tree.map(lambda w, s: Weights([w], s), wide_moments, small_moments)
    return learning._replace(params=Weights([wide], small), moments=moments), loss[0], best[: here.shape[0]]


def prepared(sizes: Sizes, params: Weights, interpret: bool = False) -> Any:
    """`dqn.q_values` for many stored observations: the smallest of the networks' values."""
    (wide,), small = params
    halves = jax.lax.optimization_barrier(wide.astype(jnp.float16))  # once, and not for every piece of the store
    bias, weight, last = jnp.split(
        small[:, sizes.convolution :], [sizes.hidden, sizes.small - sizes.convolution - sizes.actions], axis=1
    )

    def each(x: Array, wide: Array, bias: Array, weight: Array, last: Array) -> Array:
        h = jax.nn.relu(jnp.dot(x, wide, preferred_element_type=jnp.float32) + bias)
        return h @ weight.reshape(sizes.hidden, sizes.actions) + last

    def values(rows: UInt8[Array, "t w"]) -> Float[Array, "t a"]:
        out = [_half(sizes.networks, rows.shape[0], sizes.inputs)]
        programs = -(-rows.shape[0] // TUNING.see_all)
        x = _call(sizes, interpret, TUNING.warps[0], _see_all, programs, out, rows, small)[0]
        return jnp.min(jax.vmap(each)(x, halves, bias, weight, last), axis=0)

    return values


class _Chosen(NamedTuple):
    """The number of the batch, and the number of the network that learns from each."""

    number: Int[Array, "1"]
    net: Int[Array, "batches"]


def _call(
    sizes: Sizes, interpret: bool, warps: int, kernel: Any, programs: int, out: list, *given: Array, inplace: int = 0
) -> list[Array]:
    """Runs a kernel in so many programs. The last `inplace` arrays given become the first that come out."""
    return pl.pallas_call(
        functools.partial(kernel, sizes),
        grid=(programs,),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in out],
        input_output_aliases={len(given) - inplace + i: i for i in range(inplace)},
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=TUNING.stages),
        interpret=interpret,
    )(*given)


def _single(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _half(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float16)


def _is_weights(x: object) -> bool:
    return isinstance(x, Weights)


def _part(moments: PyTree, part: Any) -> PyTree:
    """An optimiser's state as it would be for one array of the weights."""
    return jax.tree.map(part, moments, is_leaf=_is_weights)


def _load(ref: Any, index: tuple, mask: Any = None, **cache: Any) -> Array:
    """What lies at an index, zero where the mask says no."""
    other = None if mask is None else jnp.zeros((), ref.dtype)
    return triton.load(_at(ref, index), mask=mask, other=other, **cache)


def _store(ref: Any, index: tuple, value: Array, mask: Any = None, **cache: Any) -> None:
    triton.store(_at(ref, index), value, mask=mask, **cache)


def _at(ref: Any, index: tuple) -> Any:
    return ref.at[tuple(jnp.int32(i) if isinstance(i, int) else i for i in index)]


def _below(index: Array, count: int, tile: int) -> Array | None:
    """Which of a tile's indices there are: no mask where tiles of this size cover all of them exactly."""
    return None if count % tile == 0 else index < count


def _grid(rows: int, columns: int) -> tuple[Array, Array]:
    """Numbers of row and column of a matrix."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (rows, columns), axis) for axis in (0, 1))
    return row, column


def _dot(a: Array, b: Array) -> Float[Array, "m n"]:
    """Half precision times half precision, summed in single precision."""
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _groups(s: Sizes) -> tuple[int, int]:
    """A window's row is so many groups of 16 taps, the last filled up; so many groups there are in all, filled up."""
    row = -(-s.window[0] * s.board[2] // 16)
    return row, power(s.window[0] * row, 1)


def _taps(s: Sizes, group: Array, inner: Array) -> tuple[Array, Array]:
    """The number of a tap among the convolution's weights, and whether there is one."""
    (size, _), channels, (per_row, _) = s.window, s.board[2], _groups(s)
    row, column = _div(group, per_row), _rem(group, per_row) * 16 + inner
    return row * size * channels + column, (row < size) & (column < size * channels)


def _windows_of(s: Sizes, byte_at: Any, transposed: bool = False) -> Array:
    """Every window of an observation as 0 and 1 in half precision, [places, groups · 16], or the other way round.

    The 16 taps of a group are neighbours among the bits: three bytes hold them, wherever they begin.
    """
    stride, (height, width, channels) = s.window[1], s.board
    per_row, groups = _groups(s)
    places = power(s.places)
    shape = (groups, places) if transposed else (places, groups)
    place, group = (jax.lax.broadcasted_iota(jnp.int32, shape, int(transposed) ^ axis) for axis in (0, 1))
    row = jnp.minimum(_div(place, s.columns) * stride + _div(group, per_row), height - 1)
    column = _rem(place, s.columns) * stride
    first = (row * width + column) * channels + _rem(group, per_row) * 16
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


def _div(x: Array, y: int) -> Array:
    return jax.lax.div(x, jnp.int32(y))


def _rem(x: Array, y: int) -> Array:
    return jax.lax.rem(x, jnp.int32(y))


def _beside(s: Sizes, byte_at: Any) -> tuple[Array, Array]:
    """Truth values of the observation that are not on its board: their numbers, and 0 or 1 in half precision."""
    other = jnp.arange(power(s.beside))
    index = int(np.prod(s.board)) + jnp.minimum(other, s.beside - 1)
    bits = byte_at(index >> 3).astype(jnp.int32) & (jnp.int32(128) >> (index & 7))
    return other, jnp.where(bits != 0, jnp.float16(1), jnp.float16(0))


def _convolution(s: Sizes, small: Any, network: Any) -> tuple[Array, Array]:
    """Weights, zero where a group has no tap, and biases of a network's convolution."""
    k, filter_ = _grid(16 * _groups(s)[1], s.filters)
    tap, real = _taps(s, k >> 4, k & 15)
    weight = _load(small, (network, tap * s.filters + filter_), real).astype(jnp.float16)
    return weight, _load(small, (network, pl.ds(s.taps * s.filters, s.filters)))


def _features(s: Sizes, windows: Array, weight: Array, bias: Array, x: Any, row: tuple) -> None:
    """Writes a row's features, of a network."""
    place, filter_ = _grid(power(s.places), s.filters)
    y = jax.nn.relu(_dot(windows, weight) + bias[None, :]).astype(jnp.float16)
    _store(x, (*row, place * s.filters + filter_), y, _below(place, s.places, power(s.places)))


def _see(s: Sizes, number: Any, net: Any, here: Any, batch: Any, small: Any, x: Any) -> None:
    """A program a row: the batch with network `net`, then the observations to act on with each network."""
    t, row = number[0], pl.program_id(0)
    learns, view = row < s.batch, jnp.maximum(row - s.batch, 0)
    network = jnp.where(learns, net[t], _div(view, s.here))
    in_batch, in_here = jnp.minimum(row, s.batch - 1), _rem(view, s.here)

    def byte_at(index: Array) -> Array:  # one load or the other
        return jax.lax.cond(learns, lambda: _load(batch, (t, in_batch, index)), lambda: _load(here, (in_here, index)))

    _features(s, _windows_of(s, byte_at), *_convolution(s, small, network), x, (row,))
    if s.beside:
        other, is_one = _beside(s, byte_at)
        _store(x, (row, s.features + other), is_one, other < s.beside)


def _see_all(s: Sizes, rows: Any, small: Any, x: Any) -> None:
    """A program some rows: what every network's dense layer gets of them."""
    networks = [_convolution(s, small, j) for j in range(s.networks)]
    first = pl.program_id(0) * TUNING.see_all

    def one(i: Any, _: Any) -> None:
        row = jnp.minimum(first + i, rows.shape[0] - 1)
        byte_at = lambda index: _load(rows, (row, index))  # noqa: E731
        windows = _windows_of(s, byte_at)
        for j, network in enumerate(networks):
            _features(s, windows, *network, x, (j, row))
        if s.beside:
            other, is_one = _beside(s, byte_at)
            for j in range(s.networks):
                _store(x, (j, row, s.features + other), is_one, other < s.beside)

    jax.lax.fori_loop(0, TUNING.see_all, one, None)


def _dense(s: Sizes, number: Any, net: Any, x: Any, wide: Any, sums: Any) -> None:
    """A program a partial sum and a network: X·W of the observations to act on, and of the batch, which is kept where
    the network is `net`."""
    tile, parts = TUNING.dense, sums.shape[0]
    part, j = pl.program_id(0) // s.networks, pl.program_id(0) % s.networks
    share, rows = -(-s.inputs // (tile * parts)), sums.shape[2]
    row, column = _grid(rows, tile)
    place = lambda row: jnp.where(row < s.batch, row, jnp.minimum(row, s.batch + s.here - 1) + j * s.here)  # noqa: E731

    def add(i: Any, total: Array) -> Array:
        first = (part * share + i) * tile
        inside = _below(first + _grid(tile, s.hidden)[0], s.inputs, tile * parts)
        w = _load(wide, (j, pl.ds(first, tile), slice(None)), inside).astype(jnp.float16)
        return total + _dot(_load(x, (place(row), first + column), _below(first + column, s.inputs, tile * parts)), w)

    total = jax.lax.fori_loop(0, share, add, jnp.zeros((rows, s.hidden), jnp.float32))
    row, column = _grid(rows, s.hidden)
    wanted = (row < s.batch + s.here) & ((row >= s.batch) | (j == net[number[0]]))
    _store(sums, (part, j, row, column), total, wanted)


def _head(
    huber: bool, s: Sizes, number: Any, net: Any, small: Any, sums: Any, taken: Any, target: Any, d: Any, unit: Any,
    beyond: Any, loss: Any, best: Any,
) -> None:  # fmt: skip
    """Three programs, each with the values it needs: the loss and D, what comes back to the dense layer; the best
    actions; the gradients beyond the dense layer.

    D is in half precision, in units that keep its largest number near 16.
    """
    t = number[0]
    bias, weight, last = s.convolution, s.convolution + s.hidden, s.small - s.actions
    hidden = jnp.arange(s.hidden)

    def column(j: Any, action: int) -> Array:
        return _load(small, (j, weight + hidden * s.actions + action))

    def features(j: Any, first: Any, rows: int) -> Array:
        h = _load(small, (j, pl.ds(bias, s.hidden)))[None, :]
        for part in range(sums.shape[0]):
            h += _load(sums, (part, j, pl.ds(first, rows), slice(None)))
        return jax.nn.relu(h)

    @pl.when(pl.program_id(0) == 1)
    def _() -> None:
        for i in range(s.here):
            each = [features(j, s.batch + i, 1) for j in range(s.networks)]
            top, greedy = jnp.float32(-jnp.inf), jnp.int32(0)
            for action in range(s.actions):
                q = [jnp.sum(h * column(j, action)[None, :]) + small[j, last + action] for j, h in enumerate(each)]
                lowest = functools.reduce(jnp.minimum, q)
                greedy = jnp.where(lowest > top, jnp.int32(action), greedy)
                top = jnp.where(lowest > top, lowest, top)
            best[i] = greedy

    def errors() -> tuple[Array, Array, Array, Array, Array]:
        n, action_of = net[t], _load(taken, (t, pl.ds(0, s.batch)))
        h = features(n, 0, s.batch)
        chosen, w_chosen = jnp.zeros(s.batch, jnp.float32), jnp.zeros((s.batch, s.hidden), jnp.float32)
        for action in range(s.actions):
            w, is_it = column(n, action), action_of == action
            q = jnp.sum(h * w[None, :], axis=1) + small[n, last + action]
            chosen, w_chosen = jnp.where(is_it, q, chosen), jnp.where(is_it[:, None], w[None, :], w_chosen)
        error = _load(target, (t, pl.ds(0, s.batch))) - chosen
        slope = (jnp.clip(error, -1.0, 1.0) if huber else error) / -s.batch
        return h, action_of, error, slope, jnp.where(h > 0, slope[:, None] * w_chosen, 0.0)

    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        _, _, error, _, dh = errors()
        peak = jnp.max(jnp.abs(dh))
        exponent = jax.lax.bitcast_convert_type(peak, jnp.int32) & 0x7F800000
        one = jnp.where(peak > 1e-30, jax.lax.bitcast_convert_type(exponent, jnp.float32) / 16, 1.0)
        unit[0] = one
        d[...] = (dh / one).astype(jnp.float16)
        size = jnp.abs(error)
        each = jnp.where(size <= 1, 0.5 * error * error, size - 0.5) if huber else 0.5 * error * error
        loss[0] = jnp.sum(each) / s.batch

    @pl.when(pl.program_id(0) == 2)
    def _() -> None:
        h, action_of, _, slope, dh = errors()
        for action in range(s.actions):
            dq = jnp.where(action_of == action, slope, 0.0)
            _store(beyond, (s.hidden + hidden * s.actions + action,), jnp.sum(h * dq[:, None], axis=0))
            beyond[last - bias + action] = jnp.sum(dq)
        beyond[pl.ds(0, s.hidden)] = jnp.sum(dh, axis=0)


def _tile(s: Sizes, x: Any, tile: int) -> tuple[Any, Array]:
    """A program's inputs of the dense layer, and what the batch gives there."""
    at = pl.ds(pl.program_id(0) * tile, tile)
    column = pl.program_id(0) * tile + _grid(s.batch, tile)[1]
    return at, _load(x, (pl.ds(0, s.batch), at), _below(column, s.inputs, tile))


def _rows(s: Sizes, tile: int) -> Array | None:
    """Which rows of W in a program's tile there are."""
    return _below(pl.program_id(0) * tile + _grid(tile, s.hidden)[0], s.inputs, tile)


def _back(s: Sizes, number: Any, net: Any, d: Any, unit: Any, x: Any, wide: Any, dx: Any, lengths: Any) -> None:
    """A program a tile: what comes back to the convolution, and the tile's share of the gradient's squared length."""
    tile = TUNING.back
    at, seen = _tile(s, x, tile)
    w = _load(wide, (net[number[0]], at, slice(None)), _rows(s, tile)).astype(jnp.float16)
    back = d[...]
    g = _dot(seen.T, back) * unit[0]
    lengths[pl.program_id(0)] = jnp.sum(g * g)
    below = jnp.where(seen > 0, _dot(back, w.T), 0.0).astype(jnp.float16)
    column = pl.program_id(0) * tile + _grid(s.batch, tile)[1]
    _store(dx, (pl.ds(0, s.batch), at), below, column < s.features)


def _windows(s: Sizes, number: Any, unit: Any, batch: Any, dx: Any, sums: Any) -> None:
    """A program some rows of the batch: the gradient of the convolution's weights and biases."""
    part = pl.program_id(0)
    place, filter_ = _grid(power(s.places), s.filters)
    k, filter__ = _grid(16 * _groups(s)[1], s.filters)
    weight, bias = jnp.zeros(k.shape, jnp.float32), jnp.zeros(s.filters, jnp.float32)
    for i in range(TUNING.windows):
        row = part * TUNING.windows + i
        dy = _load(dx, (row, place * s.filters + filter_), _below(place, s.places, power(s.places)))
        weight += _dot(_windows_of(s, lambda index, row=row: _load(batch, (number[0], row, index)), True), dy)
        bias += jnp.sum(dy.astype(jnp.float32), axis=0)
    _store(sums, (part, k * s.filters + filter__), weight * unit[0])
    sums[part, pl.ds(k.size, s.filters)] = bias * unit[0]


def _step(optimizer: Any, rate: Array, gradient: Array, params: Array, moments: PyTree) -> PyTree:
    """Numbers and their moments after a step of the optimiser."""
    change, moments = optimizer.update(gradient, moments, params)
    return params + rate * change, moments


def _small(step: Any, structure: Any, s: Sizes, *refs: Any) -> None:
    """One program: how much the gradient is shrunk, in units of D, and the step of all small numbers."""
    number, net, rate, most, lengths, conv, beyond, unit, *rest = refs
    count = structure.num_leaves
    given, (*made, shrink) = rest[:count], rest[count:]
    n, tile = net[number[0]], jnp.arange(power(lengths.shape[0]))
    total = jnp.sum(_load(lengths, (tile,), tile < lengths.shape[0]))
    place = jnp.arange(power(s.convolution))
    gradient = jnp.zeros(place.shape, jnp.float32)
    row, column = (
        _div(_div(place, s.filters), s.taps // s.window[0]),
        _rem(_div(place, s.filters), s.taps // s.window[0]),
    )
    per_row, groups = _groups(s)
    k = jnp.where(place < s.taps * s.filters, (row * per_row + (column >> 4)) * 16 + (column & 15), groups * 16)
    for part in range(conv.shape[0]):
        gradient += _load(conv, (part, k * s.filters + _rem(place, s.filters)), place < s.convolution)
    pieces = [(place, place < s.convolution, gradient)]
    place = jnp.arange(power(s.small - s.convolution))
    real = place < s.small - s.convolution
    pieces.append((s.convolution + place, real, _load(beyond, (place,), real)))
    total += sum(jnp.sum(gradient * gradient) for _, _, gradient in pieces)
    factor = jnp.minimum(1.0, most[0] / jnp.maximum(jnp.sqrt(total), 1e-12))
    shrink[0] = factor * unit[0]
    for place, real, gradient in pieces:
        params, moments = jax.tree.unflatten(structure, [_load(ref, (n, place), real) for ref in given])
        after = step(rate[0], gradient * factor, params, moments)
        for ref, value in zip(made, jax.tree.leaves(after), strict=True):
            _store(ref, (n, place), value, real)


def _large(step: Any, structure: Any, s: Sizes, *refs: Any) -> None:
    """A program a tile: its gradient, made here, and the step of the dense layer's weights."""
    number, net, rate, shrink, d, x, *rest = refs
    given, made = rest[: structure.num_leaves], rest[structure.num_leaves :]
    at, seen = _tile(s, x, TUNING.large)
    place, inside = (net[number[0]], at, slice(None)), _rows(s, TUNING.large)
    once = {"eviction_policy": "evict_first"} if TUNING.evict else {}
    keep: list[dict] = [{}] + [once] * (
        len(given) - 1
    )  # the weights are read again by the next step, their moments are not
    params, moments = jax.tree.unflatten(
        structure, [_load(ref, place, inside, **how) for ref, how in zip(given, keep, strict=True)]
    )
    after = step(rate[0], _dot(seen.T, d[...]) * shrink[0], params, moments)
    for ref, value, how in zip(made, jax.tree.leaves(after), keep, strict=True):
        _store(ref, place, value, inside, **how)
