"""Which code made a stored run, and how that code makes it again.

    what made it ──obstacle──> nothing, or why its commit cannot ──again──> words and commands, from the root of a clone

Rows were committed after the code that made them, so a commit does not have the rows it made: its code is laid beside
the clone, and reads the rows from where they lie today.
"""

from __future__ import annotations

import shlex

from highway_rl.records.rows import Row

SINCE = "2026-11-16T01:53"
"""When `--cell` came (UTC, commit 071afe2): what was made before was made by code that lacks it."""
COMMANDS = (
    "git worktree add ../highway-rl-{commit} {commit}",
    "PYTHONPATH=../highway-rl-{commit}/src {python} -m highway_rl run {experiment} --cell {name} --out {out}",
)
WHERE = "with the code of {commit}, from the root of a clone"
UNKNOWN = "its commit is not known: today's code can make it again and compare, and numbers may differ"
OLDER = "{commit} has no --cell yet: today's code can make it again and compare, and numbers may differ"
CHANGED = "its code was not committed: the nearest commit is {commit}, and numbers may differ"


def nearest(made: Row) -> str:
    """The commit of what made a row, without the changes it had."""
    return str(made.get("commit", "unknown")).partition("+")[0]


def able(made: Row) -> bool:
    """Whether the commit is known, and its code has `--cell`."""
    return nearest(made) != "unknown" and str(made.get("date", SINCE)) >= SINCE


def obstacle(made: Row, by_id: bool = True) -> str:
    """Why the commit that a row names does not make it again just so; nothing where it does. Training runs have ids."""
    commit = nearest(made)
    if by_id and not able(made):
        return (UNKNOWN if commit == "unknown" else OLDER).format(commit=commit)
    return CHANGED.format(commit=commit) if commit != made.get("commit") else ""


def commands(commit: str, name: str, experiment: str, out: str = "results", python: str = "python") -> list[str]:
    """What makes a run again by the code of a commit."""
    words = {"commit": commit, "python": python, "experiment": experiment, "name": name, "out": shlex.quote(out)}
    return [line.format(**words) for line in COMMANDS]


def again(made: Row, name: str, experiment: str, out: str, python: str) -> str:
    """How a stored run is made again by its own code, or by what is nearest to it; or that it cannot be."""
    told = obstacle(made)
    if not able(made):
        return told
    commit = nearest(made)
    where = f"{told}; " * bool(told) + WHERE.format(commit=commit) + ":"
    return "\n  ".join([where, *commands(commit, name, experiment, out, python)])
