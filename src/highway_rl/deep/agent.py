"""What the loop asks of an agent: a record of functions. Whatever answers them can be trained by `loop.py` as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt8


class Agent(NamedTuple):
    """`state` and `batches` are trees of arrays that only the agent itself looks into.

    init(key) → state
    act(state, obs[e]) → action[e]                             the actions it thinks best
    learn(state, batches, at, here[e]) → (state, loss, action[e])
                                                               one update on batch `at`, (turn, update), and the best
                                                               actions before it at the observations `here`, coded as
                                                               the store keeps them; of several updates in a turn only
                                                               the first has any
    refresh(state, store, step, keys[3], shape, look) → (state, batches[*shape], seen)
                                                               what to learn from until the next one, [turn, update],
                                                               and what there is to see: a record of numbers, `unseen`
                                                               before the first refresh and wherever `look` is false
    epsilon(step) → the share of random actions
    """

    init: Callable[[PRNGKeyArray], PyTree]
    act: Callable[[PyTree, PyTree], Int[Array, "e"]]
    learn: Callable[
        [PyTree, PyTree, tuple[Any, Any], UInt8[Array, "e w"]], tuple[PyTree, Float[Array, ""], Int[Array, "e"]]
    ]
    refresh: Callable[..., tuple[PyTree, PyTree, PyTree]]
    epsilon: Callable[[Int[Array, "*n"]], Float[Array, "*n"]]
    unseen: Any
