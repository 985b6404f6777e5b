"""How much memory and time runs will take, said before anything is compiled: rough, and on the safe side."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.core.backup import TO_END
from highway_rl.deep.dqn import DQN, widened
from highway_rl.deep.refresh import looks_everywhere
from highway_rl.deep.schedule import Schedule
from highway_rl.runs.programs import shape, unplayed
from highway_rl.types import Env, HostEnv, Spec

BYTES_A_ROW = 250
"""What a refresh holds for each row of the store beside the store itself; measured on 60 runs of two games."""
FLOPS_OF_A_CORE, FLOPS_OF_A_GPU = 8e9, 1.2e13
LEAST_SECONDS = {"cpu": 5e-5, "gpu": 4e-5}
"""Of a step, however small the network."""


class Estimate(NamedTuple):
    """Bytes held at once, and seconds of all programs one after the other."""

    memory: float
    seconds: float


def estimate(env: Env | HostEnv, kinds: Sequence[tuple[str, DQN, Schedule]], seeds: int) -> Estimate:
    """For `seeds` runs of each kind."""
    memory: dict[object, float] = {}  # by program: they come one after the other
    seconds, slowest = 0.0, 0.0
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    speed = FLOPS_OF_A_CORE * (os.cpu_count() or 1) if platform == "cpu" else FLOPS_OF_A_GPU
    for _, agent, schedule in kinds:
        state = jax.eval_shape(lambda a=agent, s=schedule: unplayed(env, a, s, jax.random.key(0)))
        held = sum(np.prod(x.shape) * _bytes(x.dtype) for x in jax.tree.leaves(state))
        program = shape(agent, schedule)
        memory[program] = memory.get(program, 0.0) + seeds * (held + BYTES_A_ROW * schedule.capacity)
        each = forward(agent, env.spec)
        updates = 3 * agent.batch_size * schedule.updates_per_step + agent.num_networks
        refreshes = agent.num_networks * refreshed(agent, schedule) / schedule.refresh
        seconds += schedule.steps * seeds * each * (updates + refreshes) / speed
        slowest = max(slowest, schedule.steps * LEAST_SECONDS[platform])
    return Estimate(max(memory.values()), max(seconds, slowest))


def refreshed(agent: DQN, schedule: Schedule) -> float:
    """Rows of the store that a refresh values, on average: of those that are there, the ones that the returns of the
    coming period's batches end in, at most one for each depth."""
    full, steps = schedule.capacity, max(schedule.steps, 1)
    rows = steps / 2 if steps < full else full - full**2 / (2 * steps)
    if looks_everywhere(agent):
        return rows
    depths = max(len({n for n in rule.backup.depths if n < TO_END} | {1}) for rule in agent.rules)
    drawn = agent.batch_size * schedule.updates_per_step * schedule.refresh
    return min(rows, depths * rows * -math.expm1(-drawn / rows))


def _bytes(dtype: Any) -> int:
    return 8 if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key) else jnp.dtype(dtype).itemsize


def forward(agent: DQN, spec: Spec) -> float:
    """Multiplications and additions of one observation's way through one network."""

    shapes = eqx.filter_eval_shape(agent.make_network, widened(agent, spec), jax.random.key(0))
    arrays, rest = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    try:
        lowered = jax.jit(lambda arrays, obs: eqx.combine(arrays, rest)(obs)).lower(arrays, spec.observation)
        found: Any = lowered.cost_analysis()
        return float((found[0] if isinstance(found, list) else found)["flops"])
    except (KeyError, TypeError, NotImplementedError, RuntimeError):  # a device that does not say
        return 1e6


def free_memory() -> float | None:
    """Bytes that a program may still take on the device, or None where nobody says."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [1024 * float(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
        limit = Path("/sys/fs/cgroup/memory.max")
        used = Path("/sys/fs/cgroup/memory.current")
        if limit.exists() and limit.read_text().strip().isdigit():
            found.append(float(limit.read_text()) - float(used.read_text()))
    except (OSError, ValueError, IndexError):
        pass
    return min(found) if found else None


def check_memory(need: Estimate, devices: int = 1) -> None:
    """Refuses what cannot fit, spread over so many devices; processors share one memory."""
    free = free_memory()
    each = need.memory / (1 if jax.default_backend() == "cpu" else devices)
    if free is not None and each > free:
        raise ValueError(
            f"these runs need about {gigabytes(each)} of memory and {gigabytes(free)} are free: give fewer"
            " seeds or algorithms at a time, or a smaller capacity"
        )


def warn_short(schedule: Schedule) -> None:
    """Says that nothing will be learned."""
    if schedule.steps <= schedule.start:
        warnings.warn(
            f"steps={schedule.steps} end before learning begins at start={schedule.start}: give more steps, or a"
            " smaller start",
            stacklevel=5,
        )


def gigabytes(size: float) -> str:
    """
    >>> gigabytes(2.5e9), gigabytes(3e6)
    ('2.5 GB', '0.003 GB')
    """
    return f"{size / 1e9:,.3g} GB"
