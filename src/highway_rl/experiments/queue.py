"""The queue of training runs: of all that experiments still want, the most wanted first, until time is up.

    stages of every experiment, given the rows there are ──pending──> batches ──train──> ledger ──> stages again

What a piece of time does not finish goes on from its checkpoint in the next one, on the same disk.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import get_args

from highway_rl import checks
from highway_rl.experiments import trials
from highway_rl.experiments.base import Experiment, Rows, Scale, experiments
from highway_rl.experiments.trials import Batch, Trial
from highway_rl.runs.folder import InUse

LEAST = 60.0
"""Seconds that must be left to begin a batch: it takes about half of them to compile."""


def deep() -> list[Experiment]:
    """Every experiment whose cells are training runs."""
    return [experiment for experiment in experiments().values() if experiment.stages is not None]


def wanted(chosen: Iterable[Experiment], scale: Scale, seed: int, rows: Rows) -> list[list[Trial]]:
    """The trials of all stages that can be named with the rows there are, those wanted soonest first; none twice."""
    stages = [stage for experiment in chosen if experiment.stages for stage in experiment.stages(scale, seed, rows)]
    by_order: dict[int, dict[Trial, None]] = {}
    known: set[Trial] = set()
    for stage in sorted(stages, key=lambda stage: stage.order):
        by_order.setdefault(stage.order, {}).update({t: None for t in stage.trials if t not in known})
        known.update(stage.trials)
    return [list(found) for found in by_order.values()]


def pending(
    chosen: Iterable[Experiment], scale: Scale, seed: int, rows: Rows, under_way: Iterable[Batch] = ()
) -> list[Batch]:
    """The batches still to train, in order."""
    done = {row["id"] for row in rows} | {trial.id for batch in under_way for trial in batch.trials}
    stages = wanted(chosen, scale, seed, rows)
    return [batch for stage in stages for batch in trials.batches(t for t in stage if t.id not in done)]


def rows_of(experiment: Experiment, out: Path) -> Rows:
    """The rows of an experiment's trials at the largest scale of which there are any."""
    every = trials.stored(out)
    for scale in reversed(get_args(Scale)):
        for seed in sorted({row["first_seed"] for row in every if row["scale"] == scale}):
            stages = experiment.stages(scale, seed, every) if experiment.stages else []
            ids = {trial.id for stage in stages if stage.own for trial in stage.trials}
            if rows := [row for row in every if row["id"] in ids]:
                return rows
    return []


def work(
    chosen: list[Experiment],
    scale: Scale,
    seed: int,
    out: Path,
    step: Callable[[int, int], None] | None = None,
    *,
    minutes: float | None = None,
    workers: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> bool:
    """Trains what is wanted, batch after batch, `workers` of them at a time; whether nothing is left.

    With a limit of `minutes` it stops in time to save what is under way. A batch that fails does not stop the others;
    all that failed are named at the end.
    """
    if minutes is not None:
        checks.positive("minutes", minutes)
    deadline = None if minutes is None else time.time() + 60 * minutes
    failed: dict[str, str] = {}
    finished: set[str] = set()

    def next_one(under_way: Iterable[Batch]) -> Batch | None:
        rows = trials.stored(out)
        if step is not None:
            known = {trial.id for stage in wanted(chosen, scale, seed, rows) for trial in stage}
            step(len(known & {row["id"] for row in rows}), len(known))
        if deadline is not None and deadline - time.time() < LEAST:
            return None
        left = pending(chosen, scale, seed, rows, under_way)
        return next((batch for batch in left if batch.id not in {*failed, *finished}), None)

    with _pool(workers) as submit:
        running: dict[concurrent.futures.Future[bool], tuple[Batch, float]] = {}
        while True:
            while len(running) < workers and (batch := next_one(b for b, _ in running.values())):
                say(f"begins    {batch.name}")
                running[submit(_train, batch, scale, seed, out, deadline)] = batch, time.time()
            if not running:
                break
            ready, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ready:
                batch, begun = running.pop(future)
                finished.add(batch.id)
                try:
                    how = "done     " if future.result() else "goes on  "
                except InUse:
                    how = "elsewhere"
                except Exception as error:  # the others go on; all is told at the end
                    failed[batch.id] = f"{batch.name}: {type(error).__name__}: {checks.one_line(error)}"
                    how = "failed   "
                say(f"{how} {batch.name}, {time.time() - begun:.0f} s")
    if failed:
        raise ValueError(f"{'; '.join(failed.values())}: run the same again when it is mended")
    return not pending(chosen, scale, seed, trials.stored(out))


def _train(batch: Batch, scale: Scale, seed: int, out: Path, deadline: float | None) -> bool:
    stop = (lambda: False) if deadline is None else (lambda: time.time() > deadline)
    return trials.train(batch, scale, out, first_seed=seed, should_stop=stop)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[Callable[..., concurrent.futures.Future[bool]]]:
    """Where batches are trained: in this process, or in several that share the device."""
    if workers == 1:
        yield _here
        return
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, spawn, initializer=_share) as pool:
        yield pool.submit


def _here(work: Callable[..., bool], *given: object) -> concurrent.futures.Future[bool]:
    done: concurrent.futures.Future[bool] = concurrent.futures.Future()
    try:
        done.set_result(work(*given))
    except Exception as error:
        done.set_exception(error)
    return done


def _share() -> None:
    """In a worker, before JAX starts: it takes the memory it needs, not all there is."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
