"""Workers: so many places that each do one thing at a time, called by number.

    workers("local", 1)      this process
    workers("local", 4)      four processes of this machine
    workers("ray", 4)        four actors of a Ray cluster: a local one, or that of an address

`submit(i, function, …)` gives a future. A worker that died gives `Died`; `revive(i)` puts a new one, which knows
nothing, in its place.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import connection
from typing import Any, Protocol

from highway_rl import checks

EXECUTORS = ("local", "ray")


class Died(RuntimeError):
    """A worker's process ended in the middle of its work."""


class Workers(Protocol):
    """So many workers."""

    count: int

    def submit(self, i: int, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """Has the i-th worker do it."""
        ...

    def revive(self, i: int) -> None:
        """A new process in the place of one that died."""
        ...


class Here:
    """One worker: this process, which does its work before it answers."""

    count = 1

    def submit(self, i: int, work: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given))
        except Exception as error:
            done.set_exception(error)
        return done

    def revive(self, i: int) -> None:
        """It does not die without us."""


here = Here()


class Processes:
    """Processes of this machine, each with an environment of its own: `environments` are variables by worker."""

    def __init__(self, count: int, environments: Callable[[int], Mapping[str, str]] = lambda i: {}) -> None:
        self.count, self.environments = count, environments
        self.words: list[Any] = [None] * count  # ends of pipes: closed, they end their process
        self.pools = [self._pool(i) for i in range(count)]

    def _pool(self, i: int) -> ProcessPoolExecutor:
        """A pool of one: where several share a pool, the death of one ends them all."""
        spawn = multiprocessing.get_context("spawn")
        heard, self.words[i] = spawn.Pipe(duplex=False)
        return ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(dict(self.environments(i)), heard))

    def submit(self, i: int, work: Callable[..., Any], *given: Any) -> Future[Any]:
        try:
            return told(self.pools[i].submit(work, *given), (concurrent.futures.process.BrokenProcessPool,))
        except concurrent.futures.process.BrokenProcessPool as error:  # it died while it had nothing to do
            return failed(Died(str(error)))

    def revive(self, i: int) -> None:
        self.words[i].close()
        self.pools[i].shutdown(wait=False)
        self.pools[i] = self._pool(i)

    def close(self) -> None:
        """Ends them, also in the middle of their work: who leaves does not wait for it."""
        for word, pool in zip(self.words, self.pools, strict=True):
            word.close()
            pool.shutdown()


def _begin(variables: dict[str, str], heard: Any) -> None:
    """In a new process, before JAX starts. It ends when the one that began it has ended, however that was, or says
    so."""
    os.environ.update(variables)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=([parent.sentinel, heard],), daemon=True).start()


def _end_with(ends: list[Any]) -> None:
    connection.wait(ends)
    os._exit(1)


def failed(error: BaseException) -> Future[Any]:
    """A future that has nothing but this error."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def told(future: Future[Any], deaths: tuple[type[BaseException], ...]) -> Future[Any]:
    """The same future with its error as it was raised, and `Died` where that is one of `deaths`."""
    out: Future[Any] = Future()

    def pass_on(done: Future[Any]) -> None:
        error = Died("it was never begun") if done.cancelled() else done.exception()
        if error is None:
            out.set_result(done.result())
        elif isinstance(error, deaths):
            out.set_exception(Died(checks.one_line(error)))
        else:
            cause = getattr(error, "cause", None)  # Ray wraps what was raised
            out.set_exception(cause if isinstance(cause, Exception) else error)

    future.add_done_callback(pass_on)
    return out


def check_workers(executor: str, count: int | None, address: str | None) -> None:
    """Refuses what `workers` cannot begin, before anything else is done."""
    checks.choice("executor", executor, EXECUTORS)
    if count is not None:
        checks.whole("workers", count, 1)
    if address is not None and executor != "ray":
        raise checks.refusal("address", address, "it with executor ray, or leave it out")
    if executor == "ray":
        from highway_rl.machines.cluster import installed

        installed()


@contextlib.contextmanager
def workers(
    executor: str = "local",
    count: int | None = None,
    *,
    address: str | None = None,
    environments: Callable[[int], Mapping[str, str]] = lambda i: {},
) -> Iterator[Workers]:
    """Workers of an executor in EXECUTORS, until the block is left; a count of None is one here, and all that the
    cluster has there. `environments` are variables for processes of this machine."""
    check_workers(executor, count, address)
    if executor == "ray":
        from highway_rl.machines.cluster import cluster

        with cluster(count, address) as found:
            yield found
    elif count is None or count == 1:
        yield here
    else:
        processes = Processes(count, environments)
        try:
            yield processes
        finally:
            processes.close()
