"""What can become of a run: where its state is kept, whose it is, and when it broke."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.deep import loop
from highway_rl.runs import folder
from highway_rl.runs.config import Config
from highway_rl.runs.programs import Program
from highway_rl.types import NEVER

News = dict[str, Any]
"""Something that happened, for whoever listens."""


def check_origin(facts: dict[str, Any], config: Config, out: Path) -> None:
    """Refuses a config that is not the one a checkpoint was made with."""
    made, asked = folder.flattened(facts["config"]), folder.flat(config)
    for name in folder.difference(made, asked):
        raise ValueError(
            f"{out / 'config.json'} says {name}={asked.get(name)!r}, but its checkpoints were made with"
            f" {made.get(name)!r}: put the old config.json back"
        )


def saved(config: Config, run: loop.Run) -> Any:
    """What of a state goes into a checkpoint."""
    return run if config.save_store else run._replace(store=None)  # type: ignore[arg-type]


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
