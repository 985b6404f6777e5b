"""The queue of training runs: batch after batch on so many workers, until nothing is wanted or time is up.

    pending(rows there are, batches under way) ──> batches ──train, on a worker──> ledger ──> pending again

A batch that fails does not stop the others: its halves are tried, down to the one trial that fails, which is named.
A worker that dies is replaced, and what it did goes on from its checkpoint.
"""

from __future__ import annotations

import concurrent.futures
import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from highway_rl import checks
from highway_rl.machines import Died, Workers, here, workers
from highway_rl.records import ledger
from highway_rl.records.rows import Rows
from highway_rl.runs import trials
from highway_rl.runs.folder import InUse
from highway_rl.runs.trials import Batch

LEAST = 60.0
"""Seconds that must be left to begin a batch: it takes about half of them to compile."""
LIVES = 3
"""Workers that may die over one batch."""
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Variables of a process that shares its device: it takes the memory it needs, not all there is."""
FAILED = "failed.jsonl"
"""Where failures are noted, beside the ledgers."""

Pending = Callable[[Rows, list[Batch]], list[Batch]]


def work(
    pending: Pending,
    out: Path,
    facts: dict[str, Any],
    *,
    minutes: float | None = None,
    workers: int | None = 1,
    executor: str = "local",
    address: str | None = None,
    say: Callable[[str], None] = lambda text: None,
    train: Callable[..., bool] | None = None,
) -> bool:
    """Trains what is pending, `workers` batches at a time, on an executor of `machines`; whether nothing is left.

    With a limit of `minutes` it stops in time to save what is under way. All that failed is named at the end. `train`
    is what a worker does with a batch, `trials.train` unless given.
    """
    if minutes is not None:
        checks.positive("minutes", minutes)
        if 60 * minutes <= LEAST:
            raise checks.refusal("minutes", minutes, "more than 1: a run takes as long to begin and to be saved")
    deadline = None if minutes is None else time.time() + 60 * minutes
    with hired(executor, workers, address) as found:
        seen_by_all(found, out)
        return _Queue(pending, (train or trials.train, out, facts, deadline), say).run(found)


def hired(executor: str, count: int | None, address: str | None) -> Any:
    """Workers that train; several processes of this machine take its GPUs in turn, and share them with this one."""
    if executor != "local" or (count or 1) > 1:
        for name, value in SHARED.items():
            os.environ.setdefault(name, value)
    return workers(executor, count, address=address, environments=_environment)


def _environment(i: int) -> dict[str, str]:
    import jax

    gpus = jax.local_device_count() if jax.default_backend() == "gpu" else 0
    if gpus < 2:
        return SHARED
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    return SHARED | {"CUDA_VISIBLE_DEVICES": names[i % gpus]}


def seen_by_all(found: Workers, out: Path) -> None:
    """Refuses a folder that some workers, on other machines, do not have."""
    if found.count == 1 and found is here:
        return
    out.mkdir(parents=True, exist_ok=True)
    mark = out / f".seen-{os.getpid()}"
    mark.touch()
    try:
        if not all(future.result() for future in [found.submit(i, mark.exists) for i in range(found.count)]):
            raise ValueError(f"{out} is not seen by all workers: give --out a folder that all machines share")
    finally:
        mark.unlink()


class Failed(ValueError):
    """Some batches did, each time; all others are done."""


class _Queue:
    """One call of `work`."""

    def __init__(self, pending: Pending, how: tuple[Any, Path, Any, float | None], say: Callable[[str], None]) -> None:
        self.pending, self.how, self.say = pending, how, say
        _, self.out, _, self.deadline = how
        self.failed: dict[str, str] = {}  # by the id of a batch: what it said
        self.aside: list[Batch] = []  # what is not to be begun again: failed, stopped in time, trained by others
        self.again: list[Batch] = []  # halves of what failed, and what lost its worker
        self.deaths: dict[str, int] = {}

    def run(self, workers: Workers) -> bool:
        running: dict[Future[bool], tuple[int, Batch, float]] = {}
        while True:
            free = set(range(workers.count)) - {i for i, _, _ in running.values()}
            while free and (batch := self._next([b for _, b, _ in running.values()])):
                i, begun = free.pop(), time.time()
                self.say(f"begins    {batch.name}")
                future = workers.submit(i, _train, batch, *self.how)
                running[future] = i, batch, begun
            if not running:
                break
            ready, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ready:
                i, batch, begun = running.pop(future)
                how = self._outcome(future, batch, functools.partial(workers.revive, i))
                self.say(f"{how} {batch.name}, {time.time() - begun:.0f} s")
        if self.failed:
            raise Failed(f"{'; '.join(self.failed.values())}: run the same again when it is mended")
        return not self.pending(trials.stored(self.out), [])

    def _next(self, under_way: list[Batch]) -> Batch | None:
        left = self.pending(trials.stored(self.out), [*under_way, *self.again, *self.aside])
        if self.deadline is not None and self.deadline - time.time() < LEAST:
            return None
        return self.again.pop(0) if self.again else left[0] if left else None

    def _outcome(self, future: Future[bool], batch: Batch, revive: Callable[[], None]) -> str:
        """What became of a batch, in a word; notes what has to be done about it."""
        try:
            if future.result():
                return "done     "
            self.aside.append(batch)
            return "goes on  "
        except InUse:
            self.aside.append(batch)
            return "elsewhere"
        except Died as error:
            revive()
            self.deaths[batch.id] = self.deaths.get(batch.id, 0) + 1
            if self.deaths[batch.id] < LIVES:
                self.again.append(batch)
                return "goes on  "
            return self._failure(batch, error)
        except Exception as error:  # the others go on; all is told at the end
            return self._failure(batch, error)

    def _failure(self, batch: Batch, error: Exception) -> str:
        if len(batch.trials) > 1:
            self.again += batch.halves()
            return "halved   "
        self.aside.append(batch)
        (trial,) = batch.trials
        said = f"{type(error).__name__}: {checks.one_line(error)}"
        self.failed[batch.id] = f"{batch.name}: {said}"
        note = {"id": trial.id, **trial._asdict(), "error": said, "time": time.time()}
        ledger.append(self.out / FAILED, note)
        return "failed   "


def _train(batch: Batch, train: Callable[..., bool], out: Path, facts: dict[str, Any], deadline: float | None) -> bool:
    stop = (lambda: False) if deadline is None else (lambda: time.time() > deadline)
    return train(batch, out, facts, should_stop=stop)
