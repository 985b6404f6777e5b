"""The general preset on small tasks: the stored rows, and the road from a run to a row."""

import dataclasses
from pathlib import Path

import pytest
import training

from highway_rl.envs.tasks.late import KNOWN
from highway_rl.experiments import claims, deep, late_tasks
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY
from highway_rl.records.rows import read_rows
from highway_rl.runs import Trained, fit

RESULTS = Path(__file__).parents[2] / "results"
ROWS, FACTS = read_rows(RESULTS / "late-tasks.csv")


def test_the_stored_rows_are_whole():
    assert FACTS["scale"] == "paper"
    assert FACTS["finished"] == FACTS["cells"] == 7
    kinds = {(row["task"], row["algo"], row["seed"]) for row in ROWS}
    assert len(ROWS) == len(kinds) == 7 * len(late_tasks.ALGOS) * 10
    assert {row["seed"] for row in ROWS} == set(range(late_tasks.FIRST, late_tasks.FIRST + 10))


def test_soft_highway_solves_every_task_with_the_general_preset():
    for task in KNOWN:
        good, of = late_tasks.solved(ROWS, task, "soft-highway-dqn")
        assert good >= 9, task
        assert of == 10
    found = {claim["id"]: claim["verdict"] for claim in claims.check(RESULTS)}
    assert found[101] == HOLDS


def test_the_table_of_the_page_is_that_of_the_rows():
    page = (RESULTS.parent / "docs" / "tasks.md").read_text(encoding="utf-8")
    for task in KNOWN:
        told = []
        for algo in late_tasks.ALGOS:
            way = [row["way"] for row in late_tasks.select(ROWS, task=task, algo=algo)]
            good, of = late_tasks.solved(ROWS, task, algo)
            told.append(f"{good}/{of}, {sum(way) / of:.2f}")
        assert f"| `{task}` | {' | '.join(told)} |" in page


def test_a_stored_row_follows_from_its_score():
    for row in ROWS:
        known = KNOWN[row["task"]]
        way = (row["greedy"] - known.random) / (known.best - known.random)
        assert row["way"] == pytest.approx(way, abs=1e-6)
        assert row["solved"] == (way >= late_tasks.ENOUGH.get(row["task"], 0.9))


def test_the_verdict_can_fail():
    lost = [{**row, "solved": row["solved"] and row["task"] != "lock"} for row in ROWS]
    assert late_tasks.general(lost).verdict == PARTLY
    assert late_tasks.general([{**row, "solved": False} for row in ROWS]).verdict == FAILS


def test_rows_of_runs_are_those_of_the_training(monkeypatch):
    """With training that only counts; the smoke scale has a real one."""
    training.counting(monkeypatch)
    config = dataclasses.replace(training.COUNTED, steps=500, episodes=7)
    made: list[Trained] = []

    def kept(*args, **options):
        made.append(fit(*args, **options))
        return made[0]

    monkeypatch.setattr(deep, "fit", kept)
    rows = list(deep.rows_of_runs(config))
    assert [(row["algo"], row["seed"]) for row in rows] == [(algo, seed) for algo in config.algos for seed in (0, 1)]
    for share, name in ((False, "greedy"), (True, "exploring")):
        assert [row[name] for row in rows] == [r["score"] for r in made[0].scores if (r["epsilon"] > 0) == share]
