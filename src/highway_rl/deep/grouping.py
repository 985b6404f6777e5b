"""Equal (observation, action) pairs of the store, all environments together, found by a 64-bit hash.

Several behavioural policies pool their returns (`combine_by_policy`, by one sort):

    target(s,a) = smax_{m ∈ 𝓜} smax_{n ∈ 𝒩} max{ 𝔼̂_{𝒟⁽ᵐ⁾ₛₐ} Gⁿ, 𝔼̂_{𝒟⁽ᵐ⁾ₛₐ} G¹ }

The chooser "grouped" (`alike` and `estimates`, by buckets, which costs less) asks which returns may be luck, and what
the other rows of the pair have earned.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8, UInt32

from highway_rl.core.backup import TO_END, Backup, Estimates, combine_returns
from highway_rl.core.lookahead import lookahead
from highway_rl.core.targets import Trajectory
from highway_rl.types import AnyArray

OFTEN = 8
"""Times a pair is met before it is judged by its own rows alone."""


class Group(NamedTuple):
    """Per row: the observation's hash in two words, the number of the policy that acted, and whether it is real."""

    hash: UInt32[Array, "t 2"]
    policy: Int[Array, "t"]
    real: Bool[Array, "t"]


def hash_rows(rows: UInt8[Array, "t w"]) -> UInt32[Array, "t 2"]:
    """Two independent polynomial hashes of each row's bytes, mixed once more."""
    width = rows.shape[1]
    words = rows.astype(jnp.uint32) + 1

    def one(multiplier: int) -> UInt32[Array, "t"]:
        powers, power = [], 1
        for _ in range(width):
            powers.append(power)
            power = power * multiplier % 2**32
        h = jnp.sum(words * jnp.asarray(powers, jnp.uint32), axis=1, dtype=jnp.uint32)
        h = (h ^ (h >> 15)) * jnp.uint32(2246822519)
        return h ^ (h >> 13)

    return jnp.stack([one(2654435761), one(2246822507)], axis=1)


class Alike(NamedTuple):
    """Per row: the bucket of its pair, whether that pair was ever followed by two different things, and whether the row
    counts where those of a bucket are averaged."""

    bucket: Int[Array, "t"]
    random: Bool[Array, "t"]
    counts: Bool[Array, "t"]

    @property
    def buckets(self) -> int:
        return buckets(self.bucket.shape[0])


def buckets(rows: int) -> int:
    """A power of two, four to eight for each row."""
    return 1 << (4 * rows).bit_length()


def alike(hash: UInt32[Array, "t 2"], data: Trajectory, real: Bool[Array, "t"], counts: Bool[Array, "t"]) -> Alike:
    """Equal pairs of a chronological store. A pair is random once it gave two rewards or two successors; nothing
    follows a termination. One that was met fewer than `OFTEN` times is taken for what most rows of its kind, paid or
    not, are whose pair was met that often: luck that came once looks like a fact. Where two pairs fall into one bucket,
    their rows are left alone: not random, not counted."""
    number = buckets(real.shape[0])
    key = mixed(hash[:, 0], data.action.astype(jnp.uint32))
    bucket = jnp.where(real, key & jnp.uint32(number - 1), number).astype(jnp.int32)
    after = jnp.where(data.discount[:, None] != 0, jnp.concatenate([hash[1:], hash[-1:]]), 0)
    outcome = mixed(mixed(after[:, 0], after[:, 1]), jax.lax.bitcast_convert_type(data.reward + 0.0, jnp.uint32))
    words = jnp.stack([mixed(key, hash[:, 1]), outcome], axis=1)
    lowest = jax.ops.segment_min(words, bucket, number + 1)[bucket]
    same, certain = (jax.ops.segment_max(words, bucket, number + 1)[bucket] == lowest).T
    same &= real
    often = same & (jax.ops.segment_sum(jnp.ones(real.shape, jnp.int32), bucket, number + 1)[bucket] >= OFTEN)
    paid = data.reward != 0

    def mostly(kind: Bool[Array, "t"]) -> Bool[Array, ""]:
        known = often & kind
        return 2 * jnp.sum(known & ~certain) > jnp.sum(known)

    likely = jnp.where(paid, mostly(paid), mostly(~paid))
    return Alike(bucket, same & (~certain | (~often & likely)), same & counts)


def mixed(word: UInt32[Array, "t"], other: UInt32[Array, "t"]) -> UInt32[Array, "t"]:
    """Two words as one, in which every bit of both counts."""
    h = (word ^ (other * jnp.uint32(2654435761))) * jnp.uint32(2246822519)
    h = (h ^ (h >> 15)) * jnp.uint32(3266489917)
    return h ^ (h >> 13)


def estimates(
    backup: Backup,
    returns: Float[Array, "t n"],
    reference: Float[Array, "t"],
    data: Trajectory,
    pairs: Alike,
    confidence: Any = 0.0,
    optimism: Any = 0.0,
) -> Estimates:
    """What the chooser "grouped" goes by. Where the rest of the episode met no random pair, returns are facts and stand
    for themselves. Any other is judged by what the m other rows of its pair earned, less `confidence` standard errors
    of their advantage over the reference, and has itself the say of w = `optimism` rows:

        estimate = (Σ_others G + w·G) / (m + w)

    With w = 0 the row that is paid has no say, and without others the gate stays shut. With w > 0 a pair that is met
    for the first time is judged as the paper does, and less so the more often it is met: optimism that decays.

    The rest of the episode counts, and not the path of the return alone: the value that a short one ends in was learned
    from luck if luck comes after it. And of the returns that are judged only the longest competes with the reference:
    those in between end in values, and the largest of several is the most overrated one.
    """
    gated = backup.gate_depth is not None
    competes = np.array([n == max(backup.depths) or not gated for n in backup.depths])
    asked = returns[:, competes]
    (count, depths), ahead = asked.shape, jnp.square(asked - reference[:, None])
    own = jnp.concatenate([asked, ahead, reference[:, None], jnp.ones((count, 1))], axis=1)
    own = jnp.where(pairs.counts[:, None], own, 0.0)
    found = jax.ops.segment_sum(own, pairs.bucket, pairs.buckets + 1)[pairs.bucket] - own
    found = jnp.where(pairs.counts[:, None], found, 0.0)
    rest = jnp.round(found[:, -1:])
    others = found[:, :-1] / jnp.maximum(rest, 1)
    mean, square, one = jnp.split(others, (depths, 2 * depths), axis=1)
    error = jnp.sqrt(jnp.maximum(square - jnp.square(mean - one), 0) / jnp.maximum(rest, 1))
    known = rest + optimism > 0
    theirs = rest / jnp.where(known, rest + optimism, 1)
    one = theirs * one + (1 - theirs) * reference[:, None]
    judged = theirs * mean + (1 - theirs) * asked - confidence * error
    judged = jnp.where(known, judged, -jnp.inf if gated else asked)

    (to_the_end,) = lookahead(pairs.random.astype(jnp.float32), jnp.ones(count), data.last, (TO_END,))
    lucky = (to_the_end.reward > 0)[:, None]
    by = jnp.where(lucky, jnp.where(competes, judged, -jnp.inf), returns)
    if not backup.gate_depth:
        return by, reference
    return by, jnp.where(known & lucky, one, reference[:, None])[:, 0]


def cautious(
    target: Float[Array, "t"],
    reference: Float[Array, "t"],
    data: Trajectory,
    pairs: Alike,
    caution: float,
    num_actions: int,
) -> Float[Array, "t"]:
    """What rows of a random pair that was met `OFTEN` are paid with `caution` c: the average of their pair's targets,
    less what luck adds to the value they lead to.

        paid = 𝔼̂[target] − c·b·𝔼̂[γ·e(s′,a′)]          (e: the standard error of a pair's 1-step returns)

    A value is the largest of |A| averages, and luck makes that one too large by about b of their standard errors, the
    mean of the largest of |A| normal numbers. For any other pair nothing changes, and with many rows e goes to 0.
    """
    sums = lambda x: jax.ops.segment_sum(  # noqa: E731
        jnp.where(pairs.counts[:, None], x, 0.0), pairs.bucket, pairs.buckets + 1
    )[pairs.bucket]
    found = sums(jnp.stack([target, reference, jnp.ones_like(target)], axis=1))
    count = jnp.maximum(found[:, 2], 1)
    mean, one = (found[:, :2] / count[:, None]).T
    square = sums(jnp.square(reference - one)[:, None])[:, 0]
    error = jnp.sqrt(square / (count * jnp.maximum(count - 1, 1)))
    known = pairs.counts & pairs.random & (count >= OFTEN)
    error = jnp.where(known, error, 0.0)
    after = jnp.where(data.last, 0.0, data.discount * jnp.concatenate([error[1:], error[-1:]]))
    too_large = largest_of(num_actions) * sums(after[:, None])[:, 0] / count
    return jnp.where(known, mean - caution * too_large, target)


@functools.cache
def largest_of(count: int) -> float:
    """The mean of the largest of so many normal numbers, ∫ 1 − Φᵏ over x > 0 less ∫ Φᵏ over x < 0."""
    from scipy.special import ndtr

    x = np.linspace(-10, 10, 20_001)
    return float(np.trapezoid(np.heaviside(x, 0.5) - ndtr(x) ** count, x))


def combine_by_policy(
    backup: Backup,
    returns: Float[AnyArray, "t n"],
    reference: Float[AnyArray, "t"],
    action: Int[AnyArray, "t"],
    group: Group,
    num_policies: int,
    key: PRNGKeyArray,
    by: Estimates | None = None,
) -> tuple[Float[AnyArray, "t"], Float[AnyArray, "t n"], Float[AnyArray, "t"]]:
    """Averages within a policy, then the backup over at most `num_policies` of them: the row's own, and others that
    met the same pair, chosen at random where there are more. Rows that are not real form groups of their own.

    Returned are the targets, and the averages of the row's own policy: what its gate compared.
    """
    count = returns.shape[0]
    here = jnp.arange(count)
    # policies come in a random order within a pair, the same for all its rows: neighbours are a random choice
    salt = jax.random.bits(key, (), jnp.uint32)
    shuffled = (group.policy.astype(jnp.uint32) * jnp.uint32(2654435761)) ^ salt
    shuffled = (shuffled ^ (shuffled >> 16)) * jnp.uint32(2246822507)
    alone = jnp.where(group.real, 0, here + 1)
    keys = (group.hash[:, 0], group.hash[:, 1], jnp.asarray(action), alone, shuffled ^ (shuffled >> 13))
    *keys_, order = jax.lax.sort((*keys, here), num_keys=len(keys))
    differs = [jnp.concatenate([jnp.ones(1, bool), k[1:] != k[:-1]]) for k in keys_]
    new_pair = differs[0] | differs[1] | differs[2] | differs[3]
    new_policy = new_pair | differs[4]
    segment = jnp.cumsum(new_policy) - 1  # of each sorted row: (pair, policy)
    sums = lambda x: jax.ops.segment_sum(x, segment, count, indices_are_sorted=True)  # noqa: E731
    size = jnp.maximum(sums(jnp.ones(count, returns.dtype)), 1)
    mean_returns = sums(returns[order]) / size[:, None]
    mean_reference = sums(reference[order]) / size
    # the policies of a pair are consecutive segments: `first` … `first + met`
    pair = jnp.cumsum(new_pair) - 1
    first = jax.ops.segment_min(segment, pair, count, indices_are_sorted=True)[pair]
    met = jax.ops.segment_max(segment, pair, count, indices_are_sorted=True)[pair] - first + 1
    turn = jnp.arange(num_policies)
    chosen = first[:, None] + ((segment - first)[:, None] + turn) % met[:, None]
    thought = (
        None if by is None else ((sums(by[0][order]) / size[:, None])[chosen], (sums(by[1][order]) / size)[chosen])
    )
    pooled = mean_returns[chosen], mean_reference[chosen]
    target = combine_returns(backup, *pooled, policy_mask=turn < met[:, None], by=thought)
    back = lambda x: jnp.zeros_like(x).at[order].set(x)  # noqa: E731
    return back(target), back(mean_returns[segment]), back(mean_reference[segment])
