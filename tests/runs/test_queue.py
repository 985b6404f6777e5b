"""The queue on several workers: any may die, and so may the driver; no row is lost, no finished cell repeated."""

import contextlib

import cells
import pytest
from cells import BAD, CELLS

from highway_rl.machines import Died, here
from highway_rl.machines.workers import failed
from highway_rl.records import ledger
from highway_rl.runs import queue, trials


@pytest.mark.full
def test_worker_and_driver_are_killed_and_nothing_is_lost_or_repeated(tmp_path):
    cells.kills(tmp_path, "local")


@pytest.mark.long
def test_a_cell_that_always_fails_is_named_and_stops_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"late: dqn, seed 5.*RuntimeError: out of luck: run the same again"):
        cells.work(tmp_path, "local", 0.0, bad=BAD.id)
    assert {row["id"] for row in trials.stored(tmp_path)} == {cell.id for cell in CELLS} - {BAD.id}
    (note,) = ledger.records(tmp_path / queue.FAILED)
    assert (note["id"], note["error"]) == (BAD.id, "RuntimeError: out of luck")


def test_the_bad_one_of_a_batch_is_found_by_halves(tmp_path):
    whole = trials.Batch(CELLS[0], ("dqn",), 12)
    left = lambda rows, under_way: [whole] if not rows and not under_way else []  # noqa: E731
    facts = {"seconds": 0.0, "bad": BAD.id}
    with pytest.raises(ValueError, match=r"seed 5.*out of luck"):
        queue.work(left, tmp_path, facts, train=cells.train)
    assert {row["id"] for row in trials.stored(tmp_path)} == {cell.id for cell in CELLS} - {BAD.id}


def test_a_cell_that_kills_its_workers_is_given_up(tmp_path, monkeypatch):
    class Deadly:
        count, revived = 1, 0

        def submit(self, i, work, batch, *given):
            dies = batch.trials == [BAD]
            return failed(Died("it ended")) if dies else here.submit(i, work, batch, *given)

        def revive(self, i):
            self.revived += 1

    found = Deadly()
    monkeypatch.setattr(queue, "hired", lambda *given: contextlib.nullcontext(found))
    monkeypatch.setattr(queue, "seen_by_all", lambda *given: None)
    with pytest.raises(ValueError, match=r"seed 5.*Died: it ended"):
        queue.work(cells.pending, tmp_path, {"seconds": 0.0}, train=cells.train)
    assert found.revived == queue.LIVES
    assert len(trials.stored(tmp_path)) == 11


@pytest.mark.parametrize("given", [{"executor": "slurm"}, {"workers": 0}, {"address": "host:1"}])
def test_bad_input_is_refused(given, tmp_path):
    with pytest.raises(ValueError, match=": give"):
        queue.work(lambda rows, under_way: [], tmp_path, {}, **given)
