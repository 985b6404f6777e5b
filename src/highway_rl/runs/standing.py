"""Where training stands: while it goes on, and when it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from highway_rl.deep import loop
from highway_rl.runs.callbacks import News
from highway_rl.runs.config import Setup
from highway_rl.runs.programs import Program


class Trained(NamedTuple):
    """What training leaves: the networks of each program's runs, what went wrong, the scores, and the state of the
    program that ran last. `step` is how far that one came; `finished`: all have come to their end."""

    setup: Setup
    params: list[Any]
    step: int
    finished: bool
    stopped: list[News]
    scores: list[News]
    last: loop.Run | None
    folder: Path | None


class Standing(NamedTuple):
    """How far the runs of a program have come: periods done, the period to learn from, periods not yet reported, broken
    runs, what was seen last of each run."""

    period: int
    learn_from: int
    run: loop.Run
    pending: list[loop.Curve]
    stopped: list[News]
    seen: list[dict[str, float]]


def onward_from(trained: Trained | None, program: Program) -> Standing | None:
    """Where what was trained before stands."""
    if trained is None or trained.last is None:
        return None
    nothing: list[dict[str, float]] = [{} for _ in program.labels]
    return Standing(trained.step // program.schedule.refresh, 0, trained.last, [], trained.stopped, nothing)
