"""The kernels in their order: an update, and the values of many stored observations."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, UInt8

from highway_rl.deep.fused.layers import back, dense, head
from highway_rl.deep.fused.memory import call, half, single
from highway_rl.deep.fused.sizes import Sizes, is_weights, power
from highway_rl.deep.fused.steps import large_step, small_step, step_of
from highway_rl.deep.fused.windows import see, see_all, windows
from highway_rl.deep.weights import Weights

if TYPE_CHECKING:
    from highway_rl.deep.dqn import DQN
    from highway_rl.deep.learning import Batch, Learning


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
    run, cut, (turn, update) = functools.partial(call, interpret=interpret), sizes.cut, at
    number = jnp.asarray(turn, jnp.int32) * batches.net.shape[1] + update
    net, obs, taken, target = (x.reshape(-1, *x.shape[2:]) for x in batches[:4])
    chosen = (number.reshape(1), net)  # the number of the batch, and of the network that learns from each
    seen = here if here.shape[0] else obs[0, :1]
    (wide,), small = learning.params
    rows = sizes.batch + sizes.networks * sizes.here
    x = run(see, sizes, rows, [half(rows, sizes.inputs)], *chosen, seen, obs, small)[0]
    parts = min(cut.parts, -(-sizes.inputs // cut.dense))
    out = [single(parts, sizes.networks, power(sizes.batch + sizes.here), sizes.hidden)]
    out.append(single(sizes.networks, sizes.outputs, sizes.hidden))
    sums, turned = run(dense, sizes, (parts + 1) * sizes.networks, out, *chosen, x, wide, small)
    out = [half(sizes.batch, sizes.hidden), single(1), single(sizes.small - sizes.convolution), single(1)]
    out.append(jax.ShapeDtypeStruct((sizes.here,), jnp.int32))
    with_loss = functools.partial(head, agent.loss == "huber")
    given = (*chosen, small, sums, turned, taken, target)
    d, unit, beyond, loss, best = run(with_loss, sizes, 2 + sizes.heads, out, *given)
    tiles = -(-sizes.inputs // cut.back)
    out = [half(sizes.batch, sizes.features), single(tiles)]
    dx, lengths = run(back, sizes, tiles, out, *chosen, d, unit, x, wide)
    splits = -(-sizes.batch // cut.windows)
    out = [single(splits, (16 * sizes.groups + 1) * sizes.filters)]
    conv = run(windows, sizes, splits, out, number.reshape(1), unit, obs, dx)[0]
    step = functools.partial(step_of, agent.optimizer())
    rate, most = (jnp.asarray(v, jnp.float32).reshape(1) for v in (agent.learning_rate, agent.max_gradient))
    # the small numbers first: that kernel also finds by how much the gradient is shrunk
    flat, structure = jax.tree.flatten((small, part_of(learning.moments, lambda w: w.small)))
    stepping = functools.partial(small_step, step, structure)
    given = (*chosen, rate, most, lengths, conv, beyond, unit, *flat)
    programs = -(-(sizes.small - sizes.convolution) // sizes.share)
    *flat, shrink = run(stepping, sizes, programs, [*flat, single(1)], *given, inplace=len(flat))
    small, small_moments = jax.tree.unflatten(structure, flat)
    flat, structure = jax.tree.flatten((wide, part_of(learning.moments, lambda w: w.large[0])))
    stepping = functools.partial(large_step, step, structure)
    given = (*chosen, rate, shrink, d, x, *flat)
    flat = run(stepping, sizes, -(-sizes.inputs // cut.large), flat, *given, inplace=len(flat))
    wide, wide_moments = jax.tree.unflatten(structure, flat)
    moments = jax.tree.map(lambda w, s: Weights([w], s), wide_moments, small_moments)
    return learning._replace(params=Weights([wide], small), moments=moments), loss[0], best[: here.shape[0]]


def prepared(sizes: Sizes, params: Weights, interpret: bool = False) -> Any:
    """All heads of each network for many stored observations."""
    (wide,), small = params
    halves = jax.lax.optimization_barrier(wide.astype(jnp.float16))  # once, and not for every piece of the store
    bias, weight, last = jnp.split(
        small[:, sizes.convolution :], [sizes.hidden, sizes.small - sizes.convolution - sizes.outputs], axis=1
    )

    def each(x: Array, wide: Array, bias: Array, weight: Array, last: Array) -> Array:
        h = jax.nn.relu(jnp.dot(x, wide, preferred_element_type=jnp.float32) + bias)
        return h @ weight.reshape(sizes.hidden, sizes.outputs) + last

    def values(rows: UInt8[Array, "t w"]) -> Float[Array, "k t ha"]:
        out = [half(sizes.networks, rows.shape[0], sizes.inputs)]
        programs = -(-rows.shape[0] // sizes.cut.see_all)
        x = call(see_all, sizes, programs, out, rows, small, interpret=interpret)[0]
        return jax.vmap(each)(x, halves, bias, weight, last)

    return values


def part_of(moments: PyTree, part: Any) -> PyTree:
    """An optimiser's state as it would be for one array of the weights."""
    return jax.tree.map(part, moments, is_leaf=is_weights)
