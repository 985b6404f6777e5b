"""Settings by one word. What a user names beside it wins.

explorer   Maxmin DQN's published code, on which the paper builds: one network, returns that end in max Q
paper      what the paper says it ran on MinAtar (App. C.3): Explorer's, the mean under the ε-greedy policy in place of
           max Q, and k networks; it picks k from {1, 2, 4} for each game, here it is 2 unless you name it
general    what learns small tasks with a late reward (`highway-rl run late-tasks`)

The discount belongs to the task: its spec names one (MinAtar 0.99, with delay 0.996; other tasks with
delay 1 − 0.2/horizon), else it is 0.99.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from highway_rl import checks

PRESETS: dict[str, dict[str, Any]] = {
    "explorer": {"steps": 5_000_000},
    "paper": {"steps": 5_000_000, "bootstrap": "epsilon-greedy", "num_networks": 2},
    "general": {
        "steps": 50_000,
        "optimizer": "adam",
        "learning_rate": 5e-4,
        "loss": "squared",
        "network": "level",
        "rescale": True,
        "average": 20,
        "hold": 5,
        "batch_size": 64,
        "num_networks": 2,
        "refresh": 250,
        "start": 1_000,
        "epsilon_steps": 10_000,
        "epsilon_end": 0.05,
    },
}

BEFORE: dict[int, dict[str, Any]] = {3: {"rescale": False}, 4: {"average": 0, "hold": 1}}
"""What `general` did before each format of config.json."""
EDITION = {"general": max(BEFORE)}
"""Since which format a preset is what it is: runs of another edition are other runs."""


def preset(name: str | None, task: str) -> dict[str, Any]:
    """The settings of a preset; by default the paper's for its games, and `general` for everything else."""
    return dict(PRESETS[preset_name(name, task)])


def preset_name(name: str | None, task: str) -> str:
    """The preset that is meant."""
    chosen = name or ("paper" if task.startswith("minatar/") else "general")
    if chosen not in PRESETS:
        raise checks.unknown("preset", chosen, PRESETS)
    return chosen


DEFAULT = "soft-highway-dqn"
"""The algorithm where nobody names one."""
SUFFIX = ".json"
"""How the names of preset files end."""


def with_file(
    name: str | None, algos: Sequence[str] = (), settings: dict[str, Any] | None = None
) -> tuple[str | None, tuple[str, ...], dict[str, Any]]:
    """Preset, algorithms and settings as they are meant: where the preset is a file, the preset it builds on, its
    algorithm unless one is named, and its settings under those that are named."""
    given = dict(settings or {})
    if name is None or not name.endswith(SUFFIX):
        return name, tuple(algos) or (DEFAULT,), given
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
        base, algo, shared = found["preset"], found["algo"], dict(found["settings"])
    except OSError as error:
        raise ValueError(f"preset {name} cannot be read ({error.strerror}): give one of {', '.join(PRESETS)}") from None
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{name} is no preset: give a file that `highway-rl tune` wrote") from None
    return base, tuple(algos) or (algo,), shared | given
