"""One name for each environment: a model comes as an `MDP`, its discount an option; everything else as an `Env`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from highway_rl import checks
from highway_rl.envs import minatar
from highway_rl.envs.models.example import example_mdp
from highway_rl.envs.models.generators import chain, garnet, inventory, maze, queue
from highway_rl.envs.models.multiroom import multi_room
from highway_rl.envs.models.tables import Table
from highway_rl.envs.probes import PROBES, featured
from highway_rl.envs.tasks.chance import CHANCE
from highway_rl.envs.tasks.delayed import choice, trace_back
from highway_rl.envs.tasks.example import example_walk
from highway_rl.envs.tasks.late import LATE
from highway_rl.envs.tasks.rudder import grid_world, watch_repair
from highway_rl.envs.wrappers import as_delay, check_delay, delay_reward, late_discount
from highway_rl.mdp import validate
from highway_rl.mdp.model import MDP
from highway_rl.registry import Registry
from highway_rl.types import DiscreteEnv, Env, HostEnv

MakeEnv = Callable[..., Env]

MODELS: dict[str, tuple[Callable[..., Any], float]] = {
    "example": (example_mdp, 1.0),
    "multi-room": (multi_room, 0.99),
    "garnet": (garnet, 0.99),
    "maze": (maze, 0.99),
    "chain": (chain, 0.99),
    "inventory": (inventory, 0.99),
    "queue": (queue, 0.99),
}
"""Generator and default discount."""

TOY_TEXT = {
    "taxi": "Taxi",
    "frozen-lake": "FrozenLake",
    "frozen-lake-8x8": "FrozenLake8x8",
    "cliff-walking": "CliffWalking",
}
"""Gymnasium's own tables, in the newest version that is installed."""

TASKS: dict[str, Callable[..., DiscreteEnv]] = {
    "trace-back": trace_back,
    "choice": choice,
    "grid-world": grid_world,
    "watch-repair": watch_repair,
    "example-walk": example_walk,
}
"""Tasks whose states are numbers: a table can learn them."""

GAMES = {f"minatar/{game}": game for game in minatar.GAMES}
DELAYED_DISCOUNT = 0.996
"""The paper's for MinAtar-Delay (App. C.3); without delay it is 0.99."""
FEATURE_WIDTH = 64
"""Places of a delay's feature where the game does not name its own number."""

ENVS: Registry[MakeEnv] = Registry(
    "environment",
    "envs",
    {name: functools.partial(minatar.make, game) for name, game in GAMES.items()} | TASKS | LATE | CHANCE | PROBES,
)
"""What an agent can learn step by step."""


def register_env(name: str, make: MakeEnv | Env) -> MakeEnv | Env:
    """Makes `name` an environment to train on: an `Env`, a Gymnasium environment's class, or a function of options that
    returns either."""
    if not isinstance(make, Env) and not callable(make):
        raise checks.refusal("make", make, "an Env, a gymnasium.Env class, or a function that returns one of either")
    return ENVS.add(name, make if not isinstance(make, Env) else lambda: make)


def names() -> list[str]:
    """Models first, then games."""
    return [*MODELS, *TOY_TEXT, *GAMES]


def learnable() -> list[str]:
    """Names of what a deep agent can learn: games and tasks."""
    return ENVS.names()


def make(name: str, **options: Any) -> Any:
    """The named environment with the given options: a model as an `MDP`, everything else as an `Env`.

    >>> make("chain", length=5, discount=0.9).num_states
    5
    >>> make("trace-back", delay=6).horizon
    6
    """
    if name in TASKS:
        return make_task(name, **options)
    if name in TOY_TEXT:
        return MDP.from_gymnasium(_newest(TOY_TEXT[name], options), options.pop("discount", 0.99))
    if name in MODELS:
        return _model(name, **options)
    if name in ENVS or (isinstance(name, str) and ":" in name):
        return make_env(name, **options)
    raise checks.unknown("environment", name, [*names(), *(n for n in learnable() if n not in names())])


def make_task(name: str, **options: Any) -> DiscreteEnv:
    """The named task whose observation is the number of its state.

    >>> make_task("trace-back", delay=6).horizon
    6
    """
    if name not in TASKS:
        raise checks.unknown("task", name, TASKS)
    checks.options(name, options, inspect.signature(TASKS[name]).parameters)
    return TASKS[name](**options)


def make_env(name: str, **options: Any) -> Env | HostEnv:
    """The named environment for a deep agent: its observations are arrays; tasks show the features of their states. One
    that Gymnasium makes steps outside JAX (see `host_env` for its options).

    `delay` = "end", a number of steps or a range of them pays rewards late, with a `feature` of `width` places for what
    was earned (see `delay_reward`).

    >>> make_env("minatar/breakout", delay="end").spec.discount
    0.996
    """
    late = {key: options.pop(key) for key in ("delay", "feature", "width") if key in options and name not in TASKS}
    if late.get("delay") is not None:
        late["delay"] = as_delay(late["delay"])
        check_delay(late["delay"], "count", 1, "delay")
    if (outside := _outside(name, options)) is not None:
        from highway_rl.envs.host import host_env

        return host_env(outside, name, **options, **late)
    env = _undelayed(name, **options)
    if late.get("delay") is None:
        checks.options(f"{name} without delay", [key for key in late if key != "delay"], ())
        return env
    until = late.pop("delay")
    width = late.pop("width", None) or (minatar.rules(GAMES[name]).count_width if name in GAMES else FEATURE_WIDTH)
    delayed = delay_reward(env, until, width=width, **late)
    discount = DELAYED_DISCOUNT if name in GAMES else env.spec.discount or late_discount(env.spec.horizon)
    return dataclasses.replace(delayed, spec=dataclasses.replace(delayed.spec, discount=discount))


def _outside(name: Any, options: dict[str, Any]) -> Any:
    """What makes the named environment, if it steps outside JAX: an id of Gymnasium, a class, a function."""
    if name in MODELS or name in TOY_TEXT or (name in ENVS and name not in ENVS.added):
        return None
    try:
        from highway_rl.envs.host import known, maker
    except ImportError:  # no Gymnasium here
        return None
    if name not in ENVS and not _names_attribute(name):
        return name if known(str(name)) else None
    return maker(ENVS.find(name), str(name), options)


def _names_attribute(name: Any) -> bool:
    """Whether this is module:name of ours, and not Gymnasium's module:id."""
    return isinstance(name, str) and ":" in name and "-v" not in name.rpartition(":")[2]


def _undelayed(name: str, **options: Any) -> Env:
    if name in MODELS or name in TOY_TEXT:
        raise ValueError(f"{name} is a model to solve, not an environment to learn: choose from {_choices()}")
    found: Any = ENVS.find(name)
    if callable(found) and not isinstance(found, Env):
        _check_maker(name, found, options)
        found = found(**options)
    elif options:
        raise ValueError(f"{name} is an environment as it stands and has no option {next(iter(options))!r}: leave it")
    if not isinstance(found, Env):
        if hasattr(found, "reset") and hasattr(found, "step"):
            raise ValueError(
                f"{name} has reset and step and is no gymnasium.Env: give a class that inherits from it, with"
                " observation_space, action_space, reset(*, seed=None, options=None) → (obs, info) and step(action) →"
                " (obs, reward, terminated, truncated, info)"
            )
        raise ValueError(
            f"{name} is a {type(found).__name__}: give a gymnasium.Env class, an Env(spec, reset, step) of highway_rl,"
            " or a function that returns one of either"
        )
    return featured(found) if isinstance(found, DiscreteEnv) else found


def _check_maker(name: str, maker: Callable[..., Any], options: dict[str, Any]) -> None:
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        fixed = getattr(maker, "args", ())  # of a partial
        checks.options(name, options, [p for p in parameters if p not in fixed])


def _choices() -> str:
    return ", ".join(learnable())


def _model(name: str, **options: Any) -> MDP:
    generator, default = MODELS[name]
    discount = options.pop("discount", default)
    checks.options(name, options, ["discount", *inspect.signature(generator).parameters])
    made = generator(**options)
    table: Table = getattr(made, "table", made)
    # Tables made here are valid as they stand; only an undiscounted one needs its ends checked.
    given = validate.discounts(discount, table.reward.shape)
    return MDP.from_table(*table, given, check=bool(np.any(given >= 1)))


def _newest(name: str, options: dict[str, Any]) -> Any:
    import gymnasium

    versions = [spec.version or 0 for spec in gymnasium.registry.values() if spec.name == name and not spec.namespace]
    if not versions:
        raise ValueError(f"the installed gymnasium has no environment {name!r}: install gymnasium[toy-text]")
    chosen = {key: value for key, value in options.items() if key != "discount"}
    try:
        return gymnasium.make(f"{name}-v{max(versions)}", **chosen)
    except Exception as error:  # whatever the environment's own constructor raises for an option it does not know
        options_text = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
        raise ValueError(f"{name} refuses {options_text}: {checks.one_line(error)}") from None
