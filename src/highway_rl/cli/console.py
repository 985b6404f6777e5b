"""What the commands print with: tables, a progress bar, one-line messages."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE words as a dictionary: numbers (inf and nan too), True, lists such as 1,2,end, or words.

    >>> settings(["n=3", "depths=1,2,end", "loss=squared"])
    {'n': 3, 'depths': (1, 2, 'end'), 'loss': 'squared'}
    """
    found = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise ValueError(f"{pair}: write it as name=value")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return tuple(_value(part) for part in text.split(",")) if "," in text else text


def as_json(value: Any) -> str:
    """JSON for every reader: what is not a finite number becomes null.

    >>> as_json(float("nan"))
    'null'
    """
    return json.dumps(_finite(value), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def one_line(text: str) -> str:
    """A boxed or many-lined message as one sentence."""
    words = re.sub(r"[─━│┃╭╮╰╯]|-{5,}", " ", re.sub(r"\x1b\[[0-9;]*m", "", text))
    return re.sub(r"^(.{5,60}?):? \1", r"\1", re.sub(r"\s+", " ", words).strip())  # a box repeats its title


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
def progress(title: str, unit: str = "cells") -> Iterator[Callable[[Any, Any], None]]:
    """A bar on stderr that counts cells, or shows how the certified error of a solve falls."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    ]
    if unit == "cells":
        columns[2:2] = [BarColumn()]
        columns.append(TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None, note="")

        def step(done: Any, total: Any) -> None:
            if unit == "cells":
                bar.update(task, completed=done, total=total, note=f"{done}/{total}")
            else:
                bar.update(task, note=f"iteration {done}, error {total:.1e}")

        yield step
