"""The queue on several workers: any may die, and so may the driver; no row is lost, no finished cell repeated."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import cells
import pytest
from cells import BAD, CELLS, begun

from highway_rl.machines import Died, here
from highway_rl.machines.workers import failed
from highway_rl.records import ledger
from highway_rl.runs import queue, trials

EXECUTORS = ("ray", pytest.param("local", marks=pytest.mark.full))


def wait_for(holds, seconds=150.0):
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def alive(process):
    try:
        os.kill(process, 0)
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize("executor", EXECUTORS)
def test_worker_and_driver_are_killed_and_nothing_is_lost_or_repeated(executor, tmp_path):
    path = os.pathsep.join([os.path.dirname(cells.__file__), *filter(None, [os.environ.get("PYTHONPATH")])])
    driver = subprocess.Popen(
        [sys.executable, cells.__file__, str(tmp_path), executor, "0.4"], env={**os.environ, "PYTHONPATH": path}
    )
    first = wait_for(lambda: begun(tmp_path))[0]
    os.kill(first["process"], signal.SIGKILL)  # a worker in the middle of its cell
    again = wait_for(lambda: [b for b in begun(tmp_path) if b["ids"] == first["ids"] and b is not first][1:])[0]
    assert again["process"] != first["process"]
    wait_for(lambda: len(trials.stored(tmp_path)) >= 3)
    driver.kill()
    driver.wait()
    wait_for(lambda: not any(alive(b["process"]) for b in begun(tmp_path)))  # workers end with their driver
    stored, before = trials.stored(tmp_path), len(begun(tmp_path))
    assert 3 <= len(stored) < 12
    assert cells.work(tmp_path, executor, 0.0)
    rows = trials.stored(tmp_path)
    assert {row["id"] for row in rows} == {cell.id for cell in CELLS}
    assert {row["id"]: row for row in rows}.items() >= {row["id"]: row for row in stored}.items()
    repeated = {name for note in begun(tmp_path)[before:] for name in note["ids"]}
    assert repeated == {cell.id for cell in CELLS} - {row["id"] for row in stored}
    files = [record for file in (tmp_path / "deep").glob("*.jsonl") for record in ledger.records(file)]
    assert len(files) == 12


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
