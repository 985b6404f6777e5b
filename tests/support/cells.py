"""Cells that take no time: what a worker does with a batch is replaced by a note and a row, so that the queue itself,
its workers and their deaths are all there is to see. Run as a script it is a driver that stops after a while, to be
killed: cells.py OUT EXECUTOR SECONDS."""

import os
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


def work(out, executor, seconds, **facts):
    return queue.work(pending, out, {"seconds": seconds, **facts}, executor=executor, workers=2, train=train)


def begun(out):
    return ledger.records(out / "begun.jsonl")


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), hold=6)
