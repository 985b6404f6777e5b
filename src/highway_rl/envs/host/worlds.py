"""Worlds: several environments of one kind that step together on the host, whatever form Gymnasium gives them.

Every form answers alike: `send` so many actions, `receive` what came of them, as arrays by environment:

    after   the observation that truly followed
    here    the one to act on next: of the next episode where this one ended
    real    false where no step was made: a vector environment in mode NEXT_STEP begins an episode by a call of its own
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from highway_rl import checks
from highway_rl.envs.host.spaces import Acting, NoObservation, Seeing, described

Leaves = list[np.ndarray]
SIGNS = ("keyword argument 'seed'", "unpack (expected 5, got 4)", "unpack (expected 2")
OLD = (
    "; so did gym's environments before 0.26: let reset(*, seed=None, options=None) return (obs, info) and step(action)"
    " (obs, reward, terminated, truncated, info), or install shimmy and put shimmy.GymV21CompatibilityV0(env=…) around"
)
"""What is said of an environment whose reset or step is of the old kind, and how that is known."""


class Failed(RuntimeError):
    """An environment that cannot go on; the message says which, and what came."""


class Came(NamedTuple):
    """What came of one step, by environment; observations as lists of arrays, one for each leaf."""

    after: Leaves
    here: Leaves
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    real: np.ndarray


class Watched:
    """What all forms share: room for what comes, and a look at whether it may come."""

    def __init__(self, seeing: Seeing, acting: Acting, count: int, name: str) -> None:
        self.seeing, self.acting, self.count, self.name = seeing, acting, count, name
        self.warned = False

    def empty(self) -> Leaves:
        import jax

        return [np.zeros((self.count, *x.shape), x.dtype) for x in jax.tree.leaves(self.seeing.like)]

    def put(self, rows: Leaves, i: int, obs: Any) -> None:
        """An observation of environment i into its row."""
        try:
            found = self.seeing.leaves(obs)
        except NoObservation as error:
            raise self.failed(i, str(error)) from None
        for row, leaf, bounds in zip(rows, found, self.seeing.bounds, strict=True):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                raise self.failed(i, f"obs is {described(obs)} with what is no number")
            if bounds is not None and not self.warned and not ((leaf >= bounds[0]) & (leaf <= bounds[1])).all():
                self.warned = True
                warnings.warn(
                    f"{self.name}, environment {i}: {np.asarray(obs).tolist() if leaf.size < 20 else described(obs)} is"
                    " outside its observation space; it is used as it is",
                    stacklevel=2,
                )
            row[i] = leaf

    def paid(self, i: int, reward: Any) -> float:
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise self.failed(i, f"its reward is {described(reward)}") from None
        if not np.isfinite(number):
            raise self.failed(i, f"its reward is {number}")
        return number

    def failed(self, i: int, what: str) -> Failed:
        more = OLD if any(sign in what for sign in SIGNS) else ""
        return Failed(f"{self.name}, environment {i} of {self.count}: {checks.one_line(what)}{more}")


def raised(error: BaseException) -> str:
    """An error as one line: its kind, and what it says."""
    return checks.one_line(f"it raised {type(error).__name__}: {error}").rstrip(": ")


IN_USE: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Environments that step in this process, without their wrappers."""


def taken(env: Any, name: str) -> Any:
    """An environment, or a vector of them, that nobody else steps: two that are one object would end each other's
    episodes."""
    once(IN_USE, env, name)
    return env


def left(env: Any) -> None:
    """Closes what was `taken`."""
    IN_USE.pop(id(getattr(env, "unwrapped", env)), None)
    env.close()


def once(seen: weakref.WeakValueDictionary[int, Any], env: Any, name: str | None = None) -> None:
    """Remembers an environment, without its wrappers, for as long as somebody has it; with a name it is refused if it
    was there already."""
    inner = getattr(env, "unwrapped", env)
    if name is not None and id(inner) in seen:
        what = type(inner).__name__
        raise ValueError(f"{name} made the same {what} twice: give a function that makes a new one at each call")
    with contextlib.suppress(TypeError):  # of some classes nobody can tell whether the object is still there
        seen[id(inner)] = inner


class Here(Watched):
    """Environments in this process, one after the other."""

    def __init__(
        self,
        makers: Sequence[Callable[[], gymnasium.Env]],
        seeds: Sequence[int],
        seeing: Seeing,
        acting: Acting,
        name: str,
    ) -> None:
        super().__init__(seeing, acting, len(makers), name)
        self.envs: list[gymnasium.Env] = []
        try:
            for make in makers:
                self.envs.append(taken(make(), name))
        except BaseException:
            self.close()
            raise
        self.seeds: list[int | None] = list(seeds)
        self.actions: Any = None

    def reset(self) -> Leaves:
        rows = self.empty()
        for i in range(self.count):
            self._begin(rows, i)
        return rows

    def _begin(self, rows: Leaves, i: int) -> None:
        seed, self.seeds[i] = self.seeds[i], None
        try:
            obs, _ = self.envs[i].reset(seed=seed)
        except (Exception, SystemExit) as error:
            raise self.failed(i, f"at its reset {raised(error)}") from error
        self.put(rows, i, obs)

    def send(self, actions: np.ndarray) -> None:
        self.actions = actions

    def receive(self) -> Came:
        after, here = self.empty(), self.empty()
        reward, ended = np.zeros(self.count, np.float32), np.zeros((2, self.count), bool)
        for i, env in enumerate(self.envs):
            try:
                obs, pay, terminated, truncated, _ = env.step(self.acting.action(int(self.actions[i])))
            except (Exception, SystemExit) as error:
                raise self.failed(i, raised(error)) from error
            self.put(after, i, obs)
            reward[i], ended[0, i], ended[1, i] = self.paid(i, pay), bool(terminated), bool(truncated)
            if terminated or truncated:
                self._begin(here, i)
            else:
                for row, same in zip(here, after, strict=True):
                    row[i] = same[i]
        return Came(after, here, reward, ended[0], ended[1] & ~ended[0], np.ones(self.count, bool))

    def close(self) -> None:
        for env in self.envs:
            left(env)


class Vector(Watched):
    """A vector environment, in whichever mode it begins episodes anew."""

    def __init__(self, env: VectorEnv, seed: int, seeing: Seeing, acting: Acting, name: str) -> None:
        super().__init__(seeing, acting, env.num_envs, name)
        mode: Any = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.env, self.seed, self.mode = env, seed, AutoresetMode(mode)
        self.actions: Any = None
        self.ended = np.zeros(self.count, bool)

    def reset(self) -> Leaves:
        obs, _ = self._call(lambda: self.env.reset(seed=self.seed))
        return self._rows(obs, self.empty(), range(self.count))

    def _call(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except Exception as error:
            raise Failed(f"{self.name}, a vector of {self.count}: {raised(error)}") from error

    def _rows(self, obs: Any, rows: Leaves, which: Any) -> Leaves:
        for i in which:
            self.put(rows, i, one_of(obs, i))
        return rows

    def send(self, actions: np.ndarray) -> None:
        chosen = [self.acting.action(int(a)) for a in actions]
        self.actions = np.asarray(chosen, dtype=self.env.action_space.dtype)

    def receive(self) -> Came:
        obs, rewards, terminated, truncated, info = self._call(lambda: self.env.step(self.actions))
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        reward = np.array([self.paid(i, r) for i, r in enumerate(rewards)], np.float32)
        real = ~self.ended if self.mode is AutoresetMode.NEXT_STEP else np.ones(self.count, bool)
        terminated, truncated, reward = terminated & real, truncated & real, np.where(real, reward, 0)
        self.ended = terminated | truncated
        here = self._rows(obs, self.empty(), range(self.count))
        after = [leaf.copy() for leaf in here]
        which = np.flatnonzero(self.ended)
        if self.mode is AutoresetMode.SAME_STEP and which.size:
            if "final_obs" not in info:
                raise Failed(
                    f"{self.name} begins anew in the same step and gives no final_obs: it has to, or use NEXT_STEP"
                )
            for i in map(int, which):
                self.put(after, i, one_of(info["final_obs"], i))
        if self.mode is AutoresetMode.DISABLED and which.size:
            first, _ = self._call(lambda: self.env.reset(options={"reset_mask": self.ended}))
            self._rows(first, here, which)
        return Came(after, here, reward, terminated, truncated & ~terminated, real)

    def close(self) -> None:
        left(self.env)


def one_of(obs: Any, i: int) -> Any:
    """The i-th observation of a batch."""
    if isinstance(obs, dict):
        return {key: one_of(value, i) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(one_of(value, i) for value in obs)
    return obs[i]
