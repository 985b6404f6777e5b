"""Gymnasium's environments by id, constructor or class, as `HostEnv`s."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from highway_rl import checks
from highway_rl.envs.host import prepare, written
from highway_rl.envs.host.late import DelayReward, Late, with_feature
from highway_rl.envs.host.processes import Apart
from highway_rl.envs.host.spaces import acting, seeing
from highway_rl.envs.host.worlds import Here, Vector, once, taken
from highway_rl.envs.wrappers import check_delay, late_discount
from highway_rl.registry import bring
from highway_rl.types import HostEnv, Spec

PLUGINS = {"ALE/": ("ale_py", "ale-py"), "MiniGrid-": ("minigrid", "minigrid"), "BabyAI-": ("minigrid", "minigrid")}
"""Beginning of an id → the module whose import registers it, and the package that has it."""
FORMS = ("sync", "async", "vector")
OWN = ("workers", "timeout", "show_time")
"""Options of `host_env` itself."""
TRIED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""What functions made when it was seen what they make; it is gone by now, unless they make the same thing again."""


def known(name: str) -> bool:
    """Whether Gymnasium has an environment of this id; imports what registers it."""
    for beginning, (module, package) in PLUGINS.items():
        if name.startswith(beginning):
            if importlib.util.find_spec(module) is None:
                raise ValueError(
                    f"{name} is in the package {package}, which is not here: install it with `pip install {package}`"
                )
            plugin = importlib.import_module(module)
            gymnasium.register_envs(plugin)
    if name in gymnasium.registry:
        return True
    module, colon, inner = name.partition(":")  # Gymnasium's module:id, which registers it
    if colon:
        bring(module)
        return inner in gymnasium.registry
    alike = [one for one in gymnasium.registry if name.lower() in (one.lower(), one.rpartition("-v")[0].lower())]
    if alike and name not in alike:
        raise checks.unknown("environment", name, alike)
    try:
        gymnasium.spec(name)
    except gymnasium.error.DeprecatedEnv as error:
        raise ValueError(f"{checks.one_line(error).rstrip('.')}: give the new name") from None
    except gymnasium.error.VersionNotFound as error:
        raise ValueError(f"{checks.one_line(error).rstrip('.')}: give one of these") from None
    except (gymnasium.error.Error, ImportError):
        if name[:1].isupper() and difflib.get_close_matches(name, gymnasium.registry, 1):
            raise checks.unknown("environment", name, gymnasium.registry) from None
        return False
    return True


def maker(found: Any, name: str, options: dict[str, Any]) -> Any:
    """What makes Gymnasium environments, if `found` does: a class, a function, an environment that knows its id. None
    of what makes something else; what a function makes is seen by calling it."""
    if isinstance(found, type):
        return found if issubclass(found, gymnasium.Env | VectorEnv) or _old(found) else None
    if isinstance(found, gymnasium.Env) and found.spec is not None:
        like = again(found.spec)
        return functools.partial(gymnasium.make, like) if isinstance(like, str) else like
    if isinstance(found, gymnasium.Env | VectorEnv) or _old(type(found)):
        raise ValueError(
            f"{name} is one {type(found).__name__}, and training needs several: give its class, or a function that"
            " makes one" + (" of so many, with a parameter num_envs" if isinstance(found, VectorEnv) else "")
        )
    if not callable(found):
        return None
    given = {key: value for key, value in options.items() if key not in OWN}
    if "num_envs" in _parameters(found):
        return found
    made = _tried(name, lambda: found(**given))
    if not isinstance(made, gymnasium.Env | VectorEnv) and not _old(type(made)):
        return None
    made.close()
    once(TRIED, made)
    return found


def again(spec: Any) -> Any:
    """What makes an environment like a given one: its id, or a function where more than the id made it."""
    lost = [wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None]
    if lost:
        raise ValueError(
            f"{spec.id} is inside {lost[0]}, which does not say how it was made: give a function that makes all of it,"
            f" such as lambda: {lost[0]}(gymnasium.make({spec.id!r}))"
        )
    plain = gymnasium.registry.get(spec.id)
    if (
        plain is not None
        and spec.max_episode_steps == plain.max_episode_steps
        and not spec.additional_wrappers
        and spec.kwargs in ({}, plain.kwargs)
    ):
        return spec.id
    made: Any = functools.partial(gymnasium.make, spec)
    made.__name__ = f"given-{spec.id}"
    return made


def _old(kind: type) -> bool:
    """Whether this is an environment of the gym package that came before Gymnasium."""
    return any(cls.__module__.split(".")[0] == "gym" for cls in kind.__mro__)


def host_env(
    made_by: str | Callable[..., Any],
    name: str,
    *,
    workers: str | None = None,
    timeout: float = 60.0,
    show_time: bool = False,
    delay: Any = None,
    feature: str = "amount",
    width: int = 64,
    **options: Any,
) -> HostEnv:
    """An environment by its id, or by a function or class that makes one, or a vector of them.

    `workers`: "sync" steps all environments of a run one after the other in this process, "async" each in a process of
    its own, "vector" asks Gymnasium for the environment's own vector form. A process that says nothing for `timeout`
    seconds has failed. `show_time` puts the time beside the observation (`prepare.ShowTime`). The other options are the
    constructor's.
    """
    checks.between("timeout", timeout, 0)
    if "num_envs" in options:
        raise ValueError(
            "num_envs is a setting of the run, not an option of the environment: give --setting num_envs=8, or"
            " train(…, num_envs=8)"
        )
    if workers is not None:
        checks.choice("workers", workers, FORMS)
    if not isinstance(show_time, bool):
        raise checks.refusal("show_time", show_time, "true or false")
    if delay is not None:
        check_delay(delay, feature, width, "delay")
    make, many = _makers(made_by, name, workers == "vector", options, show_time)
    if workers is not None and not isinstance(made_by, str) and (many is not None) != (workers == "vector"):
        raise ValueError(
            f"{name} makes a vector of environments, which steps as it likes: leave workers={workers!r} out"
            if many is not None
            else f"{name} makes one environment at a time: give workers 'sync' or 'async', or a function with num_envs"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Gymnasium's own checks: what matters is checked at every step
        one = _tried(name, (lambda: many(1)) if many else make)
    try:
        if workers != "async":  # where each process has a copy
            once(TRIED, one, name)
        observed, acted = _spaces(one, name)
        about = getattr(one, "spec", None)
        bare: Any = one.env if isinstance(one, prepare.ShowTime) else one
        frames = bare.count if isinstance(bare, prepare.Stacked) else 1
    finally:
        one.close()
    seen, acts = seeing(observed), acting(acted, name)
    shown = observed if delay is None else with_feature(observed, feature, width)
    whole = seeing(shown)
    if seen is None or whole is None:
        raise ValueError(f"{name} shows nothing but text: give an observation of numbers")
    horizon = getattr(about, "max_episode_steps", None)
    called = name if delay is None else f"{name}-delay"
    discount = None if delay is None else late_discount(horizon)
    spec = Spec(called, whole.like, acts.number, discount, horizon, written.write(shown, acted), frames)

    def start(count: int, seed: int) -> Any:
        seeds = [int(x) for x in np.random.SeedSequence(seed).generate_state(count)]
        worlds: Any
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if many:
                worlds = Vector(taken(many(count), name), seeds[0], seen, acts, name)
            elif workers == "async":
                worlds = Apart([make] * count, seeds, seen, acts, name, timeout)
            else:
                worlds = Here([make] * count, seeds, seen, acts, name)
        return worlds if delay is None else Late(worlds, delay, feature, width, seeds[-1])

    def alone(**more: Any) -> Any:
        if many and delay is not None:
            raise ValueError(
                f"{name} makes vectors, and DelayReward takes one environment at a time: make one of yours, and put"
                " highway_rl.integrations.gymnasium.DelayReward around it"
            )
        one, several = _makers(made_by, name, workers == "vector", {**options, **more}, show_time)
        made = _tried(name, lambda: several(1) if several else one())
        return made if delay is None else DelayReward(made, delay, feature=feature, width=width)  # type: ignore[arg-type]

    return HostEnv(spec, start, alone)


def _makers(
    made_by: Any, name: str, as_vector: bool, options: dict[str, Any], show_time: bool
) -> tuple[Callable[[], Any], Callable[[int], Any] | None]:
    """A function that makes one environment, and one that makes a vector of so many where that is its form."""
    by_id = isinstance(made_by, str)
    many: Callable[[int], Any] | None = None
    if by_id and as_vector:
        many = functools.partial(gymnasium.make_vec, made_by, vectorization_mode="vector_entry_point", **options)
    elif not by_id and "num_envs" in _parameters(made_by):
        many = lambda count: made_by(num_envs=count, **options)  # noqa: E731
    if many is None:
        one = functools.partial(prepare.by_id if by_id else prepare.by_call, made_by, options)
        return functools.partial(prepare.timed, one) if show_time else one, None
    if show_time:
        around = "leave it out, and put highway_rl.integrations.gymnasium.ShowTime around each"
        instead = "give workers 'sync' or 'async'" if by_id else around
        raise ValueError(f"{name} makes vectors, and show_time takes one environment at a time: {instead}")
    return _nothing, many


def _nothing() -> Any:
    raise NotImplementedError


def _parameters(made_by: Any) -> Sequence[str]:
    try:
        return list(inspect.signature(made_by).parameters)
    except (TypeError, ValueError):
        return []


def _tried(name: str, make: Callable[[], Any]) -> Any:
    """One environment, to look at; whatever its constructor raises says what to do."""
    try:
        return make()
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(f"{name} needs more packages: install them, {checks.one_line(error)}") from None
    except ValueError:
        raise
    except gymnasium.error.Error as error:
        if "vector entry point" not in str(error):
            raise _unmade(name, error) from None
        raise ValueError(f"{name} has no vector form of its own: give workers 'sync' or 'async'") from None
    except Exception as error:
        raise _unmade(name, error) from None


def _unmade(name: str, error: Exception) -> ValueError:
    return ValueError(
        f"{name} cannot be made, {type(error).__name__} says {checks.one_line(error)}: make one by itself first, with"
        " the same options"
    )


def _spaces(one: Any, name: str) -> tuple[gymnasium.Space, gymnasium.Space]:
    """The observations and actions of one environment; refuses what is none."""
    if isinstance(one, VectorEnv):
        return one.single_observation_space, one.single_action_space
    if isinstance(one, gymnasium.Env):
        for needed in ("observation_space", "action_space"):
            if not isinstance(getattr(one, needed, None), gymnasium.Space):
                raise ValueError(f"{name} has no {needed}: give it one of gymnasium.spaces, in its __init__")
        return one.observation_space, one.action_space
    if _old(type(one)):
        raise ValueError(
            f"{name} is an environment of the old gym package: install shimmy and give a function that returns"
            " shimmy.GymV21CompatibilityV0(env=…) or shimmy.GymV26CompatibilityV0(env=…)"
        )
    raise ValueError(f"{name} made a {type(one).__name__}: give a gymnasium.Env, or a function that returns one")
