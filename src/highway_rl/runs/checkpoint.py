"""Checkpoints that survive: written aside and renamed, a checksum for every file, the newest sound one is loaded.

Arrays go through Orbax, everything else through JSON; nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

PREFIX, ASIDE, MANIFEST = "step_", ".writing_", "manifest.json"


class Missing(ValueError):
    """A folder without a checkpoint that could be loaded; `unfit` says why a sound one could not."""

    unfit: str | None = None


def save(
    folder: Path,
    step: int,
    tree: PyTree,
    facts: dict[str, Any],
    *,
    keep: int = 3,
    pinned: Collection[int | None] = (),
) -> Path:
    """Writes `folder/step_<step>`, then removes all but the newest `keep` and the `pinned` ones, and any of later
    steps: a run that is here again had no use for them.

    If the disk is full an OSError is raised and everything written before is still there.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    aside, final = folder / f"{ASIDE}{step:012d}", folder / f"{PREFIX}{step:012d}"
    for old in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(old, ignore_errors=True)
    try:
        arrays = {f"{i:04d}": _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
        with _storage_errors(), _alone() as writer:
            writer.save(aside / "arrays", arrays)
        sums = {str(p.relative_to(aside)): _sum(p) for p in sorted(aside.rglob("*")) if p.is_file()}
        with (aside / MANIFEST).open("w", encoding="utf-8") as file:
            manifest = {"step": step, "facts": facts, "sha256": sums}
            json.dump({**manifest, "itself": _checksum(manifest)}, file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    there = steps(folder)
    later = [x for x in there if x > step]
    for other in later + [x for x in there if x <= step and x not in pinned][:-keep]:
        shutil.rmtree(folder / f"{PREFIX}{other:012d}", ignore_errors=True)
    return final


def _alone() -> Any:
    """Orbax, which waits for no other process of a group."""
    import orbax.checkpoint as ocp

    if jax.process_count() == 1:
        return ocp.StandardCheckpointer()
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(me, {me}, f"process-{me}")
    return ocp.StandardCheckpointer(multiprocessing_options=alone)


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    """Storage that fails as an OSError: Orbax raises a ValueError that begins with a status, and logs tracebacks."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except ValueError as error:
        if not re.match("[A-Z_]+: ", str(error)):
            raise
        full = str(error).startswith("RESOURCE_EXHAUSTED") or os.strerror(errno.ENOSPC) in str(error)
        number = errno.ENOSPC if full else errno.EIO
        raise OSError(number, os.strerror(number) if full else " ".join(str(error).split())) from None
    finally:
        logger.setLevel(level)


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first; whether they are sound is another question."""
    return sorted(int(p.name.removeprefix(PREFIX)) for p in folder.glob(f"{PREFIX}*") if p.is_dir())


def latest(
    folder: Path, fits: Callable[[dict[str, Any]], str | None] = lambda facts: None
) -> tuple[Path, dict[str, Any]]:
    """The newest checkpoint whose checksums hold and whose facts fit, and those facts; warns of each newer one.

    `fits(facts)` says what is wrong with them, or None.
    """
    found, unfit = steps(folder), None
    for step in reversed(found):
        path = folder / f"{PREFIX}{step:012d}"
        problem = damage(path)
        if problem is None:
            facts: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["facts"]
            problem = unfit = fits(facts)
            if problem is None:
                return path, facts
            warnings.warn(f"{path} cannot be used: {problem}", stacklevel=2)
        else:
            warnings.warn(f"{path} is damaged ({problem})", stacklevel=2)
    missing = Missing(f"{folder} holds no sound checkpoint" + (f": none of {len(found)} can be used" if found else ""))
    missing.unfit = unfit
    raise missing


def _checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        said = manifest.pop("itself")
        if said != _checksum(manifest) or f"{PREFIX}{manifest['step']:012d}" != path.name:
            return f"{MANIFEST} does not match its checksum"
        for name, expected in manifest["sha256"].items():
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            if _sum(file) != expected:
                return f"{name} does not match its checksum"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"unreadable manifest: {error}"
    return None


def load(path: Path, like: PyTree) -> PyTree:
    """The arrays of a checkpoint in the structure of `like`, whose leaves may be shapes."""
    leaves, structure = jax.tree.flatten(like)
    wanted = {f"{i:04d}": _description(leaf) for i, leaf in enumerate(leaves)}
    try:
        with _alone() as reader:
            found = reader.restore(path.absolute() / "arrays", wanted)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} was written by other settings or another version: {error}") from None
    return jax.tree.unflatten(structure, [_typed(found[f"{i:04d}"], leaf) for i, leaf in enumerate(leaves)])


def _is_key(leaf: Any) -> bool:
    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _description(leaf: Any) -> np.ndarray:
    shape = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    return np.zeros(shape.shape, shape.dtype)


def _typed(found: Any, leaf: Any) -> Any:
    return jax.random.wrap_key_data(jax.numpy.asarray(found)) if _is_key(leaf) else jax.numpy.asarray(found)


def _sum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
