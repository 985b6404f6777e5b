"""The textbook models: sound tables, and the closed forms known for them."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from highway_rl.envs.models.generators import chain, garnet, inventory, maze, maze_passages, queue
from highway_rl.envs.models.layouts import MOVES
from highway_rl.envs.models.tables import absorbing_states, poisson

MODELS = {
    "garnet": garnet,
    "garnet, dense": partial(garnet, states=7, branching=7, sparse_reward=1.0),
    "garnet, one state": partial(garnet, states=1, actions=1, branching=1),
    "maze": maze,
    "maze, slippery and braided": partial(maze, slip=0.3, braid=1.0, reward="goal"),
    "maze, only sideways": partial(maze, slip=1.0),
    "maze, one column": partial(maze, height=2, width=1),
    "chain": chain,
    "chain, slippery": partial(chain, slip=0.2),
    "chain, reversed": partial(chain, length=2, slip=1.0, reward="step"),
    "inventory": inventory,
    "inventory, little demand": partial(inventory, capacity=30, mean_demand=0.5, demand_limit=2),
    "queue": queue,
    "queue, idle server": partial(queue, capacity=1, service_rates=(0.0,), service_costs=(0.0,)),
}


@pytest.mark.parametrize("name", MODELS)
def test_tables(name, check_table):
    check_table(MODELS[name]())


@pytest.mark.parametrize("make", [garnet, partial(maze, braid=0.5)])
def test_seeds_decide_everything(make):
    one, same, other = (make(seed=seed) for seed in (1, 1, 2))
    for left, right in zip(one, same, strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(one.successor, other.successor)


def test_garnet_draws_uniform_sets_and_simplices():
    table = garnet(states=5, actions=20_000, branching=2, sparse_reward=0.25)
    pairs = table.successor.reshape(-1, 2)
    assert (np.diff(pairs, axis=1) > 0).all(), "distinct"
    counts = np.bincount(pairs @ (5, 1), minlength=25)
    np.testing.assert_allclose(counts[counts > 0] / len(pairs), 0.1, atol=0.005)
    assert np.count_nonzero(counts) == 10
    np.testing.assert_allclose(np.quantile(table.probability, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.01)
    assert np.mean(table.reward != 0) == pytest.approx(0.25, abs=0.01)
    assert np.std(table.reward[table.reward != 0]) == pytest.approx(1, abs=0.02)


def test_garnet_is_the_same_over_chunk_borders():
    table = garnet(states=60_000, actions=2, branching=5, seed=3)
    assert (np.diff(table.successor, axis=-1) > 0).all()
    assert len(np.unique(table.probability[..., 0])) == 120_000


@pytest.mark.parametrize(("height", "width"), [(1, 9), (9, 1), (8, 11), (30, 30)])
def test_perfect_maze_is_a_tree(height, width, distances):
    passages = maze_passages(height=height, width=width, seed=2)
    cells = height * width
    assert passages.sum() == 2 * (cells - 1)
    ahead = np.arange(cells)[:, None] + np.array(MOVES) @ (width, 1)
    for heading in range(4):
        opened = np.flatnonzero(passages[:, heading])
        assert passages[ahead[opened, heading], (heading + 2) % 4].all(), "open from both sides"
    rows, headings = np.nonzero(passages)
    graph = coo_array((np.ones(len(rows)), (rows, ahead[rows, headings])), shape=(cells, cells))
    assert connected_components(graph)[0] == 1
    table = maze(height=height, width=width, seed=2)
    assert distances(table)[-1] >= height + width - 2
    assert np.flatnonzero(absorbing_states(table)).tolist() == [cells - 1]


def test_braiding_opens_dead_ends():
    perfect, half, full = (maze_passages(height=30, width=30, braid=braid) for braid in (0.0, 0.5, 1.0))
    dead_ends = [np.count_nonzero(passages.sum(1) == 1) for passages in (perfect, half, full)]
    assert dead_ends[0] > dead_ends[1] > dead_ends[2] == 0
    assert (full >= perfect).all()


def test_maze_costs_its_distance(optimal_values, distances):
    for reward in ("step", "goal"):
        table = maze(height=6, width=7, braid=0.5, reward=reward, seed=4)
        steps = distances(table)[-1]
        value = optimal_values(table, 0.9, 60)[0].max()
        assert value == pytest.approx(0.9 ** (steps - 1) if reward == "goal" else -(1 - 0.9**steps) / 0.1)


def test_maze_slips_to_the_sides():
    straight, slippery = maze(seed=1), maze(slip=0.2, seed=1)
    np.testing.assert_array_equal(slippery.probability[0, 0], [0.8, 0.1, 0.1])
    for place, turn in enumerate((0, 1, -1)):
        expected = np.roll(straight.successor[..., 0], -turn, axis=1)
        np.testing.assert_array_equal(slippery.successor[..., place], expected)


def test_chain_without_slip(optimal_values):
    q = optimal_values(chain(length=8), 0.9, 20)
    np.testing.assert_allclose(q[:-1, 1], 0.9 ** (6.0 - np.arange(7)))
    assert (q[-1] == 0).all()


def test_slippery_chain_has_the_hitting_time_of_a_reflected_walk(optimal_values):
    """From i the first visit to i + 1 takes Σⱼ₌₀ⁱ (q/p)ʲ / p steps: h(i) = (1 + q h(i-1)) / p, h(0) = 1 / p."""
    p, q, length = 0.8, 0.2, 6
    climb = np.array([sum((q / p) ** j for j in range(i + 1)) / p for i in range(length - 1)])
    values = optimal_values(chain(length=length, slip=q, reward="step"), 1.0, 2000).max(1)
    np.testing.assert_allclose(values[:-1], -np.cumsum(climb[::-1])[::-1])


def test_inventory_of_capacity_one():
    q, price, unit, order, hold, penalty = math.exp(-0.7), 5.0, 2.0, 0.5, 0.3, 1.0
    table = inventory(
        capacity=1,
        mean_demand=0.7,
        price=price,
        unit_cost=unit,
        order_cost=order,
        holding_cost=hold,
        penalty_cost=penalty,
    )
    empty = -penalty * 0.7
    full = price * (1 - q) - hold * q - penalty * (0.7 - (1 - q))
    np.testing.assert_allclose(table.reward, [[empty, full - unit - order], [full, full]])
    np.testing.assert_allclose(table.probability, [[[1, 0], [1 - q, q]], [[1 - q, q]] * 2], atol=1e-15)
    assert table.successor.tolist() == [[[0, 0], [0, 1]], [[0, 1], [0, 1]]]


@pytest.mark.parametrize("mean", [0.5, 3.0, 8.0])
def test_one_period_inventory_is_the_newsvendor(mean):
    price, unit, hold, penalty = 5.0, 2.0, 0.3, 1.0
    table = inventory(
        capacity=25,
        mean_demand=mean,
        price=price,
        unit_cost=unit,
        order_cost=0.0,
        holding_cost=hold,
        penalty_cost=penalty,
    )
    fractile = (price + penalty - unit) / (price + penalty + hold)
    assert table.reward[0].argmax() == np.searchsorted(np.cumsum(poisson(mean, 100)), fractile)


@pytest.mark.parametrize("mean", [0.3, 4.0, 200.0])
def test_poisson_moments(mean):
    chance = poisson(mean, 1000)
    count = np.arange(1001)
    assert chance @ count == pytest.approx(mean)
    assert chance @ (count - mean) ** 2 == pytest.approx(mean)
    assert chance[0] == pytest.approx(math.exp(-mean))


@pytest.mark.parametrize("service", [0.5, 1.0, 2.0])
def test_queue_is_stationary_as_m_m_1(service):
    table = queue(capacity=6, arrival_rate=0.8, service_rates=(service,), service_costs=(0.0,), holding_cost=1.0)
    admit = 1
    transition = np.zeros((7, 7))
    np.add.at(transition, (np.arange(7)[:, None], table.successor[:, admit]), table.probability[:, admit])
    stationary = (0.8 / service) ** np.arange(7.0)
    stationary /= stationary.sum()
    np.testing.assert_allclose(stationary @ transition, stationary)
    gain = 5 * 0.8 * (1 - stationary[-1]) - stationary @ np.arange(7)
    assert stationary @ table.reward[:, admit] == pytest.approx(gain / (0.8 + service))


def test_queue_actions():
    table = queue(capacity=3, arrival_rate=1.0, service_rates=(1.0, 3.0), service_costs=(0.5, 2.0), holding_cost=0.1)
    assert table.successor[1].tolist() == [[1, 0, 1], [1, 0, 1], [2, 0, 1], [2, 0, 1]]
    np.testing.assert_allclose(
        table.probability[1], [[0, 0.25, 0.75], [0, 0.75, 0.25], [0.25, 0.25, 0.5], [0.25, 0.75, 0]]
    )
    np.testing.assert_allclose(table.reward[1], [-0.6 / 4, -2.1 / 4, 4.4 / 4, 2.9 / 4])
    np.testing.assert_array_equal(table.reward[3, 2:], table.reward[3, :2])


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (garnet, {"states": 0}, "states=0: give a whole number from 1 to 100000000"),
        (garnet, {"actions": 0}, "actions=0: give a whole number from 1 to 1000000"),
        (garnet, {"states": 3, "branching": 4}, "branching=4: give a whole number from 1 to 3"),
        (garnet, {"sparse_reward": 1.5}, "sparse_reward=1.5: give a number from 0 to 1"),
        (garnet, {"seed": -3}, "seed=-3: give a whole number from 0 to 9223372036854775807"),
        (
            garnet,
            {"states": 10**8, "actions": 100},
            "states × actions × branching=50000000000: give a whole number from 1 to 1000000000",
        ),
        (maze, {"height": 0}, "height=0: give a whole number from 1 to 10000"),
        (maze, {"width": 20_000}, "width=20000: give a whole number from 1 to 10000"),
        (maze, {"height": 1, "width": 1}, "height × width=1: give a whole number from 2 to 100000000"),
        (maze, {"slip": -0.1}, "slip=-0.1: give a number from 0 to 1"),
        (maze, {"braid": 2.0}, "braid=2.0: give a number from 0 to 1"),
        (maze, {"reward": "gold"}, "reward='gold': give one of step, goal"),
        (chain, {"length": 1}, "length=1: give a whole number from 2 to 100000000"),
        (chain, {"slip": float("nan")}, "slip=nan: give a number from 0 to 1"),
        (chain, {"reward": ""}, "reward='': give one of step, goal"),
        (inventory, {"capacity": 0}, "capacity=0: give a whole number from 1 to 300"),
        (inventory, {"mean_demand": 0.0}, "mean_demand=0.0: give a number from 1e-06 to 10000"),
        (inventory, {"demand_limit": 0}, "demand_limit=0: give a whole number from 1 to 100000"),
        (inventory, {"price": -1.0}, "price=-1.0: give a number from 0 to 1e+09"),
        (inventory, {"order_cost": float("inf")}, "order_cost=inf: give a number from 0 to 1e+09"),
        (queue, {"capacity": 0}, "capacity=0: give a whole number from 1 to 1000000"),
        (queue, {"arrival_rate": 0.0}, "arrival_rate=0.0: give a number from 1e-06 to 1e+06"),
        (queue, {"service_rates": ()}, "len(service_rates)=0: give a whole number from 1 to 1000"),
        (queue, {"service_costs": (1.0,)}, "service_costs=(1.0,): give 2 numbers, one for each service rate"),
        (queue, {"service_rates": (1.0, -2.0)}, "service_rates[1]=-2.0: give a number from 0 to 1e+06"),
        (queue, {"holding_cost": -1.0}, "holding_cost=-1.0: give a number from 0 to 1e+09"),
    ],
)
def test_bad_options(make, options, message):
    with pytest.raises(ValueError, match=": give ") as error:
        make(**options)
    assert str(error.value) == message
