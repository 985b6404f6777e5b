"""The verdict on the chooser "grouped": what it is made of, and that it can fail."""

from pathlib import Path

import pytest

from highway_rl.experiments import luck
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY
from highway_rl.records.rows import read_rows


def rows(task, length=0, seeds=3, **by_algo):
    """Rows of a task in which each algorithm has the same in every seed."""
    short = dict(zip(("grouped", "paper", "dqn", "n_step", "cautious", "hopeful", "willing"), luck.ALGOS, strict=True))
    same = {"task": task, "length": length, "start": 1.0, "solved": True, "half": 1_000}
    return [
        {**same, "algo": algo, "seed": s, **by_algo.get(name, {})} for name, algo in short.items() for s in range(seeds)
    ]


GOOD = [*rows("umbrella", 10, paper={"start": 9.0}), *rows("lock"), *rows("lock-later")]


def test_it_holds_where_nothing_is_lost():
    found = luck.verdict(GOOD)
    assert found.verdict == HOLDS
    assert "umbrella 10: off by 0.0 (paper's gate 8.0), right 3 (best 3)" in found.value


@pytest.mark.parametrize(
    "worse",
    [
        rows("umbrella", 30, grouped={"start": 4.0}),
        rows("umbrella", 30, grouped={"solved": False}),
        rows("key-door", grouped={"half": 1_300}),
        rows("harvest-gamble", grouped={"solved": False}),
    ],
)
def test_each_part_can_fail(worse):
    assert luck.verdict([*GOOD, *worse]).verdict == PARTLY
    assert luck.verdict(worse).verdict == FAILS


def test_halfway_is_two_reports_in_a_row():
    known = luck.KNOWN["umbrella"]
    curve = [{"step": i, "episodes": 1, "score": s} for i, s in enumerate((0.1, 0.9, 0.2, 0.6, 0.7, 0.1))]
    assert luck.halfway(curve, known) == 4
    assert luck.halfway(curve[:4], known) == 3


def test_the_table_of_the_page_is_that_of_the_rows():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "noise.md").read_text(encoding="utf-8")
    rows, facts = read_rows(root / "results" / "luck.csv")
    assert (facts["scale"], facts["finished"]) == ("paper", facts["cells"])
    (table,) = luck.tables(rows)
    assert len(table.rows) == len(luck.LENGTHS) + len(luck.SURE) + len(luck.CHANCE)
    for line in table.rows:
        assert f"| {' | '.join(line)} |" in page
