"""Rows in files: a CSV whose first line is `# ` and its provenance as JSON, and the metrics of a training folder.

    write_rows(path, rows, facts) ──> file ──read_rows──> rows, facts

A number comes back as a number (twelve digits of it), None and "" as None, True and False as themselves. Text that
reads as a number comes back as one: a column of text should not hold any.
"""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Rows = list[Row]


def write_rows(path: Path, rows: Rows, facts: dict[str, Any]) -> Path:
    """Every column that any row has, in the order they are met; the file takes the place of an older one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    text.write(f"# {json.dumps(facts)}\n")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: as_text(value) for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())
    return path


def read_rows(path: Path) -> tuple[Rows, dict[str, Any]]:
    """The rows of a stored run, numbers as numbers, and its provenance."""
    rows, facts = read_texts(path)
    return [{name: as_number(text) for name, text in row.items()} for row in rows], facts


def read_texts(path: Path) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """The rows as they stand in the file, and the provenance; a `ValueError` says how to make the file anew."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            facts = json.loads(file.readline().removeprefix("# "))
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise ValueError(f"{path} is not there: make it with `highway-rl run {path.stem}`") from None
    except (json.JSONDecodeError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path} is not a stored run ({error}): make it anew with `highway-rl run {path.stem}`"
        ) from None
    if not rows:
        raise ValueError(f"{path} holds no rows: make it anew with `highway-rl run {path.stem}`")
    return rows, facts


def read_metrics(folder: Path) -> Rows:
    """The rows of a training folder's metrics.csv, NaN where a cell is empty; a last line cut short is left out."""
    path = folder / "metrics.csv"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            whole = [row for row in csv.DictReader(file) if None not in row.values()]
    except FileNotFoundError:
        raise ValueError(
            f"{folder} is no training folder, {path.name} is not there: give one that `highway-rl train` wrote"
        ) from None
    return [{k: v if k == "algo" else float(v) if v else float("nan") for k, v in row.items()} for row in whole]


def select(rows: Rows, **where: Any) -> Rows:
    """The rows that have all these values."""
    for name, value in where.items():
        rows = [row for row in rows if row.get(name) == value]
    return rows


def write_text(path: Path, text: str) -> None:
    """A text file that is there whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def as_text(value: Any) -> Any:
    """How a value stands in a file."""
    return f"{value:.12g}" if isinstance(value, float) else value


def as_number(text: str | None) -> Any:
    """What stands in a file: None, True or False, a number, or else the text itself."""
    if text is None or text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float) if "_" not in text else ():  # Python reads 1_000 as a number; here it is a name
        try:
            return kind(text)
        except ValueError:
            pass
    return text
