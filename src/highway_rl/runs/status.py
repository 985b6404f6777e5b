"""How a sweep stands, read from its folder alone: by whoever looks, also from another terminal or machine."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from highway_rl.records import ledger
from highway_rl.records.rows import Rows, read_metrics
from highway_rl.runs import trials
from highway_rl.runs.folder import InUse, locked
from highway_rl.runs.queue import FAILED
from highway_rl.runs.sweep import SPEC, Sweep, rates


class Best(NamedTuple):
    """The algorithm with the best mean greedy score on a task so far, and over how many seeds."""

    task: str
    algo: str
    score: float
    seeds: int


class Status(NamedTuple):
    """Cells by what became of them, batches under way with their step, the best so far, and the seconds that are left
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
    measured = rates(out)
    left = [trial for name, trial in cells.items() if name not in done and name not in failures]
    running = _running(out)
    usual = sum(measured.values()) / len(measured) if measured else None
    seconds = None if usual is None else sum(measured.get(t.task, usual) * t.steps for t in left)
    seconds = None if seconds is None else seconds / max(workers, len(running))
    return Status(len(cells), len(done), failed, running, _best(rows), seconds)


def _running(out: Path) -> dict[str, int]:
    """Batches that somebody trains, by their id, with the last step they told of."""
    found = {}
    for claim in sorted((out / trials.FOLDER / "unfinished").glob("*.claim")):
        try:
            with locked(claim, look=True):
                pass
        except InUse:
            step = 0
            with contextlib.suppress(ValueError, OSError, KeyError):
                step = max((int(row["step"]) for row in read_metrics(claim.with_suffix(""))), default=0)
            found[claim.stem] = step
        except OSError:  # it ended while we looked
            continue
    return found


def _best(rows: Rows) -> list[Best]:
    by_task: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["greedy"] is not None:
            by_task.setdefault(row["task"], {}).setdefault(row["algo"], []).append(row["greedy"])
    means: Any = {task: {a: sum(x) / len(x) for a, x in algos.items()} for task, algos in by_task.items()}
    tops = {task: max(scores, key=scores.__getitem__) for task, scores in means.items()}
    return [Best(task, algo, means[task][algo], len(by_task[task][algo])) for task, algo in tops.items()]
