"""Rows come back from a file as they went in; a file is there whole or not at all."""

import math
import os

import pytest

from highway_rl.experiments import base
from highway_rl.records import rows
from highway_rl.records.rows import read_metrics, read_rows, read_texts, select, write_rows, write_text

KINDS = [
    {"whole": 0, "real": 0.1, "flag": True, "name": 'Q(λ) → ∞, "quoted"', "far": math.inf},
    {"whole": -7, "real": 1.5e-300, "flag": False, "name": "two\nlines", "far": -math.inf},
    {"whole": 10**15, "real": None, "flag": None, "name": None, "late": "only here"},
]


def test_values_of_every_kind_come_back(tmp_path):
    facts = {"experiment": "höhe", "seconds": 1.5, "nested": {"cells": [1, 2]}}
    path = write_rows(tmp_path / "new" / "made.csv", KINDS, facts)
    found, told = read_rows(path)
    assert told == facts
    columns = ["whole", "real", "flag", "name", "far", "late"]
    assert [list(row) for row in found] == [columns] * 3
    assert found == [{name: row.get(name) for name in columns} for row in KINDS]
    assert [type(found[0][name]) for name in columns[:4]] == [int, float, bool, str]


def test_what_is_not_a_number_comes_back_as_such(tmp_path):
    found, _ = read_rows(write_rows(tmp_path / "x.csv", [{"x": math.nan, "y": "1_000", "z": "n=3"}], {}))
    assert math.isnan(found[0]["x"])
    assert (found[0]["y"], found[0]["z"]) == ("1_000", "n=3")


def test_twelve_digits_are_kept(tmp_path):
    found, _ = read_rows(write_rows(tmp_path / "x.csv", [{"x": math.pi * 10.0**k} for k in (-20, 0, 20)], {}))
    for row, k in zip(found, (-20, 0, 20), strict=True):
        assert row["x"] == pytest.approx(math.pi * 10.0**k, rel=1e-11)
        assert row["x"] != math.pi * 10.0**k


def test_texts_are_what_stands_in_the_file(tmp_path):
    path = write_rows(tmp_path / "x.csv", [{"a": 1.0, "b": None, "c": True}], {"k": 1})
    assert path.read_text(encoding="utf-8") == '# {"k": 1}\na,b,c\n1,,True\n'
    assert read_texts(path) == ([{"a": "1", "b": "", "c": "True"}], {"k": 1})


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "is not there"), ("", "is not a stored run"), ("a,b\n1,2\n", "not a stored run"), ("# {}\na\n", "no rows")],
)
def test_a_file_that_is_no_stored_run_is_refused_by_name(tmp_path, content, words):
    path = tmp_path / "some.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_rows(path)
    assert "`highway-rl run some`" in str(caught.value)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "kept.txt"
    write_text(path, "old")

    def full(_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


def test_files_that_differ_in_their_suffix_are_written_side_by_side(tmp_path, monkeypatch):
    """Each is written aside under a name of its own, which must not be the other's."""
    aside = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (aside.extend(p.name for p in tmp_path.iterdir()), fsync(number)))
    write_text(tmp_path / "run.csv", "a")
    (tmp_path / "run.csv").unlink()
    write_text(tmp_path / "run.json", "b")
    assert len(set(aside)) == 2


def test_line_ends_are_kept(tmp_path):
    write_text(tmp_path / "x", "a\r\nb\n")
    assert (tmp_path / "x").read_bytes() == b"a\r\nb\n"


def test_metrics_are_numbers_but_for_the_label(tmp_path):
    text = "step,algo,seed,score,open_2\n50,n-step-dqn:n=3,0,1.5,\n50,7,1,nan,0.25\n100,dqn,0"
    (tmp_path / "metrics.csv").write_text(text)
    first, second = read_metrics(tmp_path)  # the third line was cut short
    assert (first["step"], first["algo"], first["score"]) == (50, "n-step-dqn:n=3", 1.5)
    assert math.isnan(first["open_2"])
    assert (second["algo"], second["open_2"]) == ("7", 0.25)
    assert math.isnan(second["score"])


def test_a_folder_without_metrics_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is no training folder"):
        read_metrics(tmp_path)


def test_select_takes_rows_that_have_all_values():
    found = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1}]
    assert select(found, a=1, b=3) == [found[1]]
    assert select(found, b=None) == [found[2]]
    assert select(found) == found


def test_experiments_find_them_in_base():
    assert all(getattr(base, name) is getattr(rows, name) for name in ("read_rows", "write_rows", "select", "Rows"))
