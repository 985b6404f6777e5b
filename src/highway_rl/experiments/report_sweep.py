"""A sweep's folder on the page of the report: the scores of every algorithm on every task, and what failed."""

from __future__ import annotations

from pathlib import Path

from highway_rl.experiments.base import Table
from highway_rl.experiments.report import Section, of_runs, runs_in_words
from highway_rl.records.statistics import interval, mean
from highway_rl.runs import status, trials
from highway_rl.runs.status import read
from highway_rl.runs.sweep import SPEC


def section(folder: Path) -> Section:
    """The folder's latest sweep."""
    spec, _ = read(folder)
    wanted, stands = {trial.id for trial in spec.trials()}, status(folder)
    rows = [row for row in trials.stored(folder) if row["id"] in wanted]
    if not rows:
        raise ValueError(
            f"{folder} has no finished cells yet: wait for one, `highway-rl sweep status {folder}` says how far"
        )
    scores: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["greedy"] is not None:
            scores.setdefault((row["task"], row["algo"]), []).append(row["greedy"])
    best = sorted(scores.items(), key=lambda one: (one[0][0], -float(mean(one[1]))))
    lines = []
    for (task, algo), found in best:
        ends = interval(mean, {task: found})
        lines.append((task, algo, f"{ends.value:.4g}", f"{ends.low:.4g} to {ends.high:.4g}", str(len(found))))
    columns = ("task", "algorithm", "mean greedy score", "95 % (bootstrap over seeds)", "seeds")
    tables = [Table("Scores, the best of a task first", columns, lines)]
    if stands.failed:
        tables.append(Table("Cells that failed", ("cell", "error"), list(stands.failed.items())))
    done = f"{stands.done} of {stands.cells} cells are done, {len(stands.failed)} failed"
    return Section(
        "sweep",
        "none",
        done,
        "",
        runs_in_words(rows),
        [],
        [],
        tables,
        of_runs(rows),
        f"highway-rl sweep --spec {folder / SPEC} --out {folder}",
    )
