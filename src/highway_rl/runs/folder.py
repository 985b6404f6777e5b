"""A training folder: its config under a checksum, one writer at a time, and nothing that can be mistaken.

config.json      what was asked for, what made it (code, device, versions, date), and a checksum of both
metrics.csv      a row per report and run
tensorboard/     the same for TensorBoard, where that is installed
checkpoints/     the newest few states of each program
evaluation.json  episodes with the final networks, greedy and at the training ε
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from highway_rl import checks
from highway_rl.records.provenance import provenance
from highway_rl.records.rows import write_text
from highway_rl.runs import checkpoint
from highway_rl.runs.config import Config, modules
from highway_rl.runs.presets import BEFORE, preset, preset_name

CELLS = "cells"
OWN = ("config.json", "metrics.csv", "checkpoints")
FORMAT = 4
FREE = ("steps", "imports")
"""What may change when a run is resumed."""


def check_folder(config: Config, out: Path, *, resume: bool) -> bool:
    """Refuses a folder that cannot be written, a used one, or, to resume, one of another config.

    Whether config.json is still to be written.
    """
    check_writable(out)
    if not resume:
        if any((out / name).exists() for name in OWN):
            raise ValueError(
                f"{out} holds a run already: give another --out, or go on with it: `highway-rl resume {out}`"
            )
        return True
    stored, asked = flat(read_config(out)), flat(config)
    if checkpoint.steps(out / "checkpoints"):
        raise ValueError(
            f"{out} has checkpoints of an older version, which cannot be resumed: train into another --out"
        )
    if (out / "evaluation.json").exists() and not (out / "checkpoints").exists():
        raise ValueError(
            f"{out} holds results without checkpoints, which a resumed run would write over: train into another --out"
        )
    for name in difference(stored, asked):
        raise ValueError(
            f"{out} was trained with {name}={stored.get(name)!r}, not {asked.get(name)!r}: leave it as it"
            " was; only the number of steps may change"
        )
    planned, wanted = (one["steps"] or preset(one["preset"], one["task"])["steps"] for one in (stored, asked))
    if wanted < planned:
        raise ValueError(f"steps={wanted}: give at least {planned}, which {out} is on its way to")
    return stored != asked


def check_writable(out: Path) -> None:
    """Says before anything is computed that a folder cannot be had."""
    existing = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"{existing} is a file: give --out a folder")
    try:
        tempfile.TemporaryFile(dir=existing).close()  # whose rights count, only trying tells
    except OSError as error:
        raise ValueError(f"{existing} cannot be written ({error.strerror}): give --out a folder that can") from None


class InUse(ValueError):
    """Another process trains into the folder."""


@contextlib.contextmanager
def locked(out: Path, *, look: bool = False, wait: bool = False) -> Iterator[None]:
    """One process at a time trains into a folder; the lock ends with the process, however that ends. To `look` only
    says whether one does, and writes nothing; to `wait` refuses nobody."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    if not look:
        out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("r" if look else "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if look else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            file.seek(0)
            who = file.read().strip()
            by = f" (process {who})" if who else ""
            raise InUse(f"{out} is in use by another training{by}: wait for it, or give another --out") from None
        if not look:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


@contextlib.contextmanager
def claimed(claim: Path, cells: set[str], name: str = "") -> Iterator[None]:
    """The lock of a claim on some cells, beside which others may be: one that asks for a cell of another, which is
    being trained, is refused."""
    with locked(claim):
        with locked(claim.parent, wait=True):
            for other in claim.parent.glob("*.claim"):
                if other != claim and cells & set(_lines(other)[1:]) and is_locked(other):
                    shutil.rmtree(claim, ignore_errors=True)
                    raise InUse(f"{claim.parent} has these cells under way in {other.stem}: wait for them")
            (claim / CELLS).write_text("\n".join([name, *sorted(cells)]), encoding="utf-8")
        yield


def claimed_by(claim: Path) -> str:
    """What is trained there, in words, if that is known."""
    return next(iter(_lines(claim)), "")


def _lines(claim: Path) -> list[str]:
    try:
        return (claim / CELLS).read_text(encoding="utf-8").splitlines()
    except OSError:  # it has just ended
        return []


def is_locked(claim: Path) -> bool:
    """Whether somebody trains there."""
    try:
        with locked(claim, look=True):
            return False
    except OSError:  # it has just ended
        return False
    except InUse:
        return True


def plain(config: Config) -> dict[str, Any]:
    """A config as JSON holds it."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    return found


def flat(config: Config) -> dict[str, Any]:
    """Every setting as config.json has it, under a name of its own such as settings.k."""
    return flattened(plain(config))


def flattened(fields: dict[str, Any]) -> dict[str, Any]:
    inner = {f"{k}.{name}": x for k, v in fields.items() if isinstance(v, dict) for name, x in v.items()}
    return {k: v for k, v in fields.items() if not isinstance(v, dict)} | inner


def difference(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names that differ between two flat configs, beside those that may."""
    return [name for name in one | other if name not in FREE and one.get(name) != other.get(name)]


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def write_config(config: Config, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    named = dataclasses.replace(config, imports=modules(config))
    fields = {"format": FORMAT, **plain(named), "provenance": provenance()}
    write_text(out / "config.json", json.dumps({**fields, "sha256": _checksum(fields)}, indent=2) + "\n")


def read_config(out: Path) -> Config:
    """The config a folder was made with."""
    path = out / "config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        said = found.pop("sha256", None)
        if said is not None and said != _checksum(found):
            raise ValueError(
                f"{path} was changed after it was written: put the old one back; `highway-rl resume {out} --steps N`"
                " trains for longer"
            )
        found.pop("provenance", None)
        version = found.pop("format", 1)
        if version > FORMAT:
            raise ValueError(f"{path} has format {version}: install a newer highway-rl")
        config = _read_first(found) if version == 1 else as_config(found)
        return as_then(config, version)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{out} is no training folder, {path.name} is not there: give one that `highway-rl train` wrote"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no training config ({checks.one_line(error)}): put the old one back") from None


def as_config(found: dict[str, Any]) -> Config:
    """A config from what `plain` made of it."""
    for name in ("algos", "imports"):
        found[name] = tuple(found[name])
    return Config(**found)


def as_then(config: Config, version: int) -> Config:
    """The same with what the preset `general` was in an older format: what was trained so goes on so."""
    if version >= FORMAT or preset_name(config.preset, config.task) != "general":
        return config
    then = {name: value for later in range(FORMAT, version, -1) for name, value in BEFORE.get(later, {}).items()}
    return dataclasses.replace(config, settings=then | config.settings)


def as_begun(config: Config, out: Path) -> Config:
    """The same with what the preset was when training began in a folder, as far as the config does not say."""
    begun = read_config(out).settings
    older = {name: value for then in BEFORE.values() for name, value in then.items()}
    then = {name: value for name, value in older.items() if name in begun and begun[name] == value}
    return dataclasses.replace(config, settings=then | config.settings)


def _read_first(found: dict[str, Any]) -> Config:
    """The format before runs were texts: options for all algorithms, and settings in three places."""
    options = ",".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in found.pop("rule").items()
    )
    settings = found.pop("agent") | found.pop("schedule")
    if found.pop("network") != "auto":
        raise ValueError("config.json names a network where it stood before: train it anew")
    steps = settings.pop("steps", None)
    algos = tuple(f"{algo}:{options}" if options else algo for algo in found.pop("algos"))
    return Config(**found, algos=algos, settings=settings, steps=steps, preset="explorer")
