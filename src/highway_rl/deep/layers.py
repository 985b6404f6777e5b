"""Layers of the networks, and how an observation's parts get into them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


class Linear(eqx.Module):
    """x·W + b with He-normal weights and zero bias, as in the code the paper builds on."""

    weight: Float[Array, "i o"]
    bias: Float[Array, "o"]

    def __init__(self, inputs: int, outputs: int, key: PRNGKeyArray) -> None:
        self.weight = jax.random.normal(key, (inputs, outputs), jnp.float32) * np.float32(np.sqrt(2 / inputs))
        self.bias = jnp.zeros(outputs, jnp.float32)

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        return x @ self.weight + self.bias


class Dueling(eqx.Module):
    """Q(s,a) = V(s) + A(s,a) − mean_a A(s,a)."""

    value: Linear
    advantage: Linear

    def __init__(self, inputs: int, outputs: int, key: PRNGKeyArray) -> None:
        first, second = jax.random.split(key)
        self.value, self.advantage = Linear(inputs, 1, first), Linear(inputs, outputs, second)

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        advantage = self.advantage(x)
        return self.value(x) + advantage - jnp.mean(advantage, axis=-1, keepdims=True)


def patches(board: Any, size: int, stride: int = 1) -> Any:
    """Every size × size window as one row of numbers, so that a convolution is one matrix product.

    On small boards and batched over many networks this is faster than the library's convolution on CPU and GPU.
    """
    height, width = board.shape[-3:-1]
    rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    shifted = [
        board[..., i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride, :]
        for i in range(size)
        for j in range(size)
    ]
    return np.concatenate(shifted, axis=-1) if isinstance(board, np.ndarray) else jnp.concatenate(shifted, axis=-1)


def convolve(layer: Linear, board: Array, size: int, stride: int) -> Float[Array, "*n h2 w2 o"]:
    """A convolution without padding, of one board or, unless they hold truth values, of many. Windows stay in the
    board's own type until the product: a byte a cell for truth values, and for pictures, whose cells are from 0 to 1 by
    the weights' scale.

    On boards of truth values the bias is the weight of an input that is one, so that its gradient comes out of the same
    product. Windows that move by whole fractions of themselves are not cut out (`by_blocks`).
    """
    if board.dtype != bool:
        weight = layer.weight / (255 if board.dtype == jnp.uint8 else 1)
        if stride > 1 and size % stride == 0:
            return by_blocks(weight, board, size, stride) + layer.bias
        return product(patches(board, size, stride).astype(jnp.float32), weight) + layer.bias
    windows = patches(board, size, stride)
    pad = -(windows.shape[-1] + 1) % 4  # rows of a multiple of four are read faster
    ones = jnp.broadcast_to(jnp.asarray([1] + pad * [0], windows.dtype), (*windows.shape[:2], 1 + pad))
    weight = jnp.concatenate([layer.weight, layer.bias[None], jnp.zeros((pad, layer.bias.shape[0]), jnp.float32)])
    return jnp.concatenate([windows, ones], axis=-1).astype(jnp.float32) @ weight


def by_blocks(weight: Float[Array, "i o"], board: Array, size: int, stride: int) -> Float[Array, "*n h2 w2 o"]:
    """A convolution whose windows are k × k blocks of stride × stride cells: what each block gives to each of the k²
    windows it lies in is one product, whose parts are added up. Less memory is moved than by cutting windows out."""
    k, (*many, height, width, c) = size // stride, board.shape
    h, w = ((n - size) // stride + k for n in (height, width))
    blocks = board[..., : h * stride, : w * stride, :].reshape(*many, h, stride, w, stride, c).swapaxes(-4, -3)
    each = weight.reshape(k, stride, k, stride, c, -1).transpose(1, 3, 4, 0, 2, 5).reshape(stride * stride * c, -1)
    return gathered(product(blocks.reshape(*many, h, w, -1).astype(jnp.float32), each), k)


def product(x: Float[Array, "*n i"], weight: Float[Array, "i o"]) -> Float[Array, "*n o"]:
    """x·W as one product of two matrices, so that the gradient of W is one, too, with no operand turned round."""
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gathered(given: Float[Array, "*n h w kko"], k: int) -> Float[Array, "*n h2 w2 o"]:
    """What k × k blocks give to the window they make up, added up."""
    h, w, parts = given.shape[-3] - k + 1, given.shape[-2] - k + 1, jnp.split(given, k * k, axis=-1)
    return functools.reduce(jnp.add, (x[..., n // k :, n % k :, :][..., :h, :w, :] for n, x in enumerate(parts)))


def _gathered(given: Float[Array, "*n h w kko"], k: int) -> tuple[Float[Array, "*n h2 w2 o"], None]:
    return gathered(given, k), None


def _scattered(k: int, _: None, g: Float[Array, "*n h2 w2 o"]) -> tuple[Float[Array, "*n h w kko"]]:
    """The gradient, which autodiff would write as a sum of k² arrays of this size, nearly all zero."""
    none = [(0, 0)] * (g.ndim - 3)
    around = [(*none, (n // k, k - 1 - n // k), (n % k, k - 1 - n % k), (0, 0)) for n in range(k * k)]
    return (jnp.concatenate([jnp.pad(g, pad) for pad in around], axis=-1),)


gathered.defvjp(_gathered, _scattered)


def split(obs: PyTree) -> tuple[list[Array], list[Array]]:
    """The boards of an observation as they are, and its other parts as flat vectors of float32."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(obs)]
    return [x for x in leaves if x.ndim == 3], [scaled(x).reshape(-1) for x in leaves if x.ndim != 3]


def scaled(x: Any) -> Float[Array, "..."]:
    """Numbers as float32; bytes, which are the cells of pictures, from 0 to 1."""
    x = jnp.asarray(x)
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x.astype(jnp.float32)


def dense(hidden: Sequence[Linear], head: Linear | Dueling, y: Float[Array, "f"], level: bool) -> Float[Array, "a"]:
    for layer in hidden:
        y = unit(layer(y), level)
    return head(y)


def unit(y: Float[Array, "f"], level: bool) -> Float[Array, "f"]:
    """relu(y), or of y brought to mean zero and deviation one over the layer: LayerNorm without a scale of its own."""
    if level:
        y = y - jnp.mean(y)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y)) + 1e-5)
    return jax.nn.relu(y)


def split_shapes(observation: PyTree) -> tuple[list[tuple[int, ...]], list[int]]:
    """Shapes of the boards in an observation's description, and sizes of its other parts."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(observation)]
    return [s for s in shapes if len(s) == 3], [int(np.prod(s)) for s in shapes if len(s) != 3]
