"""Action-value networks: each maps one observation to q[a]; whoever uses one vmaps it over a batch.

A network is made by a function (spec, key) → module, any Equinox module. Your own takes three lines:

    def mine(spec, key):
        return eqx.nn.MLP(spec.observation.shape[0], spec.num_actions, 64, 2, key=key)

    register_network("mine", mine)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from highway_rl import checks
from highway_rl.deep.layers import Dueling, Linear, convolve, dense, patches, scaled, split, split_shapes, unit
from highway_rl.registry import Registry
from highway_rl.types import Spec

MakeNetwork = Callable[[Spec, PRNGKeyArray], Any]

BAND = 4
"""Rows of features that one matrix product makes at a time, where the whole store goes through a network."""


class BoardNetwork(eqx.Module):
    """Convolutions on the boards, the other parts of the observation beside their features, dense layers, a head.

    Dense layers are `level` where each is brought to one scale.
    """

    convolutions: list[Linear]
    hidden: list[Linear]
    head: Linear | Dueling
    windows: tuple[tuple[int, int], ...] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    level: bool = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        key: PRNGKeyArray,
        *,
        filters: Sequence[tuple[int, int, int]] = ((16, 3, 1),),
        hidden: Sequence[int] = (128,),
        dueling: bool = False,
        level: bool = False,
    ) -> None:
        boards, others = split_shapes(spec.observation)
        if len(boards) != 1:
            raise ValueError(f"{spec.name} shows {len(boards)} boards: give a network of your own, or mlp")
        (height, width, channels), extra = boards[0], sum(others)
        keys = iter(jax.random.split(key, len(filters) + len(hidden) + 2))
        self.shape, self.level = boards[0], level
        self.windows = tuple((size, stride) for _, size, stride in filters)
        self.convolutions = []
        for count, size, stride in filters:
            self.convolutions.append(Linear(size * size * channels, count, next(keys)))
            height, width, channels = (height - size) // stride + 1, (width - size) // stride + 1, count
            if height < 1 or width < 1:
                raise ValueError(
                    f"{spec.name} has a board {boards[0]} too small for windows of {size}: give another network"
                )
        sizes = (height * width * channels + extra, *hidden)
        self.hidden = [Linear(a, b, next(keys)) for a, b in pairwise(sizes)]
        self.head = (Dueling if dueling else Linear)(hidden[-1], spec.num_actions, next(keys))

    def __call__(self, obs: PyTree) -> Float[Array, "a"]:
        (board,), others = split(obs)
        return self.beyond(self.features(board), others)

    def many(self, obs: PyTree) -> Float[Array, "n a"]:
        """Of n observations: pictures go through the convolutions together, whose gradients then are single products of
        matrices."""
        leaves = jax.tree.leaves(obs)
        (board,) = (x for x in leaves if x.ndim == 4)
        if board.dtype == bool:
            return jax.vmap(self)(obs)
        others = [x for x in leaves if x is not board]
        return jax.vmap(lambda x, others: self.beyond(x, split(others)[1]))(self.features(board), others)

    def features(self, x: Array) -> Float[Array, "*n h w c"]:
        """What the convolutions make of a board, or of many."""
        for layer, window in zip(self.convolutions, self.windows, strict=True):
            x = jax.nn.relu(convolve(layer, x, *window))
        return x

    def beyond(self, x: Float[Array, "h w c"], others: list[Array]) -> Float[Array, "a"]:
        """What the dense layers make of those features, with the observation's other parts beside them."""
        features = jnp.concatenate([x.reshape(-1), *others])
        # left alone, XLA would split the product with these features into one for each part
        features = jax.lax.optimization_barrier(features) if others else features
        return dense(self.hidden, self.head, features, self.level)

    def prepared(self) -> BoardNetwork | SmallBoards:
        """The same function, faster on many small boards: there a GPU prefers large matrix products to the traffic of
        cutting every board into windows."""
        if len(self.convolutions) > 1 or self.shape[0] * self.shape[1] > 144:
            return self
        return SmallBoards(self)


def of_many(network: Any, obs: PyTree) -> Float[Array, "n a"]:
    """The network's values of n observations, by a way of its own (`many`) where it has one."""
    return network.many(obs) if hasattr(network, "many") else jax.vmap(network)(obs)


class SmallBoards(eqx.Module):
    """A `BoardNetwork` with its convolution written out as a matrix that maps a band of the board's rows to
    `BAND` rows of features: more arithmetic than window by window, and fewer bytes. Only GPUs use it."""

    network: BoardNetwork
    matrix: Float[Array, "band features"]
    first: Float[Array, "features hidden"]
    beside: Float[Array, "others hidden"]

    def __init__(self, network: BoardNetwork) -> None:
        self.network = network
        (layer,), (window,) = network.convolutions, network.windows
        self.matrix = unrolled(layer.weight, layer.bias, (self.rows[0], *network.shape[1:]), *window)
        features = self.rows[2] * self.matrix.shape[1]
        self.first, self.beside = jnp.split(network.hidden[0].weight, [features])

    @property
    def rows(self) -> tuple[int, int, int]:
        """Rows of the board in a band, rows from one band to the next, number of bands."""
        (size, stride) = self.network.windows[0]
        found = (self.network.shape[0] - size) // stride + 1
        band = max(b for b in range(1, BAND + 1) if found % b == 0)
        return stride * (band - 1) + size, stride * band, found // band

    def __call__(self, obs: PyTree) -> Float[Array, "a"]:
        return jax.lax.platform_dependent(obs, cpu=lambda o: self.network(o), default=lambda o: self.by_bands(o))

    def by_bands(self, obs: PyTree) -> Float[Array, "a"]:
        (x,), others = split(obs)
        height, step, count = self.rows
        x = scaled(x)  # here and not before the product, where it would be a pass over memory of its own
        bands = jnp.stack([x[i * step : i * step + height].reshape(-1) for i in range(count)])
        one = jnp.arange(self.matrix.shape[0] - bands.shape[1]) == 0
        bands = jnp.concatenate([bands, jnp.tile(one.astype(x.dtype), (count, 1))], axis=1)
        y = jax.nn.relu(bands @ self.matrix).reshape(-1) @ self.first
        if others:
            y = y + jnp.concatenate(others) @ self.beside
        (first, *rest), level = self.network.hidden, self.network.level
        return dense(rest, self.network.head, unit(y + first.bias, level), level)


def unrolled(
    weight: Float[Array, "f o"], bias: Float[Array, "o"], shape: tuple[int, ...], size: int, stride: int
) -> Float[Array, "b o2"]:
    """The matrix that does to a flat board, with a one and zeros after it, what `weight` and `bias` do to its windows.

    Three rows of zeros keep the number of rows a multiple of four.
    """
    cells = np.arange(np.prod(shape)).reshape(shape)
    windows = np.asarray(patches(cells, size, stride))  # which cell each window's number comes from
    count = windows.shape[0] * windows.shape[1]
    matrix = jnp.zeros((cells.size + 4 - cells.size % 4, count, weight.shape[1]), weight.dtype)
    matrix = matrix.at[windows.reshape(count, -1), np.arange(count)[:, None]].set(weight).at[cells.size].set(bias)
    return matrix.reshape(matrix.shape[0], -1)


class FlatNetwork(eqx.Module):
    """Dense layers on the whole observation as one vector; `level` where each is brought to one scale."""

    hidden: list[Linear]
    head: Linear | Dueling
    level: bool = eqx.field(static=True)

    def __init__(
        self,
        spec: Spec,
        key: PRNGKeyArray,
        *,
        hidden: Sequence[int] = (128, 128),
        dueling: bool = False,
        level: bool = False,
    ) -> None:
        self.level = level
        sizes = [sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(spec.observation)), *hidden]
        keys = jax.random.split(key, len(sizes))
        self.hidden = [Linear(a, b, k) for a, b, k in zip(sizes[:-1], sizes[1:], keys[1:], strict=True)]
        self.head = (Dueling if dueling else Linear)(sizes[-1], spec.num_actions, keys[0])

    def __call__(self, obs: PyTree) -> Float[Array, "a"]:
        y = jnp.concatenate([scaled(leaf).reshape(-1) for leaf in jax.tree.leaves(obs)])
        return dense(self.hidden, self.head, y, self.level)


def minatar(spec: Spec, key: PRNGKeyArray, **options: Any) -> BoardNetwork:
    """MinAtar's: 16 filters of 3 × 3, a layer of 128. The delay's one-hot joins the convolution's features."""
    return BoardNetwork(spec, key, **options)


def nature(spec: Spec, key: PRNGKeyArray, **options: Any) -> BoardNetwork:
    """The Nature DQN's: three convolutions and a layer of 512, for pictures of about 84 × 84."""
    return BoardNetwork(spec, key, filters=((32, 8, 4), (64, 4, 2), (64, 3, 1)), hidden=(512,), **options)


def mlp(spec: Spec, key: PRNGKeyArray, **options: Any) -> FlatNetwork:
    """Two layers of 128 on the flat observation."""
    return FlatNetwork(spec, key, **options)


def auto(spec: Spec, key: PRNGKeyArray, **options: Any) -> BoardNetwork | FlatNetwork:
    """`minatar` where the observation holds a small board, `nature` where it holds a picture, else `mlp`."""
    boards, _ = split_shapes(spec.observation)
    if len(boards) != 1 or min(boards[0][:2]) < 3:
        return mlp(spec, key, **options)
    return (minatar if min(boards[0][:2]) < 36 else nature)(spec, key, **options)


def calm(spec: Spec, key: PRNGKeyArray) -> BoardNetwork | FlatNetwork:
    """`auto` with a hundredth of its last weights, so that values are near zero at first.

    The gate compares with what the network thinks. Where values start above the true ones it stays shut until they have
    fallen, a factor γ a refresh; where rewards are not negative, near zero they are below and it is open. Not zero: an
    agent whose values are all equal would always take the same action, and explore less.
    """
    return _small_head(auto(spec, key))


def uniform(spec: Spec, key: PRNGKeyArray, **options: Any) -> BoardNetwork | FlatNetwork:
    """`auto` with weights and biases that begin uniform in ±1/√inputs, as PyTorch's do, and so those of MinAtar's
    authors."""
    key, made = jax.random.split(key)[0], auto(spec, key, **options)
    layers = lambda m: jax.tree.leaves(m, is_leaf=_is_linear)  # noqa: E731

    def drawn(layer: Linear, key: PRNGKeyArray) -> Linear:
        weight, bias = jax.random.split(key)
        bound = 1 / np.sqrt(layer.weight.shape[0])
        numbers = functools.partial(jax.random.uniform, dtype=jnp.float32, minval=-bound, maxval=bound)
        found = numbers(weight, layer.weight.shape), numbers(bias, layer.bias.shape)
        return eqx.tree_at(lambda x: (x.weight, x.bias), layer, found)

    found = layers(made)
    keys = jax.random.split(key, len(found))
    return eqx.tree_at(layers, made, [drawn(x, k) for x, k in zip(found, keys, strict=True)])


def level(spec: Spec, key: PRNGKeyArray) -> BoardNetwork | FlatNetwork:
    """`calm` for tasks that nobody has tuned it to. Two more things differ from `auto`:

    Each dense layer is brought to mean zero and deviation one before its relu (LayerNorm), against values of
    what is not in the batch drifting away.

    Weights and biases begin as in `uniform`. With biases of zero every unit bends at the origin,
    where an observation of a few small numbers lies, and of such a layer brought to one scale only a direction is left.
    """
    return _small_head(uniform(spec, key, level=True))


def _small_head(made: Any) -> Any:
    """The network with a hundredth of its last weights, and no last biases."""
    last = lambda m: jax.tree.leaves(m.head, is_leaf=_is_linear)  # noqa: E731
    smaller = [eqx.tree_at(lambda x: (x.weight, x.bias), x, (x.weight / 100, x.bias * 0)) for x in last(made)]
    return eqx.tree_at(last, made, smaller, is_leaf=_is_linear)


def _is_linear(x: object) -> bool:
    return isinstance(x, Linear)


NETWORKS: Registry[MakeNetwork] = Registry(
    "network",
    "networks",
    {
        "auto": auto,
        "calm": calm,
        "level": level,
        "uniform": uniform,
        "minatar": minatar,
        "nature": nature,
        "mlp": mlp,
        "dueling-minatar": functools.partial(BoardNetwork, dueling=True),
        "dueling-mlp": functools.partial(FlatNetwork, dueling=True),
    },
)


def register_network(name: str, make: MakeNetwork) -> MakeNetwork:
    """Makes `network=name` mean what `make(spec, key)` returns."""
    if not callable(make):
        raise checks.refusal("make", make, "a function of (spec, key) that makes a network")
    return NETWORKS.add(name, make)
