"""An experiment is data: cells to run, rows they give, a figure and claims read from the rows alone.

    cells(scale, seed) ──run──> rows ──write──> CSV with provenance ──read──> plot, claims

Nothing that is drawn or judged comes from anywhere but the stored rows. The file is written as cells finish, each time
whole and in the order of the cells, so a run that is cut short leaves a valid file, and a later one can take it up.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import multiprocessing
import os
import pkgutil
import platform
import signal
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from highway_rl import checks
from highway_rl.records.provenance import provenance
from highway_rl.records.rows import Row, Rows, as_text, read_texts, write_rows
from highway_rl.records.rows import read_rows as read_rows  # for experiments, which import all they need from here
from highway_rl.records.rows import select as select

Scale = Literal["smoke", "quick", "paper"]

HOLDS, PARTLY, FAILS, NOT_RUN = "holds", "partly", "does not hold", "not yet run"


class Verdict(NamedTuple):
    value: str
    verdict: str


class Table(NamedTuple):
    """Numbers as people read them: a title, the names of the columns, and a row of texts after the other."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Stage(NamedTuple):
    """Training runs that are wanted, as trials (see `trials`); the smaller its number, the sooner. Those that are not
    its `own` have to be there first, and are not among the experiment's rows."""

    order: int
    trials: list[Any]
    own: bool = True


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One figure of the paper. `run` turns a cell into rows; `claims` judges rows by the number of the claim.

    `cost` orders cells that run side by side, the dearest first; `workers` is how many do so unless the user says.
    In processes of their own cells have one thread of the processor; those that train `networks` the GPU, where one is.
    Where the cells are training runs there are `stages` instead: what is still wanted, given the rows there are. Those
    are looked at once they are `ready`, and the ones that figures, tables and claims come from are `used`.
    `notes` are sentences for people, which stand above the figures.
    """

    name: str
    paper: str
    summary: str
    plot: Callable[[Rows, Path], list[Path]]
    claims: dict[int, Callable[[Rows], Verdict]]
    cells: Callable[[Scale, int], list[dict[str, Any]]] = lambda scale, seed: []
    run: Callable[..., Iterable[Row]] = lambda **cell: []
    stages: Callable[[Scale, int, Rows], list[Stage]] | None = None
    tables: Callable[[Rows], list[Table]] = lambda rows: []
    cost: Callable[[dict[str, Any]], float] = lambda cell: 0.0
    workers: Callable[[Scale], int] = lambda scale: 1
    networks: bool = False
    ready: Callable[[Rows], bool] = bool
    used: Callable[[Rows], Rows] = lambda rows: rows
    notes: Callable[[Rows], list[str]] = lambda rows: []

    def stored(self, out: Path) -> Rows:
        """The rows that are stored; a `ValueError` says how to make them."""
        if self.stages is None:
            return read_rows(self.path(out))[0]
        if rows := self.found(out):
            return rows
        raise ValueError(
            f"{self.path(out)} holds too few runs of {self.name} to show: make them with `highway-rl run {self.name}`"
        )

    def found(self, out: Path) -> Rows:
        """The rows that are stored, or none."""
        if self.stages is None:
            return self.stored(out) if self.path(out).exists() else []
        from highway_rl.experiments.queue import rows_of

        return rows_of(self, out)

    def path(self, out: Path) -> Path:
        """Where its rows lie: a file of its own, or the folder of all training runs."""
        return out / f"{self.name}.csv" if self.stages is None else out / "deep"


def experiments() -> dict[str, Experiment]:
    """Every module of this package that defines EXPERIMENT, by name."""
    package = importlib.import_module("highway_rl.experiments")
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    found = [m.EXPERIMENT for m in modules if hasattr(m, "EXPERIMENT")]
    return {e.name: e for e in sorted(found, key=lambda e: min(e.claims, default=99))}


def find(name: str) -> Experiment:
    known = experiments()
    if name not in known:
        raise checks.unknown("experiment", name, known)
    return known[name]


def run(
    experiment: Experiment,
    scale: Scale,
    seed: int,
    out: Path,
    step: Callable[[int, int], None] | None = None,
    *,
    workers: int | None = None,
    resume: bool = False,
) -> Path:
    """Run every cell, write `<out>/<name>.csv` as they finish, and return its path. `step` hears of each finished cell.

    With several `workers` cells run in processes of their own. `resume` keeps the rows of cells that the file has
    already, if the same code, scale and seed made them.
    """
    if scale not in get_args(Scale):
        raise checks.unknown("scale", scale, get_args(Scale))
    checks.whole("seed", seed, 0)
    workers = experiment.workers(scale) if workers is None else workers
    checks.whole("workers", workers, 1)
    if experiment.stages is not None:
        from highway_rl.experiments import queue

        queue.work([experiment], scale, seed, out, step, workers=workers)
        return experiment.path(out)
    cells = experiment.cells(scale, seed)
    path = out / f"{experiment.name}.csv"
    facts = provenance(experiment=experiment.name, scale=scale, seed=seed, cells=len(cells), workers=workers)
    if workers > 1 and not _on_gpu(experiment):
        facts["device"] = f"cpu ({platform.machine()}), one thread a worker"
    done, (seconds, cpu) = stored_cells(path, facts, cells) if resume else ({}, (0.0, 0.0))
    start = written = time.perf_counter()

    def write() -> None:
        rows = [row for i in sorted(done) for row in done[i]]
        spent = {"seconds": round(seconds + written - start, 1), "cpu_seconds": round(cpu, 1)}
        write_rows(path, rows, {**facts, "finished": len(done), **spent})

    todo = {i: cell for i, cell in enumerate(cells) if i not in done}
    try:
        with contextlib.closing(_finished(experiment, todo, workers)) as finished:  # Ctrl-C may come here, too
            for i, rows, used in finished:
                done[i] = [{**cells[i], **row} for row in rows]
                cpu += used
                if step is not None:
                    step(len(done), len(cells))
                if time.perf_counter() - written > 1.0:  # cells that take no time are written together
                    written = time.perf_counter()
                    write()
    finally:
        written = time.perf_counter()
        if done:
            write()
    return path


def _finished(
    experiment: Experiment, cells: dict[int, dict[str, Any]], workers: int
) -> Generator[tuple[int, Rows, float], None, None]:
    """The number, the rows and the processor time of each cell, as they come."""
    if workers == 1 or len(cells) < 2:
        yield from ((i, *_timed(experiment, cell)) for i, cell in cells.items())
        return
    order = sorted(cells, key=lambda i: -experiment.cost(cells[i]))
    spawn = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    pool = concurrent.futures.ProcessPoolExecutor(workers, spawn, initializer=_begin, initargs=(_on_gpu(experiment),))
    try:
        waiting = {pool.submit(_rows_of, experiment.name, cells[i]): i for i in order}
        for ready in concurrent.futures.as_completed(waiting):
            yield waiting[ready], *ready.result()
    except BaseException:  # Ctrl-C, or a cell that failed: nobody waits for what the others are at
        for worker in multiprocessing.active_children():
            if worker not in others:
                worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _on_gpu(experiment: Experiment) -> bool:
    """Whether its workers share a GPU."""
    import jax

    return experiment.networks and jax.default_backend() != "cpu"


def _begin(on_gpu: bool) -> None:
    """In a worker, before JAX starts: Ctrl-C is for the process that started it, which ends it; without a GPU the
    processor, with as many threads in XLA's pools as NPROC says."""
    import jax

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if on_gpu:
        return
    os.environ["NPROC"] = "1"
    jax.config.update("jax_platforms", "cpu")


def _rows_of(name: str, cell: dict[str, Any]) -> tuple[Rows, float]:
    return _timed(find(name), cell)


def _timed(experiment: Experiment, cell: dict[str, Any]) -> tuple[Rows, float]:
    start = time.process_time()
    return list(experiment.run(**cell)), time.process_time() - start


def stored_cells(
    path: Path, facts: dict[str, Any], cells: list[dict[str, Any]]
) -> tuple[dict[int, Rows], tuple[float, float]]:
    """Rows by the number of their cell and the seconds they took, where the same code, scale and seed made them."""
    with contextlib.suppress(ValueError):
        rows, old = read_texts(path)
        if all(old.get(name) == facts[name] for name in ("experiment", "scale", "seed", "code", "jax")):
            numbers = {_signature(cell, cell): i for i, cell in enumerate(cells)}
            kinds = {tuple(cell) for cell in cells}
            found: dict[int, Rows] = {}
            for row in rows:
                match = [numbers[key] for names in kinds if (key := _signature(row, names)) in numbers]
                if match:
                    found.setdefault(match[0], []).append({name: text for name, text in row.items() if text != ""})
            return found, (float(old["seconds"]), float(old["cpu_seconds"]))
    return {}, (0.0, 0.0)


def _signature(row: Row, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The values by which the rows of a cell know it, as they stand in a file."""
    values = {name: as_text(row.get(name)) for name in names}
    return tuple(sorted((name, "" if value is None else str(value)) for name, value in values.items()))
