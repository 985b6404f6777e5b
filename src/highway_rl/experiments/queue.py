"""What experiments put into the queue of training runs: of all that they still want, the most wanted first.

    stages of every experiment, given the rows there are ──pending──> batches ──train──> ledger ──> stages again

What a piece of time does not finish goes on from its checkpoint in the next one, on the same disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

from highway_rl.experiments.base import Experiment, Rows, Scale, experiments
from highway_rl.runs import queue, trials
from highway_rl.runs.again import program_of
from highway_rl.runs.trials import Batch, Trial


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
    """The rows of an experiment's trials at the largest scale of which there are enough."""
    every = every_row(out)
    for scale in reversed(get_args(Scale)):
        for seed in sorted({row["first_seed"] for row in every if row.get("scale") == scale}):
            stages = experiment.stages(scale, seed, every) if experiment.stages else []
            ids = {trial.id for stage in stages if stage.own for trial in stage.trials}
            if experiment.ready(rows := [row for row in every if row["id"] in ids]):
                return rows
    return []


def of_which(out: Path, name: str) -> list[str]:
    """The experiments that a stored run is of, by its id: those whose trials of its scale and seed have it."""
    every = every_row(out)
    row = next((row for row in every if row["id"] == name), None)
    if row is None:
        program_of(out, name)  # refuses
        return []
    stages = {one.name: one.stages(row["scale"], row["first_seed"], every) for one in deep() if one.stages}
    return [of for of, found in stages.items() if any(t.id == name for s in found if s.own for t in s.trials)]


def every_row(out: Path) -> Rows:
    """All stored training runs."""
    files = sorted((out / trials.FOLDER).glob("*.jsonl"))
    return _stored(out, tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@functools.lru_cache(maxsize=1)
def _stored(out: Path, stamps: tuple[tuple[str, int, int], ...]) -> Rows:
    """All rows of a folder, read once for all experiments while no file changes."""
    return trials.stored(out)


def work(
    chosen: list[Experiment],
    scale: Scale,
    seed: int,
    out: Path,
    step: Callable[[int, int], None] | None = None,
    **how: Any,
) -> bool:
    """Trains what is wanted, as `runs.queue.work` does it; whether nothing is left. `step` hears how far it is."""

    def next_ones(rows: Rows, under_way: list[Batch]) -> list[Batch]:
        if step is not None:
            known = {trial.id for stage in wanted(chosen, scale, seed, rows) for trial in stage}
            step(len(known & {row["id"] for row in rows}), len(known))
        return pending(chosen, scale, seed, rows, under_way)

    return queue.work(next_ones, out, {"scale": scale, "first_seed": seed}, **how)
