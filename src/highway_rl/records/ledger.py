"""A file that only grows: one JSON record a line, which several processes may add to at the same time.

append(path, record) ──> file ──records──> every record, in the order in which they came
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def append(path: Path, record: Record) -> None:
    """Adds a record. Writers wait for each other; a line that somebody could not finish is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(plain(record), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    with path.open("a+b") as file:
        _lock(file)
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def records(path: Path, needed: Iterable[str] = ()) -> list[Record]:
    """Every whole record of a file, none where there is no file. Of a line that was cut short or damaged a warning
    tells; one that is whole and lacks what is `needed` is refused."""
    if not path.exists():
        return []
    found, needed = [], set(needed)
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line:
            continue
        try:
            record = json.loads(line.decode())
        except ValueError:
            warnings.warn(
                f"{path}, line {number}, was cut short or damaged and is left out: what it held runs again",
                stacklevel=2,
            )
            continue
        if not isinstance(record, dict) or not needed <= set(record):
            lacks = ", ".join(sorted(needed - set(record))) if isinstance(record, dict) else "all columns"
            raise ValueError(f"{path}, line {number}, is no record of a run ({lacks} not there): leave that line out")
        found.append(record)
    return found


def _lock(file: Any) -> None:
    """Until the file is closed nobody else adds to it."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def plain(value: Any) -> Any:
    """What JSON holds: numbers to five digits, None where there is none."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
