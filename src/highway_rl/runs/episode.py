"""One episode: as a person has it, as arrays, and played."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from highway_rl import checks
from highway_rl.core.checks import check_actions, check_flags
from highway_rl.types import Env, HostEnv, Spec

NAMES = {
    "obs": ("obs", "observations", "observation"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards"),
    "terminated": ("terminated", "terminations", "terminals"),
    "behaviour": ("behaviour",),
}
"""What the parts of an episode are called, here and elsewhere."""

FORMS = "a list of (obs, action, reward, terminated), or obs, action, reward and terminated in a dict or a named tuple"
Batch = Callable[[Any], tuple[list[np.ndarray], bool]]
"""From observations to their arrays with a first axis, and whether there was only one."""


class Episode(NamedTuple):
    """T steps: the observations acted on and the one after the last step, [T + 1, …], and what was done and came of
    it, [T]. `terminated` says that nothing follows, `behaviour` how probable the action was where it was taken."""

    obs: PyTree
    action: Int[np.ndarray, "t"]
    reward: Float[np.ndarray, "t"]
    terminated: Bool[np.ndarray, "t"]
    behaviour: Float[np.ndarray, "t"]


def as_episode(given: Any, last_obs: Any, spec: Spec, batch: Batch, numbers: Any = None) -> Episode:
    """An episode from what a person has, or a refusal that says what to give. `numbers` are those of an environment's
    own actions, where these are other than the agent's."""
    parts = _parts(given)
    own = numbers is not None and not isinstance(given, Episode)
    action = np.asarray(numbers(parts["action"]) if own else parts["action"])
    check_actions(action, spec.num_actions)
    if action.ndim != 1 or not action.size:
        raise checks.wrong_shape("action", action, "one whole number a step")
    count = len(action)
    terminated = _flags(parts["terminated"], count)
    reward = _numbers("reward", parts["reward"], count, np.isfinite, "that is finite")
    told = np.ones(count) if parts["behaviour"] is None else parts["behaviour"]
    behaviour = _numbers("behaviour", told, count, lambda x: (x > 0) & (x <= 1), "> 0 and <= 1")
    arrays = _with_last(_observations(parts["obs"], batch), last_obs, count, bool(terminated[-1]), batch)
    obs = jax.tree.unflatten(jax.tree.structure(spec.observation), arrays)
    return Episode(obs, action.astype(np.int32), reward, terminated, behaviour)


def _parts(given: Any) -> dict[str, Any]:
    """The parts of an episode by our names for them."""
    if isinstance(given, list | tuple) and not hasattr(given, "_fields"):
        if not given or any(not isinstance(row, list | tuple) or len(row) != 4 for row in given):
            raise ValueError(f"trajectory is a list of other things than steps: give {FORMS}")
        return dict(zip(NAMES, [*map(list, zip(*given, strict=True)), None], strict=True))
    known = given
    if not isinstance(given, Mapping):
        known = {name: getattr(given, name, None) for names in NAMES.values() for name in names}
    found = {part: next((known[n] for n in names if known.get(n) is not None), None) for part, names in NAMES.items()}
    for part, value in found.items():
        if value is None and part != "behaviour":
            raise ValueError(f"trajectory has no {part}: give {FORMS}")
    return found


def _flags(given: Any, count: int) -> Bool[np.ndarray, "t"]:
    """Whether each step terminated; one flag is that of the last."""
    flags = np.asarray(given)
    check_flags("terminated", flags)
    if flags.ndim == 0:
        flags = np.arange(count) == (count - 1 if flags else count)
    if flags.shape != (count,):
        raise checks.wrong_shape("terminated", flags, f"({count},), one flag a step")
    flags = flags.astype(bool)
    if flags[:-1].any():
        raise ValueError(f"terminated is true at step {flags.argmax()} of {count}: give one episode, which ends there")
    return flags


def _numbers(name: str, given: Any, count: int, holds: Any, wanted: str) -> Float[np.ndarray, "t"]:
    checks.numbers(name, given, holds, wanted)
    array = np.asarray(given, np.float32)
    if array.shape != (count,):
        raise checks.wrong_shape(name, array, f"({count},), one number a step")
    return array


def _observations(given: Any, batch: Batch) -> list[np.ndarray]:
    """The arrays of all observations, which came as a whole or one by one."""
    try:
        arrays, single = batch(given)
    except ValueError:
        if not isinstance(given, list | tuple):
            raise
        each = [batch(one) for one in given]
        arrays, single = [np.concatenate(leaf) for leaf in zip(*(a for a, _ in each), strict=True)], False
    if single:
        raise ValueError("obs is one observation: give one for every step")
    return arrays


def _with_last(arrays: list[np.ndarray], last_obs: Any, count: int, terminated: bool, batch: Batch) -> list[np.ndarray]:
    """With the observation after the last step, which nobody needs where that terminated."""
    there = len(arrays[0])
    if there not in (count, count + 1):
        raise ValueError(
            f"obs has {there} observations of {count} steps: give {count}, and the last one as last_obs, or {count + 1}"
        )
    if there > count:
        if last_obs is not None:
            raise ValueError("last_obs is the last of obs already: leave it out")
        return arrays
    if last_obs is None and not terminated:
        raise ValueError("the last step did not terminate: give last_obs, the observation after it")
    last = [x[-1:] for x in arrays] if last_obs is None else batch(last_obs)[0]
    return [np.concatenate([x, y]) for x, y in zip(arrays, last, strict=True)]


def play_episode(env: Any, act: Callable[[PyTree], int], seed: int, max_steps: int) -> Episode:
    """One episode in an `Env`, or in an environment that steps outside JAX; cut after so many steps."""
    checks.whole("max_steps", max_steps, 1)
    checks.whole("seed", seed, 0)
    seen, actions, rewards, ends = [], [], [], []
    with _inside(env, seed) if isinstance(env, Env) else _outside(env, seed) as (first, step):
        seen.append(first)
        for _ in range(max_steps):
            actions.append(act(seen[-1]))
            obs, reward, terminated, truncated = step(actions[-1])
            seen.append(obs)
            rewards.append(reward)
            ends.append(terminated)
            if terminated or truncated:
                break
    stacked = jax.tree.map(lambda *x: np.stack(x), *seen)
    arrays = (np.array(actions, np.int32), np.array(rewards, np.float32), np.array(ends, bool))
    return Episode(stacked, *arrays, np.ones(len(actions), np.float32))


def pictures(env: HostEnv, act: Callable[[Any], Any], seed: int, max_steps: int) -> tuple[list[np.ndarray], float]:
    """What a Gymnasium environment draws of an episode, and how many of these pictures are a second; `act` is from its
    own observations to its own actions."""
    checks.whole("max_steps", max_steps, 1)
    checks.whole("seed", seed, 0)
    made = env.one(render_mode="rgb_array")
    try:
        obs, _ = made.reset(seed=seed)
        frames, ended = [made.render()], False
        while not ended and len(frames) <= max_steps:
            obs, _, terminated, truncated, _ = made.step(act(obs))
            frames.append(made.render())
            ended = terminated or truncated
    finally:
        made.close()
    drawn = [np.asarray(frame, np.uint8) for frame in frames if np.ndim(frame) == 3]
    if not drawn:
        raise ValueError(f"{env.spec.name} draws nothing with render_mode='rgb_array': give one whose render() does")
    return drawn, float(made.metadata.get("render_fps", 15))


Play = tuple[PyTree, Callable[[int], tuple[PyTree, Any, Any, Any]]]
"""The first observation, and from an action to what came of it: obs, reward, terminated, truncated."""


@contextlib.contextmanager
def _inside(env: Env, seed: int) -> Iterator[Play]:
    """An environment of JAX."""
    reset, go = jax.jit(env.reset), jax.jit(env.step)
    k_reset, key = jax.random.split(jax.random.key(seed))
    state, first = reset(k_reset)

    def step(action: int) -> Any:
        nonlocal state, key
        key, k_step = jax.random.split(key)
        out = go(state, np.int32(action), k_step)
        state = out.state
        return jax.device_get((out.obs, out.reward, out.terminated, out.truncated))

    yield jax.device_get(first), step


@contextlib.contextmanager
def _outside(env: Any, seed: int) -> Iterator[Play]:
    """An environment that steps outside JAX."""
    world, structure = env.start(1, seed), jax.tree.structure(env.spec.observation)
    seen = lambda leaves: jax.tree.unflatten(structure, [x[0] for x in leaves])  # noqa: E731

    def step(action: int) -> Any:
        world.send(np.array([action]))
        came = world.receive()
        return seen(came.after), came.reward[0], came.terminated[0], came.truncated[0]

    try:
        yield seen(world.reset()), step
    finally:
        world.close()
