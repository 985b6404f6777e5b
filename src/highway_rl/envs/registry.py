"""One name for each environment. A model comes as an `MDP`, with its discount an option; a game as an `Env`."""

from __future__ import annotations

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
from highway_rl.envs.tasks.delayed import choice, trace_back
from highway_rl.envs.tasks.rudder import grid_world, watch_repair
from highway_rl.envs.wrappers import delay_reward
from highway_rl.mdp import validate
from highway_rl.mdp.model import MDP
from highway_rl.types import DiscreteEnv, Env

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
}
"""Tasks to learn step by step; they come as environments, not as models."""


def names() -> list[str]:
    """Models first, then games."""
    return [*MODELS, *TOY_TEXT, *(f"minatar/{game}" for game in minatar.GAMES)]


def make_task(name: str, **options: Any) -> DiscreteEnv:
    """The named task with the given options.

    >>> make_task("trace-back", delay=6).horizon
    6
    """
    if name not in TASKS:
        raise checks.unknown("task", name, TASKS)
    _check_options(name, TASKS[name], options)
    return TASKS[name](**options)


def learnable() -> list[str]:
    """Names of what a deep agent can learn: games and tasks."""
    return [*(f"minatar/{game}" for game in minatar.GAMES), *TASKS, *PROBES]


def make_learnable(name: str, **options: Any) -> Env:
    """The named game, task or probe as an environment whose observations are arrays; tasks show their features.

    >>> make_learnable("minatar/breakout", delay="end").spec.num_actions
    6
    """
    if name in TASKS:
        return featured(make_task(name, **options))
    if name in PROBES:
        _check_options(name, PROBES[name], options)
        return PROBES[name](**options)
    if name.startswith("minatar/") and name in names():
        return _game(name.removeprefix("minatar/"), **options)
    if name in names():
        raise ValueError(
            f"{name} is a model to solve, not an environment to learn: choose from {', '.join(learnable())}"
        )
    _refuse_gymnasium(name)
    raise checks.unknown("environment", name, learnable())


def _refuse_gymnasium(name: str) -> None:
    """What a deep agent here cannot learn from, if Gymnasium knows the name."""
    import gymnasium

    if name not in gymnasium.registry:
        return
    try:
        space = gymnasium.make(name).action_space
    except Exception as error:  # whatever a missing dependency of that environment raises
        raise ValueError(f"{name}: {checks.one_line(error)}") from None
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise ValueError(f"{name} has actions {checks.one_line(space)}: a value network needs a Discrete action space")
    raise ValueError(f"{name} steps outside JAX and cannot be compiled: choose from {', '.join(learnable())}")


def _check_options(name: str, made_by: Callable[..., Any], options: dict[str, Any], *others: str) -> None:
    allowed = [*others, *inspect.signature(made_by).parameters]
    for option in options:
        if option not in allowed:
            raise ValueError(f"{name} has no option {option!r}: it takes {', '.join(allowed)}")


def make(name: str, **options: Any) -> Any:
    """The named environment with the given options: a model as an `MDP`, a game as an `Env`.

    >>> make("chain", length=5, discount=0.9).num_states
    5
    """
    if name.startswith("minatar/") and name in names():
        return _game(name.removeprefix("minatar/"), **options)
    if name in TOY_TEXT:
        return MDP.from_gymnasium(_newest(TOY_TEXT[name], options), options.pop("discount", 0.99))
    if name in TASKS:
        raise ValueError(f"{name} is a task to learn, not a model to solve: choose from {', '.join(names())}")
    if name not in MODELS:
        raise checks.unknown("environment", name, names())
    generator, default = MODELS[name]
    discount = options.pop("discount", default)
    _check_options(name, generator, options, "discount")
    made = generator(**options)
    table: Table = getattr(made, "table", made)
    # Tables made here are valid as they stand; only an undiscounted one needs its ends checked.
    given = validate.discounts(discount, table.reward.shape)
    return MDP.from_table(*table, given, check=bool(np.any(given >= 1)))


def _game(game: str, *, delay: Any = None, feature: Any = "count", width: int | None = None, **options: Any) -> Env:
    """A MinAtar game; `delay` = "end", a number of steps or a range of them makes it MinAtar-Delay."""
    try:
        env = minatar.make(game, **options)
    except TypeError as error:
        raise ValueError(f"minatar/{game}: {error}") from None
    if delay is None:
        return env
    if isinstance(delay, (list, tuple)):  # first and last number of steps, as a file can hold them
        delay = range(delay[0], delay[1] + 1)
    return delay_reward(env, delay, feature=feature, width=width or minatar.rules(game).count_width)


def _newest(name: str, options: dict[str, Any]) -> Any:
    import gymnasium

    versions = [spec.version or 0 for spec in gymnasium.registry.values() if spec.name == name and not spec.namespace]
    if not versions:
        raise ValueError(f"the installed gymnasium has no environment {name!r}")
    chosen = {key: value for key, value in options.items() if key != "discount"}
    try:
        return gymnasium.make(f"{name}-v{max(versions)}", **chosen)
    except Exception as error:  # whatever the environment's own constructor raises for an option it does not know
        options_text = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
        raise ValueError(f"{name} refuses {options_text}: {checks.one_line(error)}") from None
