"""The command that looks at an installation: what is here, what is not, what to type, and how fast it trains."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from highway_rl.cli.console import one_line, progress, table


class Part(NamedTuple):
    """A package: its name, the module to import, what it is for, and what to type where it is not."""

    name: str
    module: str
    serves: str
    add: str


def _core(name: str, serves: str, module: str = "") -> Part:
    return Part(name, module or name, serves, f"pip install {name}")


CORE = (
    _core("highway-rl", "this package", "highway_rl"),
    _core("jax", "all computing"),
    _core("jaxlib", "jax's compiler"),
    _core("numpy", "arrays"),
    _core("scipy", "sparse models"),
    _core("equinox", "networks"),
    _core("optax", "optimisers"),
    _core("gymnasium", "environments of others"),
    _core("orbax-checkpoint", "checkpoints", "orbax.checkpoint"),
    _core("safetensors", "agents as files"),
    _core("rich", "tables like this one"),
)
OPTIONAL = (
    Part("matplotlib", "matplotlib", "figures", 'pip install "highway-rl[plots]"'),
    Part("numba", "numba", "compiled passes of `solve`", 'pip install "highway-rl[fast]"'),
    Part("tensorboard", "tensorboard", "curves in TensorBoard", 'pip install "highway-rl[tensorboard]"'),
    Part("ray", "ray", "sweeps on a cluster", 'pip install "highway-rl[ray]"'),
    Part("optuna", "optuna", "`highway-rl tune`", 'pip install "highway-rl[tune]"'),
    Part("wandb", "wandb", "curves in Weights & Biases", 'pip install "highway-rl[wandb]"'),
    Part("gymnasium[box2d]", "Box2D", "LunarLander-v3 and others", 'pip install "gymnasium[box2d]"'),
    Part("minigrid", "minigrid", "MiniGrid-…, BabyAI-…", "pip install minigrid"),
    Part("ale-py", "ale_py", "Atari, ALE/…", "pip install ale-py"),
    Part("stable-baselines3", "stable_baselines3", "benchmarks/host.py, dqn_cpu.py", "pip install stable-baselines3"),
)
CUDA = 'pip install "highway-rl[cuda]"'
TIMED = {"key-door": "all of it compiled", "CartPole-v1": "through Gymnasium"}
"""Tasks whose training is timed, and how they step."""
PATIENCE = 120.0
"""Seconds that the imports of all packages may take."""

CHILD = """
import importlib, importlib.metadata, json, sys, warnings
warnings.simplefilter("ignore")
out, sys.stdout = sys.stdout, sys.stderr
for name, module in json.loads(sys.argv[1]):
    found = {"version": "", "why": ""}
    try:
        there = importlib.import_module(module)
        try:
            found["version"] = str(getattr(there, "__version__", "") or importlib.metadata.version(name.split("[")[0]))
        except importlib.metadata.PackageNotFoundError:
            found["version"] = "unknown"
    except ModuleNotFoundError as error:
        missing = error.name in (module, module.split(".")[0])
        found["why"] = "not here" if missing else f"{type(error).__name__}: {error}"
    except BaseException as error:
        found["why"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found), file=out, flush=True)
"""
"""Imports packages one after the other, in a process of its own: one that crashes takes nothing else with it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor:
    """Look at this installation: versions, device, optional packages with the line that adds each, speed of training.

    Send what it prints along with a question. Packages are imported in another process, so that one that is broken is
    reported, with why, and stops nothing. Speed is environment steps a second of plain DQN, each step with its update,
    once everything is compiled: one small task that is compiled as a whole, and CartPole-v1, which Gymnasium steps.
    Two seconds of that are timed, after compiling, which takes 20 to 40 on two cores (--quick leaves it all out).

    Exit code 0: the core works. 1: it does not, and the last line says what to mend.

    highway-rl doctor

    highway-rl doctor --quick --json
    """

    quick: bool = False
    """Leave the speed of training out."""
    json: bool = False
    """Print the same as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        with progress("looking", unit="error") if _rich() else contextlib.nullcontext():
            found = examined(CORE, OPTIONAL)
            found["device"] = device()
            if not self.quick:
                found["speed"] = [speed(task) for task in TIMED]
        found["broken"] = broken(found)
        if self.json:
            print(json.dumps(found, indent=2))
        else:
            show(found)
        if found["broken"]:
            raise SystemExit(1)


def examined(core: Sequence[Part], optional: Sequence[Part]) -> dict[str, Any]:
    """What is installed of these packages, each with its version or why it is not usable, and what to type."""
    rows = [part._asdict() | what for part, what in zip((*core, *optional), imports((*core, *optional)), strict=True)]
    return {"python": platform.python_version(), "core": rows[: len(core)], "optional": rows[len(core) :]}


def imports(parts: Sequence[Part]) -> Iterator[dict[str, str]]:
    """For each package its version, or why it cannot be imported."""
    left, end = list(parts), time.monotonic() + PATIENCE
    while left:
        names = json.dumps([(part.name, part.module) for part in left])
        command = [sys.executable, "-c", CHILD, names]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            wait = max(end - time.monotonic(), 1.0)
            done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=wait)
            said, why = done.stdout, f"Python ended with exit code {done.returncode} while it was imported"
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            why = f"its import took longer than {wait:.0f} seconds"
        except OSError as error:
            said, why = "", f"no other Python could be started: {error}"
        rows = [json.loads(line) for line in said.splitlines()]
        yield from ({key: one_line(value) for key, value in row.items()} for row in rows)
        if len(rows) < len(left):
            yield {"version": "", "why": one_line(why)}
        left = left[len(rows) + 1 :]


def device() -> dict[str, Any]:
    """What jax computes on, and how much memory is free there; `why` where it computes on nothing."""
    try:
        import jax

        first = jax.devices()[0]
        gpu = first.platform == "gpu"
        name = f"{len(jax.devices())} × {first.device_kind}" if gpu else f"{first.platform.upper()}, {_cores()} cores"
        found: dict[str, Any] = {"kind": first.platform, "name": name, "why": "", "add": ""}
        found |= {"memory": _memory(first), "free": _free()}
    except Exception as error:
        return {"kind": "none", "name": "", "why": _said(error), "add": CUDA if _nvidia() else ""}
    if first.platform == "cpu" and _nvidia():
        found |= {"why": "there is an NVIDIA GPU, and jax does not use it", "add": CUDA}
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _nvidia() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def _memory(where: Any) -> float | None:
    """Bytes that the device has, as far as it says."""
    if where.platform != "cpu":
        return (where.memory_stats() or {}).get("bytes_limit")
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return None


def _free() -> float | None:
    """Bytes that are free there; None too where a package that the question needs is broken."""
    try:
        from highway_rl.runs.estimate import free_memory

        return free_memory()
    except Exception:
        return None


def speed(task: str, seconds: float = 1.0) -> dict[str, Any]:
    """Environment steps a second of DQN on a task, each with its update, once all is compiled."""
    found: dict[str, Any] = {"task": task, "steps": TIMED.get(task, ""), "per_second": None, "compiling": None}
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            go, steps = _ready(task)
            found["compiling"] = round(time.perf_counter() - begun, 1)
            periods, begun = 0, time.perf_counter()
            while (passed := time.perf_counter() - begun) < seconds:
                go()
                periods += 1
    except Exception as error:
        return found | {"why": _said(error)}
    return found | {"per_second": round(periods * steps / passed), "why": ""}


def _ready(task: str) -> tuple[Any, int]:
    """A function that trains for one more period, compiled and under way, and the steps of a period."""
    import jax
    import jax.numpy as jnp

    from highway_rl.runs import Config, setup

    small = {"network": "mlp", "k": 1, "capacity": 5_000, "start": 250, "refresh": 250}
    program = setup(Config(task, ("dqn",), steps=1_000_000, preset="general", settings=small)).programs[0]
    compiled, state, period = program.compiled(), program.start()(), 0

    def go() -> None:
        nonlocal state, period
        state, _ = jax.block_until_ready(compiled(state, jnp.int32(period), jnp.int32(0), jnp.bool_(False)))
        period += 1

    for _ in range(3):  # one at random, two that learn
        go()
    return go, program.schedule.refresh


def _rich() -> bool:
    """Whether tables can be drawn."""
    try:
        import rich.progress
        import rich.table

        return bool(rich.progress and rich.table)
    except Exception:
        return False


def _said(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}")[:300]


def broken(found: dict[str, Any]) -> list[str]:
    """What keeps the core from working, one sentence each."""
    faults = [f"{row['name']}: {row['why']}; {row['add']}" for row in found["core"] if row["why"]]
    if found["device"]["kind"] == "none":
        faults.append(f"jax has no device: {found['device']['why']}")
    return faults + [f"training on {row['task']}: {row['why']}" for row in found.get("speed", []) if row["why"]]


def show(found: dict[str, Any]) -> None:
    """Prints all of it. What is to be typed stands outside the table, where no line is broken."""
    parts = [*found["core"], *found["optional"]]
    rows = [("Python", found["python"], platform.platform(), "")]
    rows += [(row["name"], row["version"] or "–", row["serves"], row["why"]) for row in parts]
    if _rich():
        from rich.markup import escape

        table(("package", "version", "for", "what is wrong"), [tuple(map(escape, row)) for row in rows])
    else:
        print("\n".join("  ".join(filter(None, row)) for row in rows))
    what = found["device"]
    memory = [
        f"{what[key] / 1e9:.1f} GB {word}" for key, word in (("memory", "memory"), ("free", "free")) if what.get(key)
    ]
    print("device: " + ", ".join(filter(None, [what["name"], *memory, what["why"]])))
    for row in found.get("speed", []):
        said = row["why"] or f"{row['per_second']:,} training steps a second (compiling took {row['compiling']} s)"
        print(f"speed: {row['task']}, {row['steps']}: {said}")
    lines = {row["add"]: row["serves"] for row in found["optional"] if row["why"]}
    lines |= {what["add"]: "the GPU"} if what["add"] else {}
    if lines:
        print("to add what is not here, if you want it:")
        width = max(map(len, lines))
        print("\n".join(f"  {add:{width}}  # {serves}" for add, serves in lines.items()))
    faults = found["broken"]
    print("the core works" if not faults else "the core does not work: " + "; ".join(faults))
