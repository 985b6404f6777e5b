"""Models in blocks over worker processes: the single-process answer within certificates, also when a worker dies."""

import functools
import time

import numpy as np
import pytest
from blocks import SIDE, agree, killed, load, maze
from scipy.sparse import csr_array

from highway_rl.machines import here, workers
from highway_rl.solvers import BlockRows, block_solve, highway_solve


def test_blocks_in_this_process_are_the_model(tmp_path):
    model = maze(SIDE).sparse()
    rows = BlockRows(model, *model.reward.shape, here)
    agree(highway_solve(model, 1e-8), highway_solve(rows, 1e-8))
    x, out = np.linspace(-3.0, 5.0, SIDE**2), np.empty(SIDE**2)
    spread, policy = rows.backup(x, out)
    q = model.q_values(x)
    np.testing.assert_allclose(out, q.max(axis=1))
    np.testing.assert_allclose(np.take_along_axis(q, policy[:, None], axis=1)[:, 0], out)
    alive = np.arange(SIDE**2) < SIDE**2 - 1
    assert spread.low == pytest.approx((out - x)[alive].min())
    assert spread.high == pytest.approx((out - x)[alive].max())


@pytest.mark.long
def test_four_workers_agree_and_one_that_dies_gets_its_block_again():
    """The pieces are loaded in the workers; one is killed in the middle."""
    with workers("local", 4) as found:
        rows, solution = killed((functools.partial(load, SIDE), SIDE**2, 4), found, 1e-8)
    assert max(len(facts.needs) for facts in rows.facts) < SIDE**2 / 2  # no worker is sent all values
    agree(highway_solve(maze(SIDE), 1e-8), solution)


@pytest.mark.full
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_two_million_states_on_four_workers_one_of_which_is_killed(executor):
    side, discount = 1415, 0.95
    model = maze(side, discount).sparse()
    begun = time.perf_counter()
    alone = highway_solve(model, 1e-3)
    between = time.perf_counter()
    with workers(executor, 4) as found:
        _, solution = killed((model, *model.reward.shape), found, 1e-3)
    seconds = between - begun, time.perf_counter() - between
    print(f"{executor}: {side**2} states, alone {seconds[0]:.1f} s, in 4 blocks {seconds[1]:.1f} s")
    agree(alone, solution)


@pytest.mark.parametrize(
    ("piece", "says"),
    [
        ((np.zeros((1, 1)), csr_array([[0.5]]), 0.9), "sum to 1"),
        ((np.zeros((1, 1)), csr_array([[1.0, 0.0]]), 0.9), r"transitions \(1, 2\): give"),
        ((np.full((1, 1), np.nan), csr_array([[1.0]]), 0.9), "give probabilities"),
        ((np.ones((1, 1)), csr_array([[1.0]]), 1.0), "reaches 1: give one below 1"),
    ],
)
def test_blocks_that_cannot_be(piece, says):
    with pytest.raises(ValueError, match=says):
        BlockRows(lambda first, last: piece, 1, 1, here)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="give shape="):
        block_solve(load)
    with pytest.raises(ValueError, match="give a SparseMDP"):
        block_solve(3)
    with pytest.raises(ValueError, match="blocks=0: give"):
        block_solve(maze(4).sparse(), blocks=0)
