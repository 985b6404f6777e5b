"""The deep figures: the page tells what the stored rows say, and what cannot be compared yet is not shown."""

from pathlib import Path

import pytest

from highway_rl.experiments import depth, gate, main_plot, policies, temperature
from highway_rl.experiments.ablation import Size, by_variant
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY
from highway_rl.experiments.queue import rows_of
from highway_rl.experiments.scores import WHOLE, average, said

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("ablation", [gate, depth, temperature, policies], ids=lambda module: module.EXPERIMENT.name)
def test_the_tables_of_the_page_are_those_of_the_rows(ablation):
    page = (ROOT / "docs" / "deep.md").read_text(encoding="utf-8")
    runs = by_variant(rows_of(ablation.EXPERIMENT, ROOT / "results"), ablation.VARIANTS)
    for name, tasks in runs.items():
        assert [len(rows) for rows in tasks.values()] == [5, 5]
        told = (f"{said(average(rows, 'training'))} | {said(average(rows, 'greedy'))}" for rows in tasks.values())
        assert f"| {name} | {' | '.join(told)} |" in page


@pytest.mark.parametrize("env", [main_plot.DELAYED, ""], ids=["delayed", "as it pays"])
def test_the_six_methods_on_the_page_are_those_of_the_rows(env):
    page = (ROOT / "docs" / "deep.md").read_text(encoding="utf-8")
    runs = main_plot.finals(rows_of(main_plot.EXPERIMENT, ROOT / "results"), env, "best")
    assert len(runs) == 6
    for name, tasks in runs.items():
        told = (f"{said(average(rows, 'training'))} | {said(average(rows, 'greedy'))}" for rows in tasks.values())
        assert f"| {name} | {' | '.join(told)} |" in page


def test_what_the_largest_return_costs_all_along_is_that_of_the_rows():
    page = (ROOT / "docs" / "deep.md").read_text(encoding="utf-8")
    runs = by_variant(rows_of(temperature.EXPERIMENT, ROOT / "results"), temperature.VARIANTS)
    asterix, breakout = (
        [average(runs[name][f"minatar/{game}"], WHOLE).value for name in ("α = ∞", "α = 0.005")]
        for game in ("asterix", "breakout")
    )
    assert f"on Breakout ({breakout[0]:.1f} and {breakout[1]:.1f})" in page
    assert f"on Asterix ({asterix[0]:.1f} and {asterix[1]:.1f})" in page
    assert "by about a quarter on Breakout" in page
    assert breakout[0] / breakout[1] == pytest.approx(3 / 4, abs=0.03)


def test_depth_waits_for_a_game_of_which_every_variant_has_run():
    """Both have n = ∞: after the runs of `gate` alone `depth` has some rows, and nothing to compare."""
    rows = rows_of(depth.EXPERIMENT, ROOT / "results")
    assert depth.EXPERIMENT.ready(rows)
    assert not depth.EXPERIMENT.ready([row for row in rows if row["algo"].endswith("n=end")])
    assert not depth.EXPERIMENT.ready([])


def test_a_variant_that_came_later_is_left_out_until_it_has_run_everywhere():
    sizes = {"paper": Size(("one", "two"), "", 1, 1)}

    def shown(*runs):
        rows = [{"scale": "paper", "task": task, "algo": algo, "seed": 0} for task, algo in runs]
        found = by_variant(rows, {"paper": {"first": "a", "second": "b"}}, sizes, ("second",))
        return {name: list(tasks) for name, tasks in found.items()}

    assert shown(("one", "a"), ("two", "a"), ("one", "b")) == {"first": ["one", "two"]}
    assert shown(("one", "a"), ("one", "b"), ("two", "b")) == {"first": ["one"], "second": ["one"]}


def seeds(training, greedy, whole=None):
    """Two games with three seeds each, in which all have the same."""
    row = {"training": training, "greedy": greedy, "score": [training if whole is None else whole], "broken": None}
    return {task: [row] * 3 for task in ("one", "two")}


@pytest.mark.parametrize(
    ("infinite", "verdict"), [(seeds(1, 1), HOLDS), (seeds(1, 3), PARTLY), (seeds(3, 1), PARTLY), (seeds(3, 3), FAILS)]
)
def test_temperature_is_judged_by_training_and_by_the_test(infinite, verdict):
    runs = {"α = 0.0005": seeds(2, 2), "α = 0.005": seeds(2, 2), "α = ∞": infinite}
    assert temperature.moderate(runs).verdict == verdict


@pytest.mark.parametrize(
    ("two", "verdict"),
    [(seeds(1, 3, 3), HOLDS), (seeds(1, 1, 3), PARTLY), (seeds(1, 3, 1), PARTLY), (seeds(3, 1, 1), FAILS)],
)
def test_policies_are_judged_by_the_test_and_by_how_soon(two, verdict):
    assert policies.more({"1 policy": seeds(2, 2, 2), "2 policies": two}).verdict == verdict


@pytest.mark.parametrize(
    ("training", "greedy", "verdict"), [((1, 2), (1, 2), HOLDS), ((1, 2), (2, 1), PARTLY), ((3, 1), (3, 1), FAILS)]
)
def test_depth_is_judged_by_training_and_by_the_test(training, greedy, verdict):
    runs = {"n-step DQN, n = 2": seeds(5, 5), "n-step DQN, n = 3": seeds(4, 4)}
    runs |= {f"n-step Highway DQN, n = {n}": seeds(training[n - 2], greedy[n - 2]) for n in (2, 3)}
    if verdict == FAILS:
        runs |= {"n-step DQN, n = 2": seeds(4, 4), "n-step DQN, n = 3": seeds(5, 5)}
    assert depth.deeper(runs).verdict == verdict
