"""The stored runs of the main comparison."""

from pathlib import Path

import pytest

from highway_rl.experiments import main_plot, queue
from highway_rl.experiments.retrace_weights import beside

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def delayed():
    experiment = next(one for one in queue.deep() if one.name == "main")
    return main_plot.finals(experiment.stored(RESULTS), "delay=end", "best")


def test_a_comparison_is_of_equal_runs(delayed):
    for tasks in delayed.values():
        for rows in tasks.values():
            assert {row["steps"] for row in rows} == {5_000_000}
            assert [row["seed"] for row in rows] == list(range(len(rows)))
    assert len({tuple(len(rows) for rows in tasks.values()) for tasks in delayed.values()}) == 1


def test_what_retrace_keeps_is_its_score_beside_the_better_highway_agent(delayed):
    for task in delayed["Retrace(1)"]:
        mean = {name: sum(row["greedy"] for row in tasks[task]) / len(tasks[task]) for name, tasks in delayed.items()}
        better = max(mean["Soft Highway DQN"], mean["n-step Highway DQN"])
        found = beside(delayed, task)
        assert found.value == pytest.approx(mean["Retrace(1)"] / better)
        assert found.low <= found.value <= found.high


def test_screens_alone_have_no_weights_to_show():
    experiment = next(one for one in queue.deep() if one.name == "retrace-weights")
    rows = experiment.stored(RESULTS)
    assert experiment.ready(rows)
    assert not experiment.ready([row for row in rows if row["seed"] >= main_plot.main.SCREEN_SEED])
