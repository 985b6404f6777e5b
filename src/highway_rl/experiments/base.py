"""An experiment is data: cells to run, rows they give, a figure and claims read from the rows alone.

    cells(scale, seed) ──run──> rows ──write──> CSV with provenance ──read──> plot, claims

Nothing that is drawn or judged comes from anywhere but the stored rows.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import importlib
import json
import os
import pkgutil
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

Scale = Literal["smoke", "quick", "paper"]
Row = dict[str, Any]
Rows = list[Row]

HOLDS, PARTLY, FAILS, NOT_RUN = "holds", "partly", "does not hold", "not yet run"


class Verdict(NamedTuple):
    value: str
    verdict: str


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One figure of the paper. `run` turns a cell into rows; `claims` judges rows by the number of the claim."""

    name: str
    paper: str
    summary: str
    cells: Callable[[Scale, int], list[dict[str, Any]]]
    run: Callable[..., Iterable[Row]]
    plot: Callable[[Rows, Path], list[Path]]
    claims: dict[int, Callable[[Rows], Verdict]]


def experiments() -> dict[str, Experiment]:
    """Every module of this package that defines EXPERIMENT, by name."""
    package = importlib.import_module("highway_rl.experiments")
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    found = [m.EXPERIMENT for m in modules if hasattr(m, "EXPERIMENT")]
    return {e.name: e for e in sorted(found, key=lambda e: min(e.claims, default=99))}


def find(name: str) -> Experiment:
    known = experiments()
    if name not in known:
        raise ValueError(f"unknown experiment {name!r}: choose from {', '.join(known)}")
    return known[name]


def run(
    experiment: Experiment, scale: Scale, seed: int, out: Path, step: Callable[[int, int], None] | None = None
) -> Path:
    """Run every cell, write `<out>/<name>.csv`, and return its path. `step` hears of each finished cell."""
    if scale not in ("smoke", "quick", "paper"):
        raise ValueError(f"unknown scale {scale!r}: choose from smoke, quick, paper")
    if seed < 0:
        raise ValueError(f"seed={seed}: give a whole number >= 0")
    cells = experiment.cells(scale, seed)
    start = time.perf_counter()
    rows: Rows = []
    for done, cell in enumerate(cells, 1):
        rows += [{**cell, **row} for row in experiment.run(**cell)]
        if step is not None:
            step(done, len(cells))
    facts = provenance(experiment=experiment.name, scale=scale, seed=seed, cells=len(cells))
    facts["seconds"] = round(time.perf_counter() - start, 1)
    return write_rows(out / f"{experiment.name}.csv", rows, facts)


def provenance(**facts: Any) -> dict[str, Any]:
    """What made these rows: code, configuration, seed, device, versions, date."""
    import jax
    import numpy as np

    import highway_rl

    return {
        **facts,
        "version": highway_rl.__version__,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": f"{jax.devices()[0].device_kind} ({platform.machine()})",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
    }


def _commit() -> str:
    """The commit of the package, or what HIGHWAY_RL_COMMIT says where the code was copied without its history."""
    here = Path(__file__).parent.parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+changes" if git("status", "--porcelain", "-uno", ".") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("HIGHWAY_RL_COMMIT", "unknown")


def write_rows(path: Path, rows: Rows, facts: dict[str, Any]) -> Path:
    """A CSV whose first line is `# ` and the provenance as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {json.dumps(facts)}\n")
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.12g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return path


def read_rows(path: Path) -> tuple[Rows, dict[str, Any]]:
    """The rows of a stored run, numbers as numbers, and its provenance."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            facts = json.loads(file.readline().removeprefix("# "))
            rows = [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(file)]
    except FileNotFoundError:
        raise ValueError(f"{path} is not there: `highway-rl run {path.stem}` makes it") from None
    except (json.JSONDecodeError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a stored run ({error}): `highway-rl run {path.stem}` makes it anew") from None
    if not rows:
        raise ValueError(f"{path} holds no rows: `highway-rl run {path.stem}` makes it anew")
    return rows, facts


def _number(text: str | None) -> Any:
    if text is None or text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def select(rows: Rows, **where: Any) -> Rows:
    """The rows that have all these values."""
    return [row for row in rows if all(row.get(k) == v for k, v in where.items())]
