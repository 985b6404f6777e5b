"""Model generators of textbook problems: Garnet, mazes, chains, inventory and queue control.

Each returns a plain `Table`; random ones depend on their options and seed only.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Int, Int32
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree

from highway_rl import checks
from highway_rl.envs.models.layouts import MOVES
from highway_rl.envs.models.tables import Table, poisson, seeded

CHUNK_ENTRIES = 2**19
REWARDS = ("step", "goal")


def garnet(
    *, states: int = 100, actions: int = 4, branching: int = 5, sparse_reward: float = 0.1, seed: int = 0
) -> Table:
    """A random MDP without structure (Garnet), K = branching.

        successors of (s, a)      a uniform set of K distinct states
        P(· | s, a)               uniform on the simplex over that set, Dirichlet(1, …, 1)
        r(s, a)                   standard normal with probability sparse_reward, else 0

    Rows are drawn in chunks, so little more memory is needed than the tables take.
    """
    checks.whole("states", states, 1, 10**8)
    checks.whole("actions", actions, 1, 10**6)
    checks.whole("branching", branching, 1, states)
    checks.whole("states × actions × branching", states * actions * branching, 1, 10**9)
    checks.number("sparse_reward", sparse_reward, 0.0, 1.0)
    rng = seeded(seed)
    rows = states * actions
    reward = np.zeros(rows)
    successor = np.empty((rows, branching), np.int32)
    probability = np.empty((rows, branching))
    chunk = max(CHUNK_ENTRIES // branching, 1)
    for first in range(0, rows, chunk):
        part = slice(first, min(first + chunk, rows))
        count = part.stop - part.start
        successor[part] = _distinct(rng, count, states, branching)
        rng.standard_exponential(out=probability[part])
        probability[part] /= probability[part].sum(1, keepdims=True)
        pays = rng.random(count) < sparse_reward
        reward[part][pays] = rng.standard_normal(np.count_nonzero(pays))
    shape = states, actions, branching
    return Table(reward.reshape(shape[:2]), successor.reshape(shape), probability.reshape(shape))


def _distinct(rng: np.random.Generator, rows: int, states: int, count: int) -> Int32[np.ndarray, "{rows} {count}"]:
    """Uniform sets of `count` distinct states, sorted: Floyd's sampling, one member of all rows at a time."""
    chosen = np.empty((count, rows), np.int32)
    for member in range(count):
        last = states - count + member
        draw = rng.integers(0, last + 1, rows, dtype=np.int32)
        taken = (chosen[:member] == draw).any(0)
        chosen[member] = np.where(taken, last, draw)
    return np.sort(chosen.T, 1)


def maze(
    *, height: int = 10, width: int = 10, slip: float = 0.0, braid: float = 0.0, reward: str = "step", seed: int = 0
) -> Table:
    """A random maze of height × width cells with the actions right, down, left, up.

        next cell     in the direction of a with probability 1 - slip, to either side of it with slip / 2 each;
                      where a wall is in the way, the same cell
        r(s, a)       "step": -1;  "goal": the probability to enter the goal

    States are cells in reading order; one starts in 0, the top left, and the last is the absorbing goal.
    `braid` is explained at `maze_passages`.
    """
    checks.number("slip", slip, 0.0, 1.0)
    checks.choice("reward", reward, REWARDS)
    passages = maze_passages(height=height, width=width, braid=braid, seed=seed)
    cells = np.arange(height * width)[:, None]
    steps = np.array([row * width + column for row, column in MOVES])
    neighbour = np.where(passages, cells + steps, cells)
    directions = (np.arange(len(MOVES))[:, None] + (0, 1, -1)) % len(MOVES)
    return _with_goal(neighbour[:, directions], (1 - slip, slip / 2, slip / 2), reward)


def maze_passages(*, height: int = 10, width: int = 10, braid: float = 0.0, seed: int = 0) -> Bool[np.ndarray, "s 4"]:
    """Which of the four neighbours each cell is open to.

    The passages are the minimum spanning tree of uniform random weights: a perfect maze, with one path
    between any two cells. Then a share `braid` of the dead ends is opened to one more neighbour, which makes loops.
    """
    checks.whole("height", height, 1, 10_000)
    checks.whole("width", width, 1, 10_000)
    checks.whole("height × width", height * width, 2, 10**8)
    checks.number("braid", braid, 0.0, 1.0)
    rng = seeded(seed)
    cells = np.arange(height * width).reshape(height, width)
    ends = (
        np.concatenate([cells[:, :-1].ravel(), cells[:-1].ravel()]),
        np.concatenate([cells[:, 1:].ravel(), cells[1:].ravel()]),
    )
    weights = rng.permutation(len(ends[0])) + 1.0
    tree = minimum_spanning_tree(coo_array((weights, ends), shape=(cells.size, cells.size)).tocsr()).tocoo()

    passages = np.zeros((cells.size, len(MOVES)), bool)
    downward = tree.col - tree.row == width
    _open(passages, tree.row, downward.astype(int), width)
    inside = np.stack(
        [cells % width < width - 1, cells < cells.size - width, cells % width > 0, cells >= width], -1
    ).reshape(passages.shape)
    dead_ends = (passages.sum(1) == 1) & (rng.random(cells.size) < braid)
    chosen = np.flatnonzero(dead_ends & (inside & ~passages).any(1))
    closed = inside[chosen] & ~passages[chosen]
    _open(passages, chosen, np.where(closed, rng.random(closed.shape), -1).argmax(1), width)
    return passages


def _open(
    passages: Bool[np.ndarray, "s 4"], cells: Int[np.ndarray, " n"], headings: Int[np.ndarray, " n"], width: int
) -> None:
    """Opens, in place, the passage ahead of each cell, for both its sides."""
    passages[cells, headings] = True
    ahead = cells + np.array(MOVES)[headings] @ (width, 1)
    passages[ahead, (headings + 2) % len(MOVES)] = True


def chain(*, length: int = 10, slip: float = 0.0, reward: str = "goal") -> Table:
    """States 0, …, length - 1 in a row with the actions 0 = back and 1 = on; the last is the absorbing goal.

        next state    one step as a says with probability 1 - slip, else one the other way; a step back from 0 stays
        r(s, a)       "goal": the probability to enter the goal;  "step": -1

    Without slip and with reward "goal", V*(s) = γ^(length - 2 - s) before the goal.
    """
    checks.whole("length", length, 2, 10**8)
    checks.number("slip", slip, 0.0, 1.0)
    checks.choice("reward", reward, REWARDS)
    states = np.arange(length)
    neighbours = np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, length - 1)], 1)
    return _with_goal(neighbours[:, [[0, 1], [1, 0]]], (1 - slip, slip), reward)


def _with_goal(successor: Int[np.ndarray, "s a k"], chance: tuple[float, ...], reward: str) -> Table:
    """The table where place k has the same chance everywhere and the last state is the absorbing goal.

    Places without chance are left out, so K = 1 without slip.
    """
    places = np.flatnonzero(chance)
    goal, probability = len(successor) - 1, np.array(chance, float)[places]
    successor = successor[..., places].astype(np.int32)
    successor[goal] = goal
    enters = (successor == goal) @ probability
    gain = enters if reward == "goal" else np.full(enters.shape, -1.0)
    gain[goal] = 0
    return Table(gain, successor, np.broadcast_to(probability, successor.shape).copy())


def inventory(
    *,
    capacity: int = 20,
    mean_demand: float = 5.0,
    demand_limit: int | None = None,
    price: float = 5.0,
    unit_cost: float = 2.0,
    order_cost: float = 3.0,
    holding_cost: float = 0.2,
    penalty_cost: float = 1.0,
) -> Table:
    """Stock control with lost sales: the state is the stock s = 0, …, capacity, the action a the wanted order.

        y = min(s + a, capacity),     D ~ Poisson(mean_demand) given D ≤ demand_limit,     s' = max(y - D, 0)
        r(s, a) = E[price · min(y, D) - holding_cost · (y - D)⁺ - penalty_cost · (D - y)⁺]
                  - unit_cost · (y - s) - order_cost · 1{y > s}

    `demand_limit=None` cuts where less than 10⁻¹² of the demand lies beyond. For one period and without order cost
    the best level is the newsvendor's: the least y with P(D ≤ y) ≥ (p + l - c) / (p + l + h) for the price p and
    the penalty, unit and holding costs l, c, h.
    """
    checks.whole("capacity", capacity, 1, 300)
    checks.number("mean_demand", mean_demand, 1e-6, 1e4)
    if demand_limit is None:
        demand_limit = math.ceil(mean_demand + 10 * math.sqrt(mean_demand) + 10)
    checks.whole("demand_limit", demand_limit, 1, 10**5)
    named_costs = {"unit_cost": unit_cost, "order_cost": order_cost, "holding_cost": holding_cost}
    for option, value in {"price": price, "penalty_cost": penalty_cost, **named_costs}.items():
        checks.number(option, value, 0.0, 1e9)

    stock = np.arange(capacity + 1)
    demand, chance = np.arange(demand_limit + 1), poisson(mean_demand, demand_limit)
    sold = np.minimum(stock[:, None], demand) @ chance
    income = price * sold - holding_cost * (stock - sold) - penalty_cost * (demand @ chance - sold)
    leftover = np.zeros((capacity + 1, capacity + 1))
    np.add.at(leftover, (stock[:, None], np.maximum(stock[:, None] - demand, 0)), chance)

    level = np.minimum(stock[:, None] + stock, capacity)
    order = level - stock[:, None]
    probability = leftover[level]
    successor = np.where(probability > 0, stock, stock[:, None, None]).astype(np.int32)
    return Table(income[level] - unit_cost * order - order_cost * (order > 0), successor, probability)


def queue(
    *,
    capacity: int = 20,
    arrival_rate: float = 0.8,
    service_rates: tuple[float, ...] = (0.5, 1.0),
    service_costs: tuple[float, ...] = (0.0, 0.5),
    admission_reward: float = 5.0,
    holding_cost: float = 0.2,
) -> Table:
    """Admission and service-rate control of a queue with s = 0, …, capacity customers, uniformised.

    With m service rates μ the action is a = m · admit + j: whether to admit arrivals (0 or 1) and which rate μⱼ runs.

        Λ = λ + max μ      P(s + 1) = admit · λ / Λ  if s < capacity      P(s - 1) = μⱼ / Λ  if s > 0      else stay
        r(s, a) = (λ · admission_reward · admit · 1{s < capacity} - holding_cost · s - service_costs[j]) / Λ

    One step lasts 1/Λ on average. Always admitting at one rate gives the M/M/1/capacity queue: the stationary
    distribution is proportional to (λ/μ)ˢ.
    """
    checks.whole("capacity", capacity, 1, 10**6)
    checks.number("arrival_rate", arrival_rate, 1e-6, 1e6)
    checks.whole("len(service_rates)", len(service_rates), 1, 1000)
    if len(service_costs) != len(service_rates):
        raise checks.refusal("service_costs", service_costs, f"{len(service_rates)} numbers, one for each service rate")
    for option, values in {"service_rates": service_rates, "service_costs": service_costs}.items():
        for index, value in enumerate(values):
            checks.number(f"{option}[{index}]", value, 0.0, 1e6)
    checks.number("admission_reward", admission_reward, 0.0, 1e9)
    checks.number("holding_cost", holding_cost, 0.0, 1e9)

    customers = np.arange(capacity + 1)[:, None]
    admit = np.repeat([0.0, 1.0], len(service_rates)) * (customers < capacity)
    service, cost = np.tile([service_rates, service_costs], 2)
    total = arrival_rate + max(service_rates)
    up, down = arrival_rate * admit / total, service * (customers > 0) / total
    probability = np.stack([up, down, 1 - up - down], -1)
    probability[..., 2].clip(0, out=probability[..., 2])
    successor = customers[..., None] + np.array([1, -1, 0]) * (probability > 0)
    reward = (arrival_rate * admission_reward * admit - holding_cost * customers - cost) / total
    return Table(reward, successor.astype(np.int32), probability)
