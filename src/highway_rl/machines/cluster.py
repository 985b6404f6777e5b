"""Workers as actors of a Ray cluster. Needs the extra `ray`.

A cluster that is begun here lives on this machine alone: it has no dashboard, and all it listens on is 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from highway_rl import checks
from highway_rl.machines.workers import told

LOOPBACK = "127.0.0.1"
STORE = 512 * 2**20
"""Bytes of memory that a local cluster sets aside for what workers send: values of large models, else next to none."""


def installed() -> None:
    """Refuses where Ray is not there. It is not imported yet: what it reads when it is, is set in `cluster`."""
    if importlib.util.find_spec("ray") is None:
        raise ValueError("executor ray needs a package that is not here: run pip install 'highway-rl[ray]'")


class Actors:
    """One actor a worker."""

    def __init__(self, ray: Any, count: int, options: dict[str, Any]) -> None:
        self.ray, self.count = ray, count
        self.make = ray.remote(**options)(_Actor)
        self.actors = [self.make.remote() for _ in range(count)]

    def submit(self, i: int, work: Callable[..., Any], *given: Any) -> Future[Any]:
        return told(self.actors[i].call.remote(work, *given).future(), (self.ray.exceptions.RayActorError,))

    def revive(self, i: int) -> None:
        self.actors[i] = self.make.remote()


class _Actor:
    """A process that calls what it is given."""

    def call(self, work: Callable[..., Any], *given: Any) -> Any:
        return work(*given)


@contextlib.contextmanager
def cluster(count: int | None, address: str | None) -> Iterator[Actors]:
    """`count` actors on the cluster at `address`, or on one that is begun here and ends with the block. Each takes its
    share of the cluster's GPUs where there are any, else one CPU."""
    if address is None or address.rpartition("/")[2].startswith(f"{LOOPBACK}:"):
        # Ray reads it when it is imported: without it this process has the machine's own address, and listens there
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    installed()
    import ray

    if ray.is_initialized():
        raise ValueError("this process is connected to a Ray cluster already: call ray.shutdown() first")
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "configure_logging": False}
    if address is None:
        found = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        options |= {"address": "local", "num_cpus": count or os.cpu_count(), "include_dashboard": False}
        options |= {"object_store_memory": STORE, "runtime_env": {"env_vars": found}}
    try:
        if address is not None and address != "auto":
            host, _, port = address.rpartition("/")[2].rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()  # Ray would try for minutes
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # what Ray forks becomes another program
            ray.init(**options)
    except (OSError, ValueError) as error:
        why = checks.one_line(error)
        raise ValueError(
            f"no Ray cluster answers at {address} ({why}): give host:port of one, or none; RAY_AUTH_MODE and the token"
            " have to be the cluster's"
        ) from None
    try:
        if address is None and (where := ray.util.get_node_ip_address()) != LOOPBACK:
            raise ValueError(
                f"Ray was imported before and listens on {where}: call highway_rl first, or set"
                " RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before Python starts"
            )
        has = ray.cluster_resources()
        gpus, cpus = has.get("GPU", 0), int(has.get("CPU", 1))
        many = count or int(gpus) or cpus
        share = gpus // many if gpus >= many else gpus / many
        yield Actors(ray, many, {"num_cpus": min(1, cpus / many), "num_gpus": share})
    finally:
        ray.shutdown()
