"""The stored runs of the main comparison."""

from pathlib import Path

import pytest

from highway_rl.experiments import main_plot, queue, report
from highway_rl.experiments.main_claims import TARGETS
from highway_rl.experiments.retrace_weights import EXPERIMENT as WEIGHTS
from highway_rl.experiments.retrace_weights import beside, products_of
from highway_rl.experiments.scores import number, targets

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def rows():
    return main_plot.EXPERIMENT.stored(RESULTS)


@pytest.fixture(scope="module")
def delayed(rows):
    return main_plot.finals(rows, "delay=end", "best")


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


def test_the_weights_are_of_the_runs_that_are_shown_and_judged(rows):
    used = WEIGHTS.used(rows)
    assert len({row["id"] for row in used}) == len(used) == 3 * 10 * 10
    assert report.runs_in_words(used) == "300 training runs, 10 seeds (0–9)"
    (note,) = WEIGHTS.notes(rows)
    assert "the 100 long runs of Retrace(1)" in note
    assert "the 200 of the two Highway agents" in note
    assert sum(len(products) for products in products_of(rows).values()) == 100


def test_the_two_screens_are_told_apart(rows, tmp_path):
    screens = [main_plot.screens(rows, tmp_path / f"{env}.png", env) for env in (main_plot.DELAYED, "")]
    late, plain = (report.picture(path).title for path in screens)
    assert late.startswith("The screen, reward at the end: ")
    assert plain.startswith("The screen, reward as the task pays it: ")


def test_what_goes_with_freeway_s_scores_is_that_of_its_targets(rows, delayed):
    told = main_plot.freeway(rows).value
    opened, above, largest = targets(delayed["Soft Highway DQN"]["minatar/freeway"])
    assert f"open at {opened['∞']:.1%} of the steps, its largest value is {largest:.1f}" in told
    assert f"its targets lie {above:.1f} above what followed, over the last tenth" in told
    named = f"{TARGETS}, reward at the end"
    assert named in told
    (table,) = (table for table in main_plot.tables(rows) if table.title == named)
    windows = ("", "", "last report", "last tenth of training", "last report")
    assert all(window in column for window, column in zip(windows, table.columns, strict=True))


def test_sentences_about_single_seeds_are_those_of_the_rows(rows):
    page = (RESULTS.parent / "docs" / "deep.md").read_text(encoding="utf-8")
    plain = main_plot.finals(rows, "", "best")
    low = sorted(number(row, "training") for row in plain["DQN"]["minatar/seaquest"])
    assert (
        f"four of DQN's ten are at {low[0]:.1f} to {low[3]:.1f} in training where the others are at {low[4]:.1f} to"
        f" {low[-1]:.1f}"
    ) in page

    def crossed(row, least):
        return next(step for step, x in zip(row["step"], row["score"], strict=True) if x is not None and x > least)

    found = plain["n-step Highway DQN"]["minatar/freeway"]
    *_, (other, _), (last, seed) = sorted((crossed(row, 10), row["seed"]) for row in found)
    assert seed == 9
    assert f"score above 10 (after {last:,} steps, the one before it after {other:,}), though not above 15" in page
    assert max((crossed(row, 15), row["seed"]) for row in found)[1] != 9
