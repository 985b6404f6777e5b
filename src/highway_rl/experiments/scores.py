"""What the figures, tables and claims of training runs have in common: scores by name and task, and learning curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from highway_rl.experiments.base import Row, Rows, Table
from highway_rl.records.figures import look
from highway_rl.records.statistics import (
    Interval,
    curve_interval,
    interval,
    mean,
    probability_of_improvement,
    ratio_of_means,
)

ByTask = Mapping[str, Rows]
"""The runs of a method, by task; a run is a seed."""

TESTS = {"greedy": "greedy test", "exploring": "test at the training ε", "training": "training, last quarter"}
"""The three scores of a run: two of a hundred episodes each with the final networks, and one of the way there."""
WHOLE = "all of training"
"""A fourth: the mean of the learning curve, the higher the sooner it rises."""


def number(row: Row, name: str) -> float:
    """A score of a run; NaN if it broke, or no episode ended."""
    if name == WHOLE:
        curve = [x for x in row["score"] if x is not None]
        value = float(np.mean(curve)) if curve else None
    else:
        value = row[name]
    return float("nan") if value is None or row["broken"] is not None else float(value)


def values(rows: Rows, name: str) -> list[float]:
    """The scores that there are."""
    return [x for row in rows if not np.isnan(x := number(row, name))]


def by_game(runs: ByTask, name: str) -> dict[str, list[float]]:
    return {task: values(rows, name) for task, rows in runs.items()}


def how_many(groups: Iterable[Rows]) -> str:
    """How many seeds each of these has, in words: "10 seeds", or "5 or 10 seeds"."""
    counts = sorted({len(rows) for rows in groups})
    return " or ".join(map(str, counts)) + (" seed" if counts == [1] else " seeds")


def average(rows: Rows, name: str) -> Interval[float] | None:
    """The mean over seeds with its interval, None of none."""
    found = values(rows, name)
    return interval(mean, {"": found}) if found else None


def said(found: Interval[float] | None, digits: int = 1) -> str:
    """A number with its interval, as text.

    >>> said(Interval(3.14159, 3.0, 3.3))
    '3.1 [3.0, 3.3]'
    """
    if found is None:
        return "–"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def parts(found: Mapping[str, bool]) -> str:
    """Which parts of a claim hold and which do not: the beginning of what was measured.

    >>> parts({"in training": True, "greedy": False}), parts({"greedy": True})
    ('Holds: in training. Does not: greedy. Measured: ', '')
    """
    holds, fails = ([name for name, good in found.items() if good is kind] for kind in (True, False))
    if not fails:
        return ""
    first = f"Holds: {'; '.join(holds)}. " if holds else ""
    return f"{first}Does not: {'; '.join(fails)}. Measured: "


def above(one: ByTask, other: ByTask, name: str) -> Interval[float] | None:
    """How likely a seed of one scores more than one of the other, over the tasks that both have."""
    mine, theirs = by_game(one, name), by_game(other, name)
    tasks = [task for task in mine if mine[task] and theirs.get(task)]
    if not tasks:
        return None
    return probability_of_improvement({t: mine[t] for t in tasks}, {t: theirs[t] for t in tasks})


def targets(rows: Rows) -> tuple[dict[str, float], float, float]:
    """What the targets of runs were at the end of training, means over seeds: the share of steps at which each depth's
    gate was open (the longest last), how far they lay above what followed, and the largest value."""
    mean = lambda each: float(np.mean([x for x in each if x is not None] or [np.nan]))  # noqa: E731
    depths = sorted({n for row in rows for n in row["open"]} - {"1"}, key=lambda n: (len(n), n))  # "end" is longest
    late = [x for row in rows for x in row["bias"][-max(len(row["bias"]) // 10, 1) :]]
    opened = {n.replace("end", "∞"): mean(row["open"].get(n) for row in rows) for n in depths}
    return opened, mean(late), mean(row["largest"][-1] for row in rows)


def share(one: Rows, other: Rows, name: str) -> Interval[float]:
    """The mean of one's scores beside that of the other's; zero of none."""
    return ratio_of_means(values(one, name) or [0.0], values(other, name) or [0.0])


def draw_curves(
    ax: Any, runs: Mapping[str, Rows], column: str = "score", looks: Mapping[str, Any] | None = None
) -> None:
    """The mean over seeds of each name's curve, with its interval; steps in millions, or thousands if there are few."""
    most = max((row["step"][-1] for rows in runs.values() for row in rows), default=1)
    unit, name = (1e6, "million") if most >= 1e6 else (1e3, "thousand")
    for label, rows in runs.items():
        whole = [row for row in rows if len(row[column]) == len(rows[0]["step"])]
        if not whole:
            continue
        table = np.array([[np.nan if x is None else x for x in row[column]] for row in whole], float)
        found = curve_interval(table, repeats=300)
        style = (looks or {}).get(label) or look(label)
        steps = np.array(whole[0]["step"]) / unit
        ax.plot(steps, found.value, style.line, color=style.colour, lw=1.6, label=label)
        ax.fill_between(steps, found.low, found.high, color=style.colour, alpha=0.12, lw=0)
    ax.set_xlabel(f"{name} steps")


def mark(ax: Any, found: Interval[float], at: float, colour: str, shape: str = "o", **more: Any) -> None:
    """A number with its interval, as a point on a bar, in line `at` of a panel."""
    ax.plot([found.low, found.high], [at, at], lw=6, color=colour, alpha=0.35, solid_capstyle="butt")
    ax.plot(found.value, at, shape, color=colour, **({"ms": 5} | more))


def seed_table(title: str, runs: Mapping[str, ByTask], name: str, label: Callable[[str, Rows], str]) -> Table:
    """Every seed's score (nan if it broke) and id, a line for each method and task, with their mean."""
    lines = []
    for method, tasks in runs.items():
        for task, rows in tasks.items():
            each = ", ".join(f"{number(row, name):.2f} ({row['id']})" for row in rows)
            lines.append((task.removeprefix("minatar/"), label(method, rows), said(average(rows, name), 2), each))
    columns = ("task", "method", "mean [95 % interval]", "each seed (id)")
    return Table(f"{title}: {TESTS[name]}", columns, sorted(lines, key=lambda line: line[0]))


def id_table(rows: Rows, tables: Iterable[Table]) -> Table:
    """Every run that stands in none of these tables, with its seed and its id; a line for each setting of a task."""
    known = " ".join(text for one in tables for line in one.rows for text in line)
    left: dict[tuple[str, ...], list[str]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        if f"({row['id']})" not in known:
            what = (
                row["task"].removeprefix("minatar/"),
                row["env"] or "–",
                row["algo"],
                str(row["k"]),
                f"{row['steps']:,}",
            )
            left.setdefault(what, []).append(f"{row['seed']} ({row['id']})")
    columns = ("task", "options", "algorithm", "k", "steps", "each seed (id)")
    lines = [(*what, ", ".join(ids)) for what, ids in sorted(left.items())]
    return Table("Ids of the runs that no table above names", columns, lines)
