"""Processes that run one program together, on the devices of all: a group of `jax.distributed`.

A batch system that starts the same command several times (Slurm, MPI) is found by JAX. Else three variables say it:
JAX_COORDINATOR_ADDRESS=host:port of the first process, JAX_NUM_PROCESSES, JAX_PROCESS_ID from 0 on. The first process
leads: it decides and writes; the others compute.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from highway_rl import checks

VARIABLES = {
    "coordinator_address": "JAX_COORDINATOR_ADDRESS",
    "num_processes": "JAX_NUM_PROCESSES",
    "process_id": "JAX_PROCESS_ID",
}
PATIENCE = 30
"""Seconds after which a process that says nothing is taken for dead; all others then end."""


def join() -> int:
    """Makes this process one of its group, before JAX computes anything; how many they are."""
    if jax.distributed.is_initialized():
        return jax.process_count()
    found = {name: os.environ[variable] for name, variable in VARIABLES.items() if variable in os.environ}
    given: dict[str, Any] = {}
    try:
        if len(found) == len(VARIABLES):
            where = found["coordinator_address"]
            given = {name: int(text) for name, text in found.items() if name != "coordinator_address"}
            given |= {"coordinator_address": where, "coordinator_bind_address": where, "local_device_ids": _local()}
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(**given, heartbeat_timeout_seconds=PATIENCE, shutdown_timeout_seconds=PATIENCE)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"no group of processes is found ({checks.one_line(error)}): run the command with srun or mpirun, or set"
            f" {', '.join(VARIABLES.values())} for each process"
        ) from None
    with _aside():
        share()
    return jax.process_count()


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """What libraries say on standard output, where a command may write JSON, goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _local() -> list[int] | None:
    given = os.environ.get("JAX_LOCAL_DEVICE_IDS")
    return None if given is None else [int(word) for word in given.split(",")]


@contextlib.contextmanager
def led() -> Iterator[None]:
    """Joins the group. When the block of the process that leads has ended, the others hear None; when that or another
    one is interrupted, all end."""
    join()
    try:
        yield
    except Exception:
        if leads():
            share(None)
        raise
    if leads():
        share(None)


def several() -> bool:
    """Whether this process is one of a group."""
    return jax.process_count() > 1


def leads() -> bool:
    """Whether this process decides and writes: the first of its group, or one without a group."""
    return jax.process_index() == 0


def share(value: Any = None) -> Any:
    """What the process that leads gives, in all of the group; each has to ask at the same point."""
    from jax.experimental import multihost_utils

    if not several():
        return value
    sent = np.frombuffer(pickle.dumps(value), np.uint8) if leads() else np.zeros(0, np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(sent.size)))
    padded = sent if leads() else np.zeros(size, np.uint8)
    return pickle.loads(multihost_utils.broadcast_one_to_all(padded).tobytes())
