"""Environments in processes of their own, that step at the same time; for environments that are slow.

Each process is a new Python, which imports what the environment needs and nothing of JAX: one that is forked from a
process that has used JAX may hang. The constructor travels to it by cloudpickle.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from highway_rl.envs.host import prepare
from highway_rl.envs.host.spaces import Acting, Seeing
from highway_rl.envs.host.worlds import Came, Leaves, Watched

START = 60.0
"""Seconds that a process may take to begin and to import what it needs, beside the time for its first reset."""
CHILD = """
import pickle, signal, sys
from multiprocessing.connection import Client
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who began it, and who then closes the pipe
pipe = Client(sys.argv[1], authkey=sys.stdin.buffer.read())
sys.path[:] = pipe.recv()
pickle.loads(pipe.recv_bytes())(pipe)
"""
"""What a process is told on its command line; all else comes through the pipe."""


def work(pipe: Any) -> None:
    """What a process does: steps when it is told to, until the other end is closed; begins anew after an end."""
    env: Any = None
    try:
        env = pickle.loads(pipe.recv_bytes())()
        pipe.send(("ready", None))
        while True:
            what, value = pipe.recv()
            if what == "reset":
                obs, _ = env.reset(seed=value)
                pipe.send(("came", obs))
                continue
            obs, reward, terminated, truncated, _ = env.step(value)
            first, _ = env.reset() if terminated or truncated else (None, None)
            pipe.send(("came", (obs, reward, terminated, truncated, first)))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(("failed", f"it raised {type(error).__name__}: {error}".rstrip(": ")))
    finally:
        with contextlib.suppress(Exception):
            if env is not None:
                env.close()


def _by_value(thing: Any) -> bytes:
    """Pickled so that whoever loads it need not import this package, and with it JAX."""
    mine = [
        module
        for module in (sys.modules[__name__], prepare)
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    ]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(thing))
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)


class Apart(Watched):
    """Environments each in a process; one that says nothing for `timeout` seconds has failed."""

    def __init__(
        self,
        makers: Sequence[Callable[[], gymnasium.Env]],
        seeds: Sequence[int],
        seeing: Seeing,
        acting: Acting,
        name: str,
        timeout: float,
    ) -> None:
        super().__init__(seeing, acting, len(makers), name)
        self.seeds, self.timeout = seeds, timeout
        self.pipes: list[Any] = []
        self.processes: list[subprocess.Popen] = []
        self.listeners: list[Listener] = []
        told = _by_value(work)
        for _ in makers:
            key = os.urandom(16)
            self.listeners.append(Listener(authkey=key))
            command = [sys.executable, "-c", CHILD, str(self.listeners[-1].address)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended: `_connected` says so
                process.stdin.write(key)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            self.processes.append(process)
        until = time.monotonic() + START
        for i, make in enumerate(makers):
            pipe = self._connected(i, until)
            self.pipes.append(pipe)
            pipe.send(sys.path)
            pipe.send_bytes(told)
            pipe.send_bytes(_by_value(make))
        for i in range(self.count):
            self._answer(i, time.monotonic() + START + timeout)

    def _connected(self, i: int, until: float) -> Any:
        """The pipe to process i; a process that ends or says nothing before it has one has failed."""
        found: list[Any] = []

        def accept() -> None:
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                found.append(self.listeners[i].accept())

        waiting = threading.Thread(target=accept, daemon=True)
        waiting.start()
        while waiting.is_alive() and time.monotonic() < until and self.processes[i].poll() is None:
            waiting.join(0.02)
        waiting.join(0.2)  # one that has just ended may have said something first
        if found:
            self.listeners[i].close()
            return found[0]
        code = self.processes[i].poll()
        self.close()
        raise self.failed(
            i,
            f"its process did not begin within {START:g} s"
            if code is None
            else f"its process ended with exit code {code}",
        )

    def _answer(self, i: int, until: float) -> Any:
        """What process i says, if it says so in time."""
        try:
            if not self.pipes[i].poll(max(until - time.monotonic(), 0.0)):
                self.processes[i].kill()
                raise self.failed(i, f"it said nothing for {self.timeout:g} seconds; a larger timeout waits longer")
            kind, value = self.pipes[i].recv()
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[i].wait(5.0)
            raise self.failed(i, f"its process ended with exit code {self.processes[i].returncode}") from None
        if kind == "failed":
            raise self.failed(i, value)
        return value

    def _tell(self, i: int, what: str, value: Any) -> None:
        with contextlib.suppress(OSError):  # the answer will say what is wrong
            self.pipes[i].send((what, value))

    def reset(self) -> Leaves:
        for i, seed in enumerate(self.seeds):
            self._tell(i, "reset", seed)
        rows, until = self.empty(), time.monotonic() + self.timeout
        for i in range(self.count):
            self.put(rows, i, self._answer(i, until))
        return rows

    def send(self, actions: np.ndarray) -> None:
        for i, action in enumerate(actions):
            self._tell(i, "step", self.acting.action(int(action)))

    def receive(self) -> Came:
        after, here = self.empty(), self.empty()
        reward, ended = np.zeros(self.count, np.float32), np.zeros((2, self.count), bool)
        until = time.monotonic() + self.timeout
        for i in range(self.count):
            obs, pay, terminated, truncated, first = self._answer(i, until)
            self.put(after, i, obs)
            self.put(here, i, obs if first is None else first)
            reward[i], ended[0, i], ended[1, i] = self.paid(i, pay), bool(terminated), bool(truncated)
        return Came(after, here, reward, ended[0], ended[1] & ~ended[0], np.ones(self.count, bool))

    def close(self) -> None:
        for end in (*self.pipes, *self.listeners):
            end.close()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            process.kill()
            process.wait()
