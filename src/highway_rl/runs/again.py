"""A stored run made again: the whole program that it was part of, beside its stored numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from highway_rl.records import ledger
from highway_rl.records.provenance import provenance
from highway_rl.records.rows import Row
from highway_rl.runs import trials
from highway_rl.runs.fit import fit
from highway_rl.runs.trials import Batch, Trial


def program_of(out: Path, name: str) -> tuple[Row, Batch]:
    """The record that holds a stored trial, and the program that made it."""
    for record in trials.records(out):
        if name not in {run["id"] for run in record["runs"]}:
            continue
        config = record["config"]
        like = Trial(
            config["task"], record["env"], "", record["k"], config["steps"], config["seed"], record["preset"],
            config["episodes"], record.get("settings", ""),
        )  # fmt: skip
        algos = tuple(dict.fromkeys(run["algo"] for run in record["runs"]))
        return record, Batch(like, algos, config["seeds"], tuple(config.get("imports", ())))
    raise ValueError(
        f"cell {name!r} is no stored run: give the id of one in {out / trials.FOLDER}, as the tables of"
        " `highway-rl report` list them all"
    )


def rerun(out: Path, name: str, report: Callable[[dict[str, Any]], None] = lambda news: None) -> tuple[Row, Row]:
    """A stored trial and the same one made again, with the whole program that it was part of; nothing is stored.

    On the same CPU, with the same versions and code, the two are equal; on a GPU XLA may choose other kernels.
    """
    record, batch = program_of(out, name)
    with tempfile.TemporaryDirectory() as folder, trials.as_deep():
        made = trials.results(batch, fit(batch.config(), Path(folder) / "again", report=report), Path(folder) / "again")
    again = ledger.plain(made)
    return (
        {**record["provenance"], **next(run for run in record["runs"] if run["id"] == name)},
        {**provenance(), **next(run for run in again["runs"] if run["id"] == name)},
    )
