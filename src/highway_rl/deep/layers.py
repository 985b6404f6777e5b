"""Layers of the networks, and how an observation's parts get into them."""

from __future__ import annotations

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
    height, width, _ = board.shape
    rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    shifted = [
        board[i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    return np.concatenate(shifted, axis=-1) if isinstance(board, np.ndarray) else jnp.concatenate(shifted, axis=-1)


def convolve(layer: Linear, board: Array, size: int, stride: int) -> Float[Array, "h2 w2 o"]:
    """A convolution without padding. Windows stay in the board's own type until the product: a byte a cell for truth
    values, and for pictures, whose cells are from 0 to 1 by the weights' scale.

    On boards of truth values the bias is the weight of an input that is one, so that its gradient comes out of the same
    product.
    """
    windows = patches(board, size, stride)
    if board.dtype != bool:
        return windows.astype(jnp.float32) @ (layer.weight / (255 if board.dtype == jnp.uint8 else 1)) + layer.bias
    pad = -(windows.shape[-1] + 1) % 4  # rows of a multiple of four are read faster
    ones = jnp.broadcast_to(jnp.asarray([1] + pad * [0], windows.dtype), (*windows.shape[:2], 1 + pad))
    weight = jnp.concatenate([layer.weight, layer.bias[None], jnp.zeros((pad, layer.bias.shape[0]), jnp.float32)])
    return jnp.concatenate([windows, ones], axis=-1).astype(jnp.float32) @ weight


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
