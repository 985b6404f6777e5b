"""How a stored run is made again by the code that made it: commands that work, and rows for which they cannot."""

import collections
import re
import subprocess
from pathlib import Path

import pytest

from highway_rl.runs import checkout, trials

ROOT = Path(__file__).parents[2]
MADE = {"commit": "89afb2f", "date": "2026-11-18T13:49:21+00:00"}


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def test_today_s_rows_are_read_by_the_code_of_a_commit():
    told = checkout.again(MADE, "32c66010", "deep", "results", "python")
    assert told == (
        "with the code of 89afb2f, from the root of a clone:\n"
        "  git worktree add ../highway-rl-89afb2f 89afb2f\n"
        "  PYTHONPATH=../highway-rl-89afb2f/src python -m highway_rl run deep --cell 32c66010 --out results"
    )
    assert checkout.obstacle(MADE) == ""


def test_code_that_was_not_committed_is_said_to_be():
    told = checkout.again(MADE | {"commit": "5fdd713+changes"}, "604b3d67", "main", "my results", "python")
    assert told.startswith(
        "its code was not committed: the nearest commit is 5fdd713, and numbers may differ; with the"
    )
    assert "git worktree add ../highway-rl-5fdd713 5fdd713\n" in told
    assert told.endswith("run main --cell 604b3d67 --out 'my results'")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"commit": "490de94", "date": "2026-11-16T01:00:34+00:00"},
            "490de94 has no --cell yet: today's code can make it",
        ),
        ({"commit": "unknown"}, "its commit is not known: today's code can make it again"),
    ],
)
def test_what_no_commit_can_do_today_s_code_can(change, says):
    told = checkout.again(MADE | change, "ac977038", "deep", "results", "python")
    assert told.startswith(says)
    assert told.endswith("numbers may differ")
    assert "git" not in told


def test_a_file_of_cells_has_no_ids():
    old = {"commit": "a8a25063089f", "date": "2026-11-15T07:40:00+00:00"}
    assert checkout.obstacle(old, by_id=False) == ""
    assert "not committed" in checkout.obstacle({**old, "commit": "a8a25063089f+changes"}, by_id=False)


def test_of_each_stored_run_it_is_said_what_its_commit_can_do():
    """By the history, where it is there: the commit is in it, and has `--cell` if it is said to."""
    kinds = collections.Counter()
    made = {}
    for row in trials.stored(ROOT / "results"):
        made[row["commit"]] = row
        kinds[re.sub(checkout.nearest(row), "", checkout.obstacle(row))] += 1
    assert [kinds[kind.format(commit="")] for kind in (checkout.OLDER, checkout.CHANGED)] == [156, 10]
    assert sum(kinds.values()) - kinds[""] == 166
    for row in made.values():
        commit = checkout.nearest(row)
        code = git("show", f"{commit}:src/highway_rl/cli/experiments.py")
        if code.returncode == 0:
            assert ("cell: str" in code.stdout) is checkout.able(row), commit


def test_the_page_of_deep_agents_has_the_same_commands():
    page = (ROOT / "docs" / "deep.md").read_text(encoding="utf-8")
    assert "\n".join(checkout.commands("COMMIT", "ID", "deep")) in page
    assert checkout.WHERE.format(commit="COMMIT").replace("with", "With", 1) + ":" in page
    assert {f"“{why}”" in page for row in trials.stored(ROOT / "results") if (why := checkout.obstacle(row))} == {True}
