"""Tasks whose reward comes long after the action that earned it, as tables: Trace Back and Choice.

Every task is clocked (its state tells the time), undiscounted, and lasts exactly `delay` steps. States are numbered by
plain arithmetic on (time, ...); the number is both the state and the observation.

Paper: Sec. 6.2 (model-free toy tasks); the tasks are from the RUDDER paper (Arjona-Medina et al., 2019).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from highway_rl import checks
from highway_rl.envs.models.tables import seeded
from highway_rl.types import DiscreteEnv, Spec, Step

STATE = jax.ShapeDtypeStruct((), np.int32)
UP, RIGHT, DOWN, LEFT = range(4)
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)
"""(row, column) of the four moves."""


def prefers(q: Float[Array, "s a"], state: Any, action: Any) -> Bool[Array, ""]:
    """Whether the action is the one best action at this state: ties do not count."""
    values = q[state]
    others = jnp.where(jnp.arange(values.shape[0], dtype=jnp.int32) == action, -jnp.inf, values)
    return values[action] > others.max()


def one_hot(index: Int[Array, ""], size: int) -> Float[Array, "n"]:
    return (index == jnp.arange(size, dtype=jnp.int32)).astype(float)


def trace_back(*, delay: int = 20, placement: str = "early") -> DiscreteEnv:
    """Only going UP first and RIGHT second pays at the end, and at once it seems to cost.

    A square grid of side 3·delay/4, start in the middle, `delay` steps. The first two moves are the agent's; from then
    on every move goes to a uniformly drawn neighbour, whatever the action. Two placements of the reward:

        early   UP, RIGHT: −50 at the second step and +150 at the last; anything else: +50 at the second step
        end     UP, RIGHT: 100 at the last step; anything else: 50 at the last step

    The state is (time, earned, cell), with `earned` true from UP, RIGHT on. All moves change the cell's colour on a
    chessboard, so half a board per time is enough. A move off the board becomes a uniformly drawn legal one (a corner
    case of delays below 8).
    """
    delay = checks.whole("delay", delay, 3, 1000)
    early = checks.choice("placement", placement, ("early", "end")) == "early"
    side = max(3, 3 * delay // 4)
    stride, middle = side | 1, side // 2  # an odd stride makes the cell's parity that of row + column
    half = (side * stride + 1) // 2
    start = middle * stride + middle
    end = delay * 2 * half

    def number(time: Any, earned: Any, cell: Any) -> Any:
        return (time * 2 + earned) * half + cell // 2

    first, second = number(0, 0, start), number(1, 0, start - stride)

    def parts(state: Int[Array, ""]) -> tuple[Any, Any, Any]:
        time, earned = state // (2 * half), state // half % 2
        return time, earned, 2 * (state % half) + (start + time) % 2

    def reset(key: PRNGKeyArray) -> tuple[Any, Any]:
        return jnp.int32(first), jnp.int32(first)

    def step(state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray) -> Step:
        time, earned, cell = parts(state)
        row, column = cell // stride, cell % stride
        rows, columns = row + MOVES[:, 0], column + MOVES[:, 1]
        legal = (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
        count = jnp.cumsum(legal, dtype=jnp.int32)
        drawn = jnp.argmax(count > jnp.floor(jax.random.uniform(key) * count[-1].astype(float)).astype(jnp.int32))
        move = jnp.where((time < 2) & legal[action], action, drawn.astype(jnp.int32))
        right = (time == 1) & (action == RIGHT) & (cell == start - stride)
        earned = jnp.where(right, 1, earned)
        last = time == delay - 1
        if early:
            second = jnp.where(time == 1, jnp.where(right, -50.0, 50.0), 0.0)
            reward = second + jnp.where(last & (earned == 1), 150.0, 0.0)
        else:
            reward = jnp.where(last, jnp.where(earned == 1, 100.0, 50.0), 0.0)
        state = jnp.where(last, end, number(time + 1, earned, rows[move] * stride + columns[move]))
        return Step(state, state, reward.astype(float), last, jnp.zeros_like(last))

    def features(state: Int[Array, ""]) -> Float[Array, "f"]:
        _, earned, cell = parts(state)
        place = jnp.stack([cell // stride, cell % stride]).astype(float) / side - 0.5
        return jnp.where(state == end, 0.0, jnp.concatenate([place, earned[None].astype(float)]))

    return DiscreteEnv(
        Spec("trace-back", STATE, 4, horizon=delay),
        reset,
        step,
        num_states=end + 1,
        clocked=True,
        solved=lambda q: prefers(q, first, UP) & prefers(q, second, RIGHT),
        on_track=lambda states, actions: actions[0] == UP,
        features=features,
    )


class Tree(NamedTuple):
    """A Choice task's constants: where each node leads, what it adds, and the deviation of the total."""

    move: Float[np.ndarray, "j k"]
    share: Float[np.ndarray, " j"]
    deviation: float


def choice_tree(delay: int, width: int, spread: float, seed: int) -> Tree:
    """Moves Dirichlet(1) and shares uniform in ±spread, centred; the deviation is exact, by backward recursion."""
    rng = seeded(seed)
    move = rng.dirichlet(np.ones(width), width)
    share = rng.uniform(-spread, spread, width)
    settled = np.linalg.matrix_power(move, 64)[0]
    share = share - settled @ share
    mean, square = np.zeros(width), np.zeros(width)
    for _ in range(delay):
        mean, square = move @ (share + mean), move @ (share**2 + 2 * share * mean + square)
    return Tree(move, share, float(np.sqrt(square[0] - mean[0] ** 2)))


def choice(
    *,
    delay: int = 20,
    width: int = 9,
    spread: float = 1.0,
    gap: float | None = None,
    noise: tuple[float, float] = (0.0, 0.0),
    seed: int = 0,
) -> DiscreteEnv:
    """Two subtrees, one better on average; after the first action chance alone decides, and all is paid at the leaf.

    A subtree has `delay` levels of `width` nodes. Each step moves to a node of the next level (probabilities drawn
    from Dirichlet(1)), and each node adds its share, uniform in ±`spread`, to a total that is paid at the end only.
    The total is not part of the state. The better subtree (action 0) pays `gap` more; `noise` = (better, worse) are
    standard deviations of what is added at the leaf.

    The published task's constants are not known. By default gap = σ / (4.4 + 2.3·log₁₀(delay/10)), σ the deviation of
    the total: then Monte Carlo (rate 0.1, ε = 0.2, solved by a moving average of rate 0.001) needs about the published
    number of episodes at delay 10, 8,223, and grows somewhat slower than the published one.
    """
    delay = checks.whole("delay", delay, 3, 10_000)
    width = checks.whole("width", width, 1, 1000)
    tree = choice_tree(delay, width, checks.number("spread", spread, 0.0), seed)
    usual = tree.deviation / (4.4 + 2.3 * math.log10(delay / 10))
    more = usual if gap is None else checks.number("gap", gap, 0.0)
    if more == 0:
        raise ValueError("the two subtrees pay the same: give a gap above 0, or a width and spread that make one")
    scale = checks.number_list("noise", noise, 2, 0.0)
    reach = np.cumsum(tree.move, axis=1)
    reach[:, -1] = 2.0
    end = 1 + 2 * width * (delay - 1)

    def reset(key: PRNGKeyArray) -> tuple[Any, Any]:
        return (jnp.int32(0), jnp.zeros((), float)), jnp.int32(0)

    def step(state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> Step:
        here, total = state
        inner = jnp.maximum(here - 1, 0)
        level = jnp.where(here == 0, 0, 1 + inner // (2 * width))
        branch = jnp.where(here == 0, jnp.minimum(action, 1), inner // width % 2)
        node = jnp.where(here == 0, 0, inner % width)
        draw = jax.random.uniform(key)
        node = jnp.sum(jnp.asarray(reach, float)[node] <= draw, dtype=jnp.int32)
        total = total + jnp.asarray(tree.share, float)[node]
        last = level == delay - 1
        extra = jnp.where(branch == 0, more, 0.0)
        if scale.any():
            extra = extra + jnp.asarray(scale, float)[branch] * jax.random.normal(jax.random.fold_in(key, 1))
        there = jnp.where(last, end, 1 + level * 2 * width + branch * width + node).astype(jnp.int32)
        reward = jnp.where(last, total + extra, 0.0)
        return Step((there, total), there, reward, last, jnp.zeros_like(last))

    def features(state: Int[Array, ""]) -> Float[Array, "f"]:
        inner = jnp.maximum(state - 1, 0)
        branch = jnp.where(state == 0, 2, inner // width % 2)
        node = jnp.where(state == 0, width, inner % width)
        return jnp.where(state == end, 0.0, jnp.concatenate([one_hot(branch, 2), one_hot(node, width)]))

    return DiscreteEnv(
        Spec("choice", STATE, 2, horizon=delay),
        reset,
        step,
        num_states=end + 1,
        clocked=True,
        solved=lambda q: prefers(q, 0, 0),
        on_track=lambda states, actions: actions[0] == 0,
        features=features,
    )
