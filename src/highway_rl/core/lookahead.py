"""Looking ahead along paths: n steps as one affine map, from all rows at once.

A path is given by `successor` (the next transition of each transition; by default the next row) and `last`, true where
the path is cut. Doubling the maps reaches depth n in log₂ n rounds; the same code walks stored trajectories and the
graph of a deterministic policy. To the end of a path a CPU goes backwards, one row at a time, which is less work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from highway_rl.core.checks import check_depths
from highway_rl.types import AnyArray


class Lookahead(NamedTuple):
    """The map x → reward + discount · x[end] that n steps apply to the values at their far end.

    `end` is the last transition taken; `cut` says that the path ended there, after n steps or fewer.
    """

    reward: Float[AnyArray, "t"]
    discount: Float[AnyArray, "t"]
    end: Int[AnyArray, "t"]
    cut: Bool[AnyArray, "t"]


def lookahead(
    reward: Float[AnyArray, "t"],
    discount: Float[AnyArray, "t"],
    last: Bool[AnyArray, "t"],
    depths: tuple[int, ...],
    successor: Any = None,
) -> list[Lookahead]:
    """One map per depth; `end` is min(n, steps left) steps from the start."""
    check_depths(depths)
    xp, count = reward.__array_namespace__(), reward.shape[0]
    near = tuple(n for n in depths if n < count)
    if successor is not None or xp is not jnp or len(near) == len(depths):
        return _doubled(xp, reward, discount, last, depths, successor)

    def by_doubling(reward: Any, discount: Any, last: Any) -> list[Lookahead]:
        return _doubled(xp, reward, discount, last, depths)

    def backwards(reward: Any, discount: Any, last: Any) -> list[Lookahead]:
        found = iter(_doubled(xp, reward, discount, last, near) if near else [])
        end = to_the_end(reward, discount, last)
        return [next(found) if n < count else end for n in depths]

    return jax.lax.platform_dependent(reward, discount, last, cpu=backwards, default=by_doubling)


def _doubled(xp: Any, reward: Any, discount: Any, last: Any, depths: Any, successor: Any = None) -> list[Lookahead]:
    count = reward.shape[0]
    here = xp.arange(count)
    longest = max(depths)  # a graph may run in circles
    if successor is None:
        longest = 1 << (count - 1).bit_length()  # no path is longer, and a power of two takes no more than doubling
        last = last | (here == count - 1)

    def then(n: int, first: Lookahead, second: Lookahead) -> Lookahead:
        """n steps, and those of `second` where they lead."""
        if successor is None:
            ahead = lambda x: xp.roll(x, -n)  # noqa: E731
        else:
            start = successor[first.end]
            ahead = lambda x: x[start]  # noqa: E731
        return Lookahead(
            xp.where(first.cut, first.reward, first.reward + first.discount * ahead(second.reward)),
            xp.where(first.cut, first.discount, first.discount * ahead(second.discount)),
            xp.where(first.cut, first.end, ahead(second.end)),
            first.cut | ahead(second.cut),
        )

    powers = [Lookahead(reward, discount, here, last)]

    def steps(n: int) -> Lookahead:
        result = None
        for bit in range(n.bit_length()):
            if bit == len(powers):
                powers.append(then(1 << bit - 1, powers[-1], powers[-1]))
            if n >> bit & 1:
                result = powers[bit] if result is None else then(1 << bit, powers[bit], result)
        assert result is not None
        return result

    done: dict[int, Lookahead] = {}
    reached = 0
    for n in sorted({int(min(n, longest)) for n in depths}):
        further = n & (n - 1) and reached  # a power of two is there for all to use
        done[n] = then(reached, done[reached], steps(n - reached)) if further else steps(n)
        reached = n
    return [done[min(n, longest)] for n in depths]


def to_the_end(reward: Any, discount: Any, last: Any) -> Lookahead:
    """All steps of a path, from each row on: backwards, one after the other."""

    def earlier(later: Any, step: Any) -> Any:
        here, reward, discount, last = step
        whole = jnp.where(last, 0, later[0]), jnp.where(last, 1, later[1]), jnp.where(last, here, later[2])
        whole = reward + discount * whole[0], discount * whole[1], whole[2]
        return whole, whole

    here = jnp.arange(reward.shape[0])
    nothing = jnp.zeros_like(reward[0]), jnp.ones_like(discount[0]), here[-1]
    ahead = jax.lax.scan(earlier, nothing, (here, reward, discount, last), reverse=True)[1]
    return Lookahead(ahead[0], ahead[1], ahead[2], jnp.ones_like(last))


def distinct_depths(maps: list[Lookahead]) -> Bool[AnyArray, "t n"]:
    """True where a depth reaches further than every smaller one: the mask that counts no return twice."""
    xp = maps[0].end.__array_namespace__()
    ends = xp.stack([m.end for m in maps], axis=-1)
    earlier = np.tril(np.ones((len(maps), len(maps)), bool), -1)
    return ~xp.any((ends[:, :, None] == ends[:, None, :]) & xp.asarray(earlier), axis=-1)
