"""Two delayed-reward tasks the Highway paper did not choose: RUDDER's Grid World and its pocket-watch repair."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from highway_rl import checks
from highway_rl.envs.tasks.delayed import MOVES, STATE, one_hot, prefers
from highway_rl.types import DiscreteEnv, Spec, Step

SIDE = 31
BOMB = (30, 15)


def grid_world(*, delay: int = 8) -> DiscreteEnv:
    """Defuse a bomb `delay` cells away, though every step away from it pays at once.

    A board of 31 × 31, the bomb at (30, 15), the start at (30 − delay, 15), 3·delay/2 steps. A step t that ends h cells
    from the bomb pays 0.1·t·h if it led away from it and −0.09·t·h if it led towards it; moves off the board stay
    and pay nothing. If the bomb's cell was visited, the last step pays 1000 with probability ½. The state is
    (time, visited, cell). Solved: the greedy policy, where it has no ties, passes the bomb.
    """
    delay = checks.whole("delay", delay, 3, 30)
    steps = 3 * delay // 2
    first = (BOMB[0] - delay) * SIDE + BOMB[1]
    goal = BOMB[0] * SIDE + BOMB[1]
    cells = SIDE * SIDE
    end = steps * 2 * cells

    def distance(cell: Any) -> Any:
        return jnp.abs(cell // SIDE - BOMB[0]) + jnp.abs(cell % SIDE - BOMB[1])

    def parts(state: Int[Array, ""]) -> tuple[Any, Any, Any]:
        return state // (2 * cells), state // cells % 2, state % cells

    def reset(key: PRNGKeyArray) -> tuple[Any, Any]:
        return jnp.int32(first), jnp.int32(first)

    def move(state: Int[Array, ""], action: Int[Array, ""]) -> tuple[Any, Any]:
        time, visited, cell = parts(state)
        row = jnp.clip(cell // SIDE + jnp.asarray(MOVES)[action, 0], 0, SIDE - 1)
        column = jnp.clip(cell % SIDE + jnp.asarray(MOVES)[action, 1], 0, SIDE - 1)
        there = row * SIDE + column
        visited = jnp.where(there == goal, 1, visited)
        last = time == steps - 1
        return jnp.where(last, end, ((time + 1) * 2 + visited) * cells + there).astype(jnp.int32), (
            there,
            visited,
            last,
        )

    def step(state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray) -> Step:
        time, _, cell = parts(state)
        new, (there, visited, last) = move(state, action)
        far, near = distance(there), distance(cell)
        rate = jnp.where(far > near, 0.1, jnp.where(far < near, -0.09, 0.0))
        reward = rate * ((time + 1) * far).astype(float)
        lucky = jax.random.uniform(key) < 0.5
        reward = reward + jnp.where(last & (visited == 1) & lucky, 1000.0, 0.0)
        return Step(new, new, reward.astype(float), last, jnp.zeros_like(last))

    def solved(q: Float[Array, "s a"]) -> Bool[Array, ""]:
        def follow(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
            state, sure = carry
            best = jnp.argmax(q[state]).astype(jnp.int32)
            sure = sure & prefers(q, state, best)
            new, (_, visited, _) = move(state, best)
            return (new, sure), sure & (visited == 1)

        return jax.lax.scan(follow, (jnp.int32(first), jnp.bool_(True)), length=steps)[1].any()

    def features(state: Int[Array, ""]) -> Float[Array, "f"]:
        _, visited, cell = parts(state)
        place = jnp.stack([cell // SIDE, cell % SIDE]).astype(float) / SIDE - 0.5
        return jnp.where(state == end, 0.0, jnp.concatenate([place, visited[None].astype(float)]))

    def on_track(states: Int[Array, "t"], actions: Int[Array, "t"]) -> Bool[Array, ""]:
        return move(states[-1], actions[-1])[1][1] == 1

    return DiscreteEnv(
        Spec("grid-world", STATE, 4, horizon=steps),
        reset,
        step,
        num_states=end + 1,
        clocked=True,
        solved=solved,
        on_track=on_track,
        features=features,
    )


BRANDS = 4
PROFIT = np.array([-1.5, 3.5, 3.5, -1.5])
REPAIR = np.array([[1.0, 2.0], [4.0, 2.0], [5.0, 2.0], [24.5, 1.0]])
DELIVERY = np.array([[0.5, 1.5], [2.5, 1.5], [4.5, 1.5], [18.0, 1.5]])
EVENTS = np.array([[0.1, 0.1], [7.0, 0.05]])
"""Per brand: expected profit of a repair, (mean, deviation) of its costs; events: (cost, probability per step)."""


def watch_repair(*, delay: int = 50, deviation: tuple[float, ...] | None = None) -> DiscreteEnv:
    """Is this watch worth repairing? The sale comes `delay` steps later, after repair, delivery and mishaps.

    A watch of one of four brands arrives; action 1 repairs it, 0 leaves it (return 0). A repaired one is sold at
    the end, minus the repair and delivery costs of its brand (normal) and of the events on the way, which are seen as
    they happen. The prices are such that brands 1 and 2 gain 3.5 on average and brands 0 and 3 lose 1.5: at delay 50
    the prices 18, 28, 31, 59 of the RUDDER authors' code. `deviation` replaces the four deviations of the repair cost.
    The state is (time, event, repaired, brand).
    """
    delay = checks.whole("delay", delay, 3, 10_000)
    sd = REPAIR[:, 1] if deviation is None else checks.number_list("deviation", deviation, BRANDS, 0.0)
    price = PROFIT + REPAIR[:, 0] + DELIVERY[:, 0] + (EVENTS[:, 0] * EVENTS[:, 1]).sum() * delay
    chance = np.cumsum(EVENTS[::-1, 1])
    slots = 3 * 2 * BRANDS
    end = delay * slots

    def parts(state: Int[Array, ""]) -> tuple[Any, Any, Any, Any]:
        return state // slots, state // (2 * BRANDS) % 3, state // BRANDS % 2, state % BRANDS

    def reset(key: PRNGKeyArray) -> tuple[Any, Any]:
        brand = jnp.minimum((jax.random.uniform(key) * BRANDS).astype(jnp.int32), BRANDS - 1)
        return (brand, jnp.zeros((), float)), brand

    def step(state: Any, action: Int[Array, ""], key: PRNGKeyArray) -> Step:
        here, spent = state
        time, _, repaired, brand = parts(here)
        repaired = jnp.where(time == 0, jnp.minimum(action, 1), repaired)
        draw = jax.random.uniform(key)
        event = jnp.where(draw < chance[0], 2, jnp.where(draw < chance[1], 1, 0))
        spent = spent + jnp.asarray(np.append(0.0, EVENTS[:, 0]), float)[event]
        last = time == delay - 1
        costs = jax.random.normal(jax.random.fold_in(key, 1)) * jnp.asarray(np.hypot(sd, DELIVERY[:, 1]), float)[brand]
        sale = jnp.asarray(price - REPAIR[:, 0] - DELIVERY[:, 0], float)[brand] - costs - spent
        there = ((time + 1) * 3 + event) * 2 * BRANDS + repaired * BRANDS + brand
        there = jnp.where(last, end, there).astype(jnp.int32)
        reward = jnp.where(last & (repaired == 1), sale, 0.0)
        return Step((there, spent), there, reward, last, jnp.zeros_like(last))

    def features(state: Int[Array, ""]) -> Float[Array, "f"]:
        _, event, repaired, brand = parts(state)
        kind = one_hot(repaired * BRANDS + brand, 2 * BRANDS)
        return jnp.where(state == end, 0.0, jnp.concatenate([kind, one_hot(event - 1, 2)]))

    best = np.array([0, 1, 1, 0], np.int32)
    return DiscreteEnv(
        Spec("watch-repair", STATE, 2, horizon=delay),
        reset,
        step,
        num_states=end + 1,
        clocked=True,
        solved=lambda q: jnp.stack([prefers(q, s, int(best[s])) for s in range(BRANDS)]).all(),
        on_track=lambda states, actions: actions[0] == jnp.asarray(best)[states[0]],
        features=features,
    )
