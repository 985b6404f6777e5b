"""What a refresh does to the networks themselves: their scales, and their mean over refreshes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from highway_rl.data.codec import codec_of
from highway_rl.deep import dqn
from highway_rl.deep.dqn import DQN
from highway_rl.deep.learning import Learning, Mean, averaged
from highway_rl.deep.scales import NOTHING, in_own_units, with_numbers_of, with_scales_of, with_unit_of
from highway_rl.deep.weights import Weights, weights_of
from highway_rl.types import Spec


def rescaled(
    agent: DQN, spec: Spec, learning: Learning, rows: Any, every: Int[Array, "n ..."], some: Int[Array, "m"]
) -> Weights:
    """The networks with the scales of the observations and rewards in the store. The unit of values changes before the
    first update (an optimiser is as it began), and later while networks say next to nothing of `some` rows."""
    coded, may = codec_of(spec), jnp.asarray(False)
    if agent.rescale:
        obs = jax.vmap(coded.decode)(coded.whole(rows.obs, every[some]))
        said = jax.vmap(lambda weights: in_own_units(dqn.network(agent, spec, weights), obs))(learning.params)
        begun = jax.tree.leaves(jax.vmap(agent.optimizer().init)(learning.params))
        same = [jnp.all(a == b) for a, b in zip(begun, jax.tree.leaves(learning.moments), strict=True)]
        first = jnp.all(jnp.stack(same)) if same else False  # an optimiser without a state tells nothing
        may = first | (jnp.mean(said) < NOTHING)

    def one(weights: Weights) -> Weights:
        whole = dqn.network(agent, spec, weights)
        if agent.normalize:
            seen = rows.obs if coded.frames == 1 else coded.whole(rows.obs, every)
            whole = with_numbers_of(whole, spec, seen, rows.real)
        if agent.rescale:
            whole = with_unit_of(whole, rows.reward, rows.real, rows.terminated, may)
        return weights_of(whole)

    return jax.vmap(one)(learning.params)


def with_mean(agent: DQN, spec: Spec, mean: Mean, params: Weights) -> Mean:
    """The mean with the networks of now. Scales are theirs: of units there is no mean."""
    found = averaged(mean, params, agent.average)
    if not agent.normalize and not agent.rescale:
        return found
    as_now = lambda m, new: weights_of(with_scales_of(*(dqn.network(agent, spec, x) for x in (m, new))))  # noqa: E731
    return found._replace(params=jax.vmap(as_now)(found.params, params))


def final(agent: DQN, spec: Spec, learning: Learning) -> Weights:
    """What training leaves: the networks, or their mean with those of now."""
    if learning.mean is None:
        return learning.params
    return with_mean(agent, spec, learning.mean, learning.params).params
