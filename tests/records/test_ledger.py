"""The ledger only grows: several writers lose nothing, and a line cut short costs that line alone."""

import json
import subprocess
import sys

import numpy as np
import pytest

from highway_rl.records import ledger

WRITER = """
import sys
from pathlib import Path
from highway_rl.records import ledger
for i in range(40):
    ledger.append(Path(sys.argv[1]), {"who": int(sys.argv[2]), "i": i, "long": "x" * 20_000})
"""


@pytest.mark.long
def test_two_writers_lose_nothing(tmp_path):
    path = tmp_path / "a" / "rows.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(who)]) for who in range(2)]
    assert [one.wait() for one in writers] == [0, 0]
    found = ledger.records(path)
    assert sorted((r["who"], r["i"]) for r in found) == [(who, i) for who in range(2) for i in range(40)]
    assert all([r["i"] for r in found if r["who"] == who] == list(range(40)) for who in range(2))


def test_a_line_cut_short_costs_that_line_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    ledger.append(path, {"i": 0})
    with path.open("a") as file:
        file.write('{"i": 1, "cut')
    ledger.append(path, {"i": 2})
    with pytest.warns(UserWarning, match="line 2, was cut short or damaged"):
        assert [r["i"] for r in ledger.records(path)] == [0, 2]


@pytest.mark.parametrize("line", [b'{"i": 1}', b'[{"i": 1, "k": 2}]', b"3"])
def test_a_whole_line_that_is_something_else_is_refused_and_named(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"i": 0, "k": 0}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"rows.jsonl, line 2, is no record of a run .* leave that line out"):
        ledger.records(path, ("i", "k"))


def test_bytes_that_are_no_text_cost_their_line_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"i": "\xff\xfe"}\n{"i": 2}\n')
    with pytest.warns(UserWarning, match="line 1, was cut short or damaged"):
        assert ledger.records(path) == [{"i": 2}]


def test_what_was_written_is_never_changed(tmp_path):
    path = tmp_path / "rows.jsonl"
    before = b""
    for i in range(3):
        ledger.append(path, {"i": i})
        now = path.read_bytes()
        assert now.startswith(before)
        assert len(now) > len(before)
        before = now


def test_numbers_have_five_digits_and_nothing_is_nan(tmp_path):
    path = tmp_path / "rows.jsonl"
    ledger.append(
        path, {"x": 1 / 3, "none": float("nan"), "far": [float("inf"), 2, True], "np": float(np.float32(0.1))}
    )
    (found,) = ledger.records(path)
    assert found == {"x": 0.33333, "none": None, "far": [None, 2, True], "np": 0.1}
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(word))


def test_no_file_holds_nothing(tmp_path):
    assert ledger.records(tmp_path / "none.jsonl") == []
