"""What can be seen at a refresh: which depths the gate lets through, and whether values are too high or too low."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from highway_rl.core.backup import TO_END, gate_open
from highway_rl.core.bootstrap import greedy
from highway_rl.core.lookahead import lookahead
from highway_rl.core.targets import TargetRule, Trajectory
from highway_rl.data.ring import Rows

RATIO_DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Depths at which the product of clipped ratios is measured."""


class Seen(NamedTuple):
    """Means over the steps in the store, of all environments together.

    open     per depth, how often the gate lets the n-step return through, or would if there were one
    won      how often each return is the largest: first the one the gate compares with, then each depth
    bias     target minus the discounted return that followed, over episodes that terminated
    ratio    the product of min(1, π'/π) over the next k actions, per k in RATIO_DEPTHS, where so many were made
    noise    per depth, how far sampled returns are from what the chooser expects of them (root of the mean square)
    luck     of the openings by samples alone, the share in which the chooser keeps the gate shut
    """

    open: Float[Array, "n"]
    won: Float[Array, "n+1"]
    bias: Float[Array, ""]
    value: Float[Array, ""]
    largest: Float[Array, ""]
    error: Float[Array, ""]
    ratio: Float[Array, "k"]
    age: Float[Array, ""]
    noise: Float[Array, "n"]
    luck: Float[Array, ""]

    @classmethod
    def nothing(cls, agent: Any) -> Seen:
        depths = max(len(rule.backup.depths) for rule in agent.rules)
        none = jnp.float32(jnp.nan)
        each = lambda n: jnp.full(n, jnp.nan, jnp.float32)  # noqa: E731
        ratio = each(len(RATIO_DEPTHS))
        return cls(each(depths), each(depths + 1), none, none, none, none, ratio, none, each(depths), none)


def look(agent: Any, rule: TargetRule, data: Trajectory, rows: Rows, q: Array, found: Any, step: Any) -> Seen:
    """The diagnostics of one rule's targets; rules with fewer depths than others are padded with NaN."""
    depths = max(len(other.backup.depths) for other in agent.rules)
    real = rows.real
    opens = gate_open(found.returns, found.reference)
    opened = mean(opens, real)
    noise, luck = Seen.nothing(agent)[-2:] if agent.chooser == "sample" else chance(found, opens, real)
    best = jnp.argmax(found.returns, axis=1) + 1
    winner = jnp.where(jnp.max(found.returns, axis=1) > found.reference, best, 0)
    won = mean(winner[:, None] == jnp.arange(found.returns.shape[1] + 1), real)
    end = lookahead(data.reward, data.discount, data.last, (TO_END,))[0]
    taken = jnp.sum(jnp.where(data.action[:, None] == jnp.arange(q.shape[1]), q, 0.0), axis=1)
    return Seen(
        pad(opened, depths),
        pad(won, depths + 1),
        mean(found.target - end.reward, real & rows.terminated[end.end]),
        mean(jnp.max(q, axis=1), real),
        jnp.max(jnp.where(real[:, None], q, -jnp.inf)),
        mean(jnp.abs(found.target - taken), real),
        ratios(data, q, real),
        mean((step - rows.born).astype(jnp.float32), real),
        pad(noise, depths),
        luck,
    )


def chance(found: Any, opens: Any, real: Bool[Array, "t"]) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Noise and luck, where a chooser expects something of returns."""
    knows = jnp.isfinite(found.returns)
    apart = jnp.square(jnp.where(knows, found.sampled - found.returns, 0.0))
    by_sample = gate_open(found.sampled, found.sampled_reference)
    noise = jnp.sqrt(mean(apart, real) / mean(knows, real))
    return noise, jnp.sum(mean(by_sample & ~opens, real)) / jnp.sum(mean(by_sample, real))


def ratios(data: Trajectory, q: Float[Array, "t a"], real: Bool[Array, "t"]) -> Float[Array, "k"]:
    """Mean over steps of ∏_{i=1…k} min(1, π'(aₜ₊ᵢ)/π(aₜ₊ᵢ)), π' greedy."""
    target = jnp.sum(greedy(q) * (data.action[:, None] == jnp.arange(q.shape[1])), axis=1)
    here = jnp.minimum(1.0, target / data.behaviour)
    following = jnp.where(data.last, 1.0, jnp.concatenate([here[1:], here[-1:]]))
    maps = lookahead(jnp.zeros_like(following), following, data.last, RATIO_DEPTHS)
    return jnp.stack([mean(m.discount, real & ~m.cut) for m in maps])


def mean(x: Any, where: Bool[Array, "t"]) -> Array:
    """The mean over rows where it counts; NaN if none does."""
    x = x.astype(jnp.float32)
    mask = where.reshape(-1, *(1,) * (x.ndim - 1))
    return jnp.sum(jnp.where(mask, x, 0.0), axis=0) / jnp.sum(where)


def pad(x: Float[Array, "n"], length: int) -> Float[Array, "m"]:
    return jnp.pad(x, (0, length - x.shape[0]), constant_values=jnp.nan)
