"""How a sweep stands, read from its folder alone: by whoever looks, also from another terminal or machine."""

from __future__ import annotations

import collections
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from highway_rl.records import ledger
from highway_rl.records.rows import Rows, read_metrics
from highway_rl.runs import trials
from highway_rl.runs.config import Config
from highway_rl.runs.folder import claimed_by, is_locked, read_config
from highway_rl.runs.queue import FAILED
from highway_rl.runs.sweep import SPEC, Sweep, rates
from highway_rl.runs.trials import Trial


class Best(NamedTuple):
    """The algorithm with the best mean greedy score on a task so far, and over how many seeds."""

    task: str
    algo: str
    score: float
    seeds: int


class Status(NamedTuple):
    """Cells by what became of them, programs under way with their step, the best so far, and the seconds that are left
    if workers go on as they did; None before anything is measured."""

    cells: int
    done: int
    failed: dict[str, str]
    running: dict[str, int]
    best: list[Best]
    seconds_left: float | None

    @property
    def left(self) -> int:
        return self.cells - self.done - len(self.failed)


def read(out: Path) -> tuple[Sweep, int]:
    """The spec of a folder's latest sweep, and its workers."""
    try:
        found = json.loads((out / SPEC).read_text(encoding="utf-8"))
        workers = found.pop("workers") or 1
        return Sweep(**found), workers
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{out} is no sweep, {SPEC} is not there: give a folder that `highway-rl sweep` wrote"
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{out / SPEC} is no spec ({error}): run the sweep again, which writes it anew") from None


def status(out: Path) -> Status:
    """How the folder's latest sweep stands."""
    spec, workers = read(out)
    cells = {trial.id: trial for trial in spec.trials()}
    rows = [row for row in trials.stored(out) if row["id"] in cells]
    done = {row["id"] for row in rows}
    failures = {note["id"]: note for note in ledger.records(out / FAILED)}
    failed = {
        f"{note['task']} {note['algo']} seed {note['seed']}": note["error"]
        for name, note in failures.items()
        if name in cells and name not in done
    }
    left = [trial for name, trial in cells.items() if name not in done and name not in failures]
    running = _running(out)
    seconds = _seconds_left(left, running, rates(out), workers)
    return Status(len(cells), len(done), failed, {p.name: p.step for p in running}, _best(rows), seconds)


class _Program(NamedTuple):
    """One under way: the last step it told of; once it is compiled its task, how many runs, and the seconds that a step
    of a run took, unless it goes on with what was begun before."""

    name: str
    step: int = 0
    task: str = ""
    runs: int = 0
    rate: float | None = None


def _running(out: Path) -> list[_Program]:
    """Programs that somebody trains."""
    claims = sorted((out / trials.FOLDER / "unfinished").glob("*.claim"))
    return [_program(claim) for claim in claims if is_locked(claim)]


def _program(claim: Path) -> _Program:
    work = claim.with_suffix("")
    try:
        config = read_config(work)
        begun, compiled = (path.stat().st_mtime for path in (claim / ".lock", work / "config.json"))
        step = max((int(row["step"]) for row in read_metrics(work)), default=0)
    except (ValueError, OSError, KeyError):
        return _Program(f"{claimed_by(claim) or claim.stem} (compiling)")
    runs = len(config.algos) * config.seeds
    rate = (time.time() - begun) / (step * runs) if step and compiled > begun else None
    return _Program(_name(config), step, config.task, runs, rate)


def _seconds_left(left: list[Trial], running: list[_Program], measured: dict[str, float], workers: int) -> float | None:
    """From what steps took that are stored, else those under way; by task, or as all tasks do on average."""
    found = {p.task: p.rate for p in running if p.rate is not None} | measured
    if not found:
        return None
    usual, steps = sum(found.values()) / len(found), collections.Counter({trial.task: 0 for trial in left})
    for trial in left:
        steps[trial.task] += trial.steps
    for p in running:
        steps[p.task] -= p.step * p.runs
    every = [found.get(task, usual) * max(many, 0) for task, many in steps.items()]
    return sum(every) / max(workers, len(running))


def _name(config: Config) -> str:
    """What a program trains."""
    last = config.seed + config.seeds - 1
    seeds = f"seed {last}" if config.seeds == 1 else f"seeds {config.seed}-{last}"
    more = f" and {len(config.algos) - 1} more" if len(config.algos) > 1 else ""
    return f"{config.task} {config.algos[0]}{more} {seeds}"


def _best(rows: Rows) -> list[Best]:
    by_task: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["greedy"] is not None:
            by_task.setdefault(row["task"], {}).setdefault(row["algo"], []).append(row["greedy"])
    means: Any = {task: {a: sum(x) / len(x) for a, x in algos.items()} for task, algos in by_task.items()}
    tops = {task: max(scores, key=scores.__getitem__) for task, scores in means.items()}
    return [Best(task, algo, means[task][algo], len(by_task[task][algo])) for task, algo in tops.items()]
