"""Targets of Highway Q-learning from the returns of several policies: the paper's, and one that luck cannot raise.

`highway_target` takes the largest of the sampled returns, lucky or not. In `halved_target` what is a fact counts as it
is, and what may be luck is averaged.

A pair (s,a) is *random* once it gave two different rewards or successors. A return whose path has met no random pair is
a fact: whoever acts so again earns it again, given the values it ends in. Of facts the largest counts, as in the paper.
The other returns are pooled over all policies and split in two halves: one half's averages choose between the longest
return and the gate's 1-step return, and the other half's are paid. Then the choice has not seen the luck it pays, and

    E[paid | choice] = the average return of the depth chosen  ≤  max{average of G¹, average of Gⁿ}.

Only the longest, since returns of a depth between differ from it by the values they end in alone: the largest of many
would be the one that ends in the most overrated state.

In a world without chance every return is a fact, and the target is the paper's.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from highway_rl.core.backup import combine_returns
from highway_rl.core.targets import TargetRule

LEAST_RATE = 0.1
"""Of an update towards averages, however many episodes met the pair: values further on still change."""


def highway_target(
    rule: TargetRule, single: Float[Array, "m r n"], left: Int[Array, "m r"], now: Float[Array, ""]
) -> Float[Array, ""]:
    """max_m max_n max_{n'∈{1,n}} 𝔼̂_{𝒟⁽ᵐ⁾ₛₐ}[Gⁿ'], or what the rule's backup puts for the maxima. Paper: Eq. 20.

    From the returns at every depth of each policy's rollouts; rollouts with nothing `left` do not count.
    """
    horizon = single.shape[-1]
    weight = (left > 0).astype(single.dtype)
    returns = jnp.sum(single * weight[..., None], axis=1) / jnp.maximum(weight.sum(1), 1)[:, None]
    backup, gate_depth = rule.backup, rule.backup.gate_depth
    picked = [min(n, horizon) - 1 for n in backup.depths]
    reference = returns[:, min(gate_depth, horizon) - 1] if gate_depth else jnp.full(returns.shape[:1], now)
    gated = returns if picked == list(range(horizon)) else returns[:, jnp.array(picked)]
    if all(isinstance(a, float) and a == math.inf for a in (backup.depth_alpha, backup.policy_alpha)):
        # A repeated return or policy does not change a maximum: no masks; nor does a gate whose depth is in 𝒩 anyway.
        if gate_depth in backup.depths:
            backup = dataclasses.replace(backup, gate_depth=None)
        return jnp.asarray(combine_returns(backup, gated, reference))
    most = left.max(1)
    real = (jnp.arange(1, horizon + 1, dtype=jnp.int32) <= most[:, None])[:, jnp.array(picked)]
    return jnp.asarray(combine_returns(backup, gated, reference, policy_mask=most > 0, depth_mask=real))


class Outcomes(NamedTuple):
    """By pair: what it last gave, and whether it ever gave something else. A successor of −1 is none yet."""

    reward: Float[Array, "p"]
    successor: Int[Array, "p"]
    random: Bool[Array, "p"]


def no_outcomes(pairs: int) -> Outcomes:
    return Outcomes(jnp.zeros(pairs, float), jnp.full(pairs, -1, jnp.int32), jnp.zeros(pairs, bool))


def noted(outcomes: Outcomes, episode: Any, num_actions: int) -> Outcomes:
    """With one more episode, in which no pair comes twice."""
    pair = episode.state * num_actions + episode.action
    before, there = outcomes.successor[pair], episode.next_state.astype(jnp.int32)
    other = (before >= 0) & ((before != there) | (outcomes.reward[pair] != episode.reward))
    at = jnp.where(episode.valid, pair, outcomes.random.shape[0])
    return Outcomes(
        outcomes.reward.at[at].set(episode.reward, mode="drop"),
        outcomes.successor.at[at].set(there, mode="drop"),
        outcomes.random.at[at].max(other, mode="drop"),
    )


def halved_target(
    rule: TargetRule,
    single: Float[Array, "m n"],
    left: Int[Array, "m"],
    fact: Bool[Array, "m n"],
    confidence: Any = 0.0,
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The target from the returns of m episodes at every depth, and whether it is a fact.

    With `confidence` c the longest return counts as c of its standard errors lower in the choice. Above 0 the gate
    opens only where more than luck speaks for it; below 0 it closes only there, and what was earned counts more than
    what the values further on, the largest of a few lucky ones, promise.
    """
    backup, horizon = rule.backup, single.shape[-1]
    depths = jnp.array([min(n, horizon) - 1 for n in backup.depths])
    some = left > 0
    real = some[:, None] & (jnp.arange(horizon, dtype=jnp.int32) < left[:, None])
    fact = jnp.cumsum(real & ~fact, axis=1) == 0  # past the end as at the end
    sure = some[:, None] & fact
    largest = all(isinstance(a, float) and a == math.inf for a in (backup.depth_alpha, backup.policy_alpha))
    counted = sure if largest else sure & real  # a return that repeats does not change a maximum
    facts: Any = combine_returns(
        backup, single[:, depths], single[:, 0], policy_mask=sure[:, 0], depth_mask=counted[:, depths]
    )
    any_fact = jnp.any(sure[:, 0])
    longest, pooled = max(min(n, horizon) for n in backup.depths) - 1, dataclasses.replace(backup, depth_prior=None)
    pooled = dataclasses.replace(pooled, depths=(longest + 1,))
    even = jnp.cumsum(some) % 2 == 1
    first = some & even
    second = jnp.where(jnp.sum(some) > 1, some & ~even, first)

    def average(which: Bool[Array, "m"]) -> tuple[Array, Array]:
        count = jnp.maximum(jnp.sum(which), 1).astype(single.dtype)
        mean = jnp.sum(jnp.where(which[:, None], single, 0.0), axis=0) / count
        square = jnp.sum(jnp.where(which[:, None], (single - mean) ** 2, 0.0), axis=0)
        return mean, jnp.sqrt(square / jnp.maximum(count - 1, 1) / count)

    def paid(choosing: Any, paying: Any) -> Array:
        (thought, error), (mean, _) = choosing, paying
        careful = thought[longest] - jnp.asarray(confidence, thought.dtype) * (error[longest] if longest else 0.0)
        by = (careful[None, None], thought[None, 0])
        value = jnp.asarray(combine_returns(pooled, mean[None, longest, None], mean[None, 0], by=by))
        promised = jnp.asarray(combine_returns(pooled, *by))
        return jnp.where(any_fact & (promised <= facts), facts, value)

    one, other = average(first), average(second)
    luck = (paid(one, other) + paid(other, one)) / 2
    all_facts = jnp.all(fact | ~some[:, None])
    return jnp.where(all_facts, facts, luck), all_facts
