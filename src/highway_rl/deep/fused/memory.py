"""How kernels read, write and multiply: arrays whose lengths are powers of two, in tiles of larger ones."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from highway_rl.deep.fused.sizes import Sizes


def call(
    kernel: Any, sizes: Sizes, programs: int, out: list, *given: Array, inplace: int = 0, interpret: bool = False
) -> list[Array]:
    """Runs a kernel in so many programs. The last `inplace` arrays given become the first that come out."""
    name = getattr(kernel, "func", kernel).__name__
    return pl.pallas_call(
        functools.partial(kernel, sizes),
        name=name,
        grid=(programs,),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in out],
        input_output_aliases={len(given) - inplace + i: i for i in range(inplace)},
        compiler_params=triton.CompilerParams(num_warps=getattr(sizes.warps, name), num_stages=3),
        interpret=interpret,
    )(*given)


def single(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def half(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float16)


def load(ref: Any, index: tuple, mask: Any = None, **cache: Any) -> Array:
    """What lies at an index, zero where the mask says no."""
    other = None if mask is None else jnp.zeros((), ref.dtype)
    return triton.load(place(ref, index), mask=mask, other=other, **cache)


def store(ref: Any, index: tuple, value: Array, mask: Any = None, **cache: Any) -> None:
    triton.store(place(ref, index), value, mask=mask, **cache)


def place(ref: Any, index: tuple) -> Any:
    return ref.at[tuple(jnp.int32(i) if isinstance(i, int) else i for i in index)]


def below(index: Array, count: int, tile: int) -> Array | None:
    """Which of a tile's indices there are: no mask where tiles of this size cover all of them exactly."""
    return None if count % tile == 0 else index < count


def grid(rows: int, columns: int) -> tuple[Array, Array]:
    """Numbers of row and column of a matrix."""
    row, column = (jax.lax.broadcasted_iota(jnp.int32, (rows, columns), axis) for axis in (0, 1))
    return row, column


def dot(a: Array, b: Array) -> Float[Array, "m n"]:
    """Half precision times half precision, summed in single precision."""
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def div(x: Array, y: int) -> Array:
    return jax.lax.div(x, jnp.int32(y))


def rem(x: Array, y: int) -> Array:
    return jax.lax.rem(x, jnp.int32(y))
