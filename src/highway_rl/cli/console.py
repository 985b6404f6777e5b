"""What the commands print with: tables, a progress bar, one-line messages."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def one_line(text: str) -> str:
    """A boxed or many-lined message as one sentence."""
    words = re.sub(r"╭.*╮|[╰╯]|\x1b\[[0-9;]*m", "", text)  # what a box is called says less than what stands in it
    parts = re.split(r"[─━]{5,}|-{5,}", words.replace("full helptext", "all options"))
    lines = [line for part in parts if (line := re.sub(r"[│┃\s]+", " ", part).strip())]
    said = ". ".join(lines).replace(".. ", ". ")
    return re.sub(r"(?i)^(.{5,60}?)\. (?=\1)", "", said)  # a box in ASCII repeats its title


def coloured(verdict: str) -> str:
    colour = {"holds": "green", "partly": "yellow", "does not hold": "red"}.get(verdict, "dim")
    return f"[{colour}]{verdict}[/{colour}]"


def short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=any(len(cell) > 60 for row in rows for cell in row))
    for i, name in enumerate(columns):
        table.add_column(name, no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


@contextlib.contextmanager
def progress(title: str, unit: str = "cells", goal: float = 1.0) -> Iterator[Callable[[Any, Any], None]]:
    """A bar on stderr that counts cells or steps, or shows how the certified error of a solve closes on its goal, in
    decades."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    ]
    columns[2:2] = [BarColumn()]
    if unit != "error":
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None, note="")
        largest = 0.0

        def step(done: Any, total: Any) -> None:
            nonlocal largest
            if unit != "error":
                bar.update(task, completed=done, total=total, note=f"{done:,}/{total:,}")
                return
            largest = max(largest, total if total < math.inf else 0.0)
            bar.update(task, note=f"iteration {done}, error {total:.1e}")
            if largest > goal:
                bar.update(task, total=math.log(largest / goal), completed=math.log(largest / total))

        yield step
