"""Choosers on games: the page tells what the rows say, and the verdict can fail."""

from pathlib import Path

import numpy as np

from highway_rl.experiments import chooser
from highway_rl.experiments.ablation import by_variant
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY
from highway_rl.experiments.main import DELAYED, finals, title
from highway_rl.experiments.main_plot import EXPERIMENT
from highway_rl.experiments.queue import rows_of
from highway_rl.experiments.scores import values


def test_the_table_of_games_is_that_of_the_rows():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "noise.md").read_text(encoding="utf-8")
    runs = by_variant(rows_of(chooser.EXPERIMENT, root / "results"), chooser.VARIANTS, chooser.SIZES, chooser.LATER)
    for task in runs[chooser.PAPER]:
        each = [by_task[task] for by_task in runs.values()]
        assert all(len(found) == chooser.SIZES["paper"].seeds for found in each)
        told = (f"{np.mean(values(found, 'greedy')):.1f}, off by {chooser.late_bias(found):.1f}" for found in each)
        assert f"| {title(task, DELAYED)} | {' | '.join(told)} |" in page


def test_the_largest_values_of_space_invaders_are_those_of_the_rows():
    """Of the same seeds, over the same window."""
    root, task = Path(__file__).parents[2], "minatar/space_invaders"
    page = (root / "docs" / "noise.md").read_text(encoding="utf-8")
    runs = by_variant(rows_of(chooser.EXPERIMENT, root / "results"), chooser.VARIANTS, chooser.SIZES, chooser.LATER)
    dqn = finals(rows_of(EXPERIMENT, root / "results"), DELAYED, "best")["DQN"][task]
    seeds = {row["seed"] for row in runs["grouped"][task]}
    each = (runs["grouped"][task], [row for row in dqn if row["seed"] in seeds], runs[chooser.PAPER][task])
    assert {len(rows) for rows in each} == {5}
    one, two, three = (
        f"{np.mean([np.mean(row['largest'][-(len(row['largest']) // 4) :]) for row in rows]):.1f}" for rows in each
    )
    assert f"five seeds, is {one} with `grouped`, {two} with DQN and {three} with the paper's gate" in page


def test_a_chooser_of_games_is_judged_by_bias_and_by_score():
    def run(bias, greedy):
        return {"bias": [9.0, 9.0, 9.0, bias], "greedy": greedy, "broken": None, "seed": 0}

    def judged(bias, greedy):
        paper = {"a": [run(2.0, 5.0)], "b": [run(-2.0, 5.0)]}
        return chooser.nearer({chooser.PAPER: paper, "other": {"a": [run(bias, greedy)], "b": [run(-bias, 5.0)]}})

    assert judged(1.0, 6.0).verdict == HOLDS
    assert judged(1.0, 1.0).verdict == judged(3.0, 6.0).verdict == PARTLY
    assert judged(3.0, 1.0).verdict == FAILS
