"""Cells that take no time: what a worker does with a batch is replaced by a note and a row, so that the queue itself,
its workers and their deaths are all there is to see. Run as a script it is a driver that stops after a while, to be
killed: cells.py OUT EXECUTOR SECONDS [ADDRESS]."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from highway_rl.records import ledger
from highway_rl.runs import queue, trials
from highway_rl.runs.trials import Batch, Trial

CELLS = [Trial("late", "", "dqn", None, 100, seed, "general", 1) for seed in range(12)]
BAD = CELLS[5]


def train(batch, out, facts, *, should_stop):
    """Notes that a batch begins, waits, and stores its row; the bad one fails."""
    ids = {trial.id for trial in batch.trials}
    if ids <= {row["id"] for row in trials.stored(out)}:
        return True
    ledger.append(out / "begun.jsonl", {"ids": sorted(ids), "process": os.getpid(), "time": time.time()})
    if facts.get("bad") in ids:
        raise RuntimeError("out of luck")
    time.sleep(facts["seconds"])
    while len(trials.stored(out)) >= facts.get("hold", len(CELLS)):
        time.sleep(0.05)
    like = batch.like
    config = {"task": like.task, "steps": like.steps, "episodes": like.episodes}
    runs = [
        {"id": trial.id, "algo": trial.algo, "seed": trial.seed, "greedy": trial.seed / 3} for trial in batch.trials
    ]
    record = {"config": config, "env": "", "k": None, "preset": "general", "step": [], "runs": runs}
    made = {"seconds": 0.0, "process": os.getpid()}
    ledger.append(trials.ledger_of(out, like), {**record, "provenance": made})
    return True


def pending(rows, under_way):
    done = {row["id"] for row in rows} | {trial.id for batch in under_way for trial in batch.trials}
    return [Batch(cell, (cell.algo,), 1) for cell in CELLS if cell.id not in done]


def work(out, executor, seconds, address=None, **facts):
    how = {"executor": executor, "workers": 2, "address": address}
    return queue.work(pending, out, {"seconds": seconds, **facts}, train=train, **how)


def begun(out):
    return ledger.records(out / "begun.jsonl")


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


def kills(out, executor, *address):
    """A worker is killed in the middle of its cell, then the driver; the same again ends with every row and repeats no
    finished cell."""
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, __file__, str(out), executor, "0.4", *address]
    driver = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path})
    first = wait_for(lambda: begun(out))[0]
    os.kill(first["process"], signal.SIGKILL)
    again = wait_for(lambda: [b for b in begun(out) if b["ids"] == first["ids"] and b != first])[0]
    assert again["process"] != first["process"]
    wait_for(lambda: len(trials.stored(out)) >= 3)
    driver.kill()
    driver.wait()
    wait_for(lambda: not any(alive(b["process"]) for b in begun(out)))  # workers end with their driver
    stored, before = trials.stored(out), len(begun(out))
    assert 3 <= len(stored) < 12
    assert work(out, executor, 0.0, *address)
    rows = trials.stored(out)
    assert {row["id"] for row in rows} == {cell.id for cell in CELLS}
    assert {row["id"]: row for row in rows}.items() >= {row["id"]: row for row in stored}.items()
    repeated = {name for note in begun(out)[before:] for name in note["ids"]}
    assert repeated == {cell.id for cell in CELLS} - {row["id"] for row in stored}
    files = [record for file in (out / "deep").glob("*.jsonl") for record in ledger.records(file)]
    assert len(files) == 12


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *sys.argv[4:], hold=6)
