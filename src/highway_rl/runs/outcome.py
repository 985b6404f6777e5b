"""What can become of a run: where its state is kept, whose it is, how well it did, and when it broke."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.deep import loop
from highway_rl.runs import folder
from highway_rl.runs.config import Config
from highway_rl.runs.presets import BEFORE
from highway_rl.runs.programs import Program
from highway_rl.types import NEVER

News = dict[str, Any]
"""Something that happened, for whoever listens."""


def check_origin(facts: dict[str, Any], config: Config, out: Path) -> None:
    """Refuses a config that is not the one a checkpoint was made with. Of what a preset did not say yet when that was
    written, it knows nothing."""
    made, asked = folder.flattened(facts["config"]), folder.flat(config)
    if facts.get("format", 0) < folder.FORMAT:
        new = [f"settings.{name}" for older in BEFORE.values() for name in older]
        made = {name: asked[name] for name in new if name in asked} | made
    for name in folder.difference(made, asked):
        raise ValueError(
            f"{out / 'config.json'} says {name}={asked.get(name)!r}, but its checkpoints were made with"
            f" {made.get(name)!r}: put the old config.json back"
        )


def saved(config: Config, run: loop.Run) -> Any:
    """What of a state goes into a checkpoint."""
    return run if config.save_store else run._replace(store=None)  # type: ignore[arg-type]


MEASURED = ("step", "score", "length", "loss", "value", "bias", "error")
"""Columns of metrics.csv that an agent takes along."""


def measured(out: Path) -> dict[tuple[str, int], News]:
    """How each run of a folder did: the last score of its training, and its test episodes, where there are any."""
    found: dict[tuple[str, int], News] = {}
    broken = (OSError, ValueError, KeyError, TypeError)  # files that a run in progress, or somebody, cut short
    with contextlib.suppress(*broken), (out / "metrics.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["score"] not in ("", "nan", None):
                last = {name: float(row[name]) for name in MEASURED if row.get(name) not in ("", "nan", None)}
                found[row["algo"], int(row["seed"])] = {"training": last}
    with contextlib.suppress(*broken):
        for label, tests in tested(json.loads((out / "evaluation.json").read_text(encoding="utf-8"))["scores"]).items():
            found[label] = found.get(label, {}) | tests
    return found


def tested(rows: Iterable[News]) -> dict[tuple[str, int], News]:
    """The test episodes of each run."""
    found: dict[tuple[str, int], News] = {}
    for row in rows:
        test = {name: value for name, value in row.items() if name not in ("algo", "seed")}
        found.setdefault((row["algo"], row["seed"]), {"tests": []})["tests"].append(test)
    return found


def score(measures: News) -> float | None:
    """The mean of the greedy test episodes; before there are any, the last of training."""
    greedy = [test.get("score") for test in measures.get("tests", ()) if test.get("epsilon", 0.0) == 0.0]
    known = [one for one in greedy if one is not None]
    found: float | None = known[-1] if known else measures.get("training", {}).get("score")
    return found


def broken_at(run: loop.Run) -> list[int | None]:
    """Per run the step at which its numbers broke, or None."""
    return [None if step == NEVER else int(step) for step in np.asarray(run.broken)]


def stopped_run(program: Program, i: int, step: Any, diagnostics: dict[str, float]) -> News:
    label, seed = program.labels[i]
    return {"run": program.numbers[i], "algo": label, "seed": seed, "step": int(step), "diagnostics": diagnostics}


def sentence(stopped: News) -> str:
    """A run that broke, in words."""
    last = ", ".join(f"{k} {v:.4g}" for k, v in stopped["diagnostics"].items())
    kept = stopped["checkpoint"]
    return (
        f"{stopped['algo']} seed {stopped['seed']} stopped at step {stopped['step']:,}: its loss or reward is no longer"
        f" a number ({last}); "
        + ("there is no checkpoint of it" if kept is None else f"the checkpoint of step {kept:,} is kept")
    )
