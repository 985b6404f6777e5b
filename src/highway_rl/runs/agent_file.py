"""A trained agent as one file: its networks as safetensors, and everything else as JSON in their metadata.

The checksum covers every byte of the file, itself read as zeros, and is looked at before anything else is believed.
Nothing is ever unpickled. What is imported are the modules that a config names, as for a training folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PyTree

from highway_rl import checks, registry
from highway_rl.deep import dqn
from highway_rl.deep.dqn import DQN
from highway_rl.records.provenance import VERSION
from highway_rl.runs import folder, text
from highway_rl.runs.config import Config, build, modules
from highway_rl.runs.evaluate import as_json
from highway_rl.runs.presets import preset_name
from highway_rl.runs.spec_json import spec_from_json, spec_to_json
from highway_rl.types import Env, Spec

FORMAT = 2
KEY, ZEROS = "highway-rl", b"0" * 64
BROKEN = (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""What content raises that is JSON and yet not ours."""


KINDS = {"label": str, "seed": int, "step": int, "score": (int, float, type(None))}
KINDS |= {"metrics": dict, "spec": dict, "config": dict}
"""What the facts of a file are."""


class Kept(NamedTuple):
    """What a file keeps of an agent, in the order in which `TrainedAgent` takes it."""

    config: Config
    spec: Spec
    agent: DQN
    params: PyTree
    label: str
    seed: int
    step: int
    score: float | None
    metrics: dict[str, Any]


def write(path: Path, kept: Kept) -> Path:
    """The agent as a file that is there whole or not at all; the same agent makes the same bytes."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give a file, such as {path / 'agent.safetensors'}")
    preset = preset_name(kept.config.preset, kept.config.task)
    config = dataclasses.replace(kept.config, imports=modules(kept.config), preset=preset)
    facts = {
        "sha256": ZEROS.decode(),  # first, so that its place is found
        "format": FORMAT,
        "version": VERSION,
        "label": kept.label,
        "seed": int(kept.seed),
        "step": int(kept.step),
        **json.loads(as_json({"score": kept.score, "metrics": kept.metrics})),
        "preset": preset,
        "spec": spec_to_json(kept.spec),
        "config": folder.plain(config),
    }
    metadata = {KEY: json.dumps(facts, separators=(",", ":"))}
    content = safetensors.numpy.save(_named(jax.device_get(kept.params)), metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replaced(path, content.replace(ZEROS, hashlib.sha256(content).hexdigest().encode(), 1))
    return path


def read(path: Path, imports: Collection[str] = ()) -> Kept:
    """The agent in a file, on whatever device is used here. Its environment need not exist; its algorithm and network
    have to, in `imports` where they are not this package's."""
    content = path.read_bytes()
    facts = _facts(path, content)
    try:
        with registry.of_a_file(imports):
            return _kept(path, facts, safetensors.deserialize(content))
    except (*BROKEN, safetensors.SafetensorError) as error:
        raise ValueError(
            f"{path} is no agent that version {VERSION} knows ({_short(error)}): give a file that agent.save wrote, or"
            " use the version that wrote it"
        ) from None


def _facts(path: Path, content: bytes) -> dict[str, Any]:
    """What the metadata say, once the checksum holds."""
    try:
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size])["__metadata__"]
        facts: dict[str, Any] = json.loads(metadata[KEY])
        version, said = facts["format"], facts["sha256"].encode()
        newer = type(version) is int and version > FORMAT
    except (ValueError, *BROKEN):
        raise ValueError(
            f"{path} is no agent, or a damaged one: give a file that agent.save wrote, or a sound copy of it"
        ) from None
    if newer:
        raise ValueError(f"{path} has format {version}: install a newer highway-rl")
    if len(said) != len(ZEROS) or hashlib.sha256(content.replace(said, ZEROS, 1)).hexdigest().encode() != said:
        raise ValueError(f"{path} is damaged, its checksum does not hold: give a sound copy, or save the agent again")
    return facts


def _kept(path: Path, facts: dict[str, Any], tensors: Any) -> Kept:
    for name, kind in KINDS.items():
        if not isinstance(facts[name], kind):  # type: ignore[arg-type]
            raise TypeError(f"{name} is a {type(facts[name]).__name__}")
    config = folder.as_config(facts["config"])
    config = folder.as_then(config, 2) if facts["format"] < 2 else config
    missing = [error for module in config.imports if (error := _missing(module))]
    try:
        spec = spec_from_json(facts["spec"], config.imports)
        wanted = text.parse(facts["label"])
        if len(wanted) != 1:
            raise checks.refusal("label", facts["label"], "the text of one run")
        agent, _ = build(config, Env(spec, _no_env, _no_env), wanted[0])
    except ValueError:
        for error in missing:  # what it needs may be in there
            foreign = [module for module in config.imports if not registry.trusted(module)]
            raise (registry.mistrusted(foreign) if foreign else error) from None
        raise
    shapes = jax.eval_shape(lambda: dqn.start(agent, spec, jax.random.key(0)).params)
    params = _params(path, shapes, dict(tensors))
    seed, step = (checks.whole(name, facts[name], 0) for name in ("seed", "step"))
    return Kept(config, spec, agent, params, wanted[0].label, seed, step, facts["score"], facts["metrics"])


def _missing(module: str) -> ValueError | None:
    """Why a module cannot be imported. That of an environment may be gone, and the agent acts all the same."""
    try:
        registry.bring(module)
    except ValueError as error:
        return error
    return None


def _no_env(*_: Any) -> Any:
    raise ValueError("the environment is not in the file: give evaluate one")


def _named(params: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a tree by their places in it, such as large.0 and small."""
    found, _ = jax.tree_util.tree_flatten_with_path(params)
    return {_name(place): np.ascontiguousarray(leaf) for place, leaf in found}


def _name(place: Any) -> str:
    return jax.tree_util.keystr(place, simple=True, separator=".")


def _params(path: Path, shapes: PyTree, tensors: dict[str, dict[str, Any]]) -> PyTree:
    """The arrays in the structure that the agent's networks have here."""
    found, structure = jax.tree_util.tree_flatten_with_path(shapes)
    wanted = {_name(place): leaf for place, leaf in found}
    here = {name: tuple(tensor["shape"]) for name, tensor in tensors.items()}
    sizes = {name: len(tensor["data"]) for name, tensor in tensors.items()}
    if here != {k: x.shape for k, x in wanted.items()} or sizes != {k: _bytes(x) for k, x in wanted.items()}:
        raise ValueError(
            f"{path} holds networks {_shapes(here)}, but its algorithm makes"
            f" {_shapes({k: x.shape for k, x in wanted.items()})}: use the version and modules it was saved with"
        )
    arrays = [np.frombuffer(tensors[k]["data"], x.dtype).reshape(x.shape) for k, x in wanted.items()]
    return jax.tree.unflatten(structure, [jnp.asarray(x) for x in arrays])


def _bytes(leaf: Any) -> int:
    return int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize


def _shapes(found: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in sorted(found.items())) or "none"


def _short(error: BaseException) -> str:
    return checks.one_line(f"{type(error).__name__}: {error}")[:200]


def _replaced(path: Path, content: bytes) -> None:
    """Written aside and renamed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
