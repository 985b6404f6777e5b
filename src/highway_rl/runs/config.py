"""What to train, as data: a config, and the runs and programs it stands for.

config ──expand──> runs (an algorithm, its settings, a seed) ──group──> programs (runs of equal shape, compiled once)
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from typing import Any, NamedTuple

import jax
import numpy as np

from highway_rl import checks, registry
from highway_rl.deep.algorithms import ALGORITHMS, make_rule, options_of, with_bootstrap
from highway_rl.deep.dqn import DQN
from highway_rl.deep.networks import NETWORKS
from highway_rl.deep.optimizers import OPTIMIZERS
from highway_rl.deep.schedule import Schedule
from highway_rl.deep.settings import check_run
from highway_rl.envs.registry import ENVS, make_env, register_env
from highway_rl.runs import text
from highway_rl.runs.estimate import Estimate, check_memory, estimate
from highway_rl.runs.presets import preset
from highway_rl.runs.programs import Program, grouped
from highway_rl.types import Env, HostEnv

Settings = dict[str, Any]
SHORT = {"k": "num_networks"}
"""The paper's letter for a setting."""
AGENT = {f.name for f in dataclasses.fields(DQN)} - {"rule", "which", "network", "optimizer"}
SCHEDULE = {f.name for f in dataclasses.fields(Schedule)}
MAIN = "__main__"
"""The module of a script, which no other process can import."""
NAMED = {"bootstrap", "network", "optimizer"}
"""Settings whose values are words."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What to train: `algos` × `seeds` runs on one task. Every field is plain data, kept in config.json.

    `algos` are texts such as "n-step-dqn:n=3" (see `text`), `preset` a word for many settings (see `presets`),
    `settings` what all runs have in common beside it, `env` the options of the environment, `imports` modules that
    register names used here.
    """

    task: str
    algos: tuple[str, ...] = ("soft-highway-dqn",)
    seeds: int = 1
    seed: int = 0
    steps: int | None = None
    preset: str | None = None
    env: Settings = dataclasses.field(default_factory=dict)
    settings: Settings = dataclasses.field(default_factory=dict)
    imports: tuple[str, ...] = ()
    report_every: int | None = None
    checkpoint_every: int | None = None
    keep: int = 3
    save_store: bool = True
    episodes: int = 100

    def __post_init__(self) -> None:
        for name in ("env", "settings"):
            object.__setattr__(self, name, {k: plain_value(k, v) for k, v in getattr(self, name).items()})
        if not isinstance(self.algos, tuple | list):
            object.__setattr__(self, "algos", (self.algos,))
        if not isinstance(self.task, str):
            object.__setattr__(self, "task", _named(self.task))


_GIVEN: dict[str, Any] = {}
"""Environments that came as objects, by the name they got."""


def _named(env: Any) -> str:
    """The name of an environment that came as an object: its own, with a number where another thing has that."""
    env = env if isinstance(env, Env) else _maker(env)
    if isinstance(env, str):
        return env
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", "")
    if module != "__main__" and name and getattr(sys.modules.get(module or ""), name, None) is env:
        return f"{module}:{name}"  # as others, and this one tomorrow, can name it
    own = env.spec.name if isinstance(env, Env) else getattr(env, "__name__", type(env).__name__)
    own = "environment" if own == "<lambda>" else own
    names = (own + (f"-{i}" if i > 1 else "") for i in itertools.count(1))
    name = next(name for name in names if name not in ENVS or _GIVEN.get(name) is env)
    if name not in ENVS:
        register_env(name, env)
        ENVS.added[name] = MAIN  # no import brings an object back
        _GIVEN[name] = env
    return name


def _maker(env: Any) -> Any:
    """What makes an environment that came as an object of Gymnasium's: its id, a function, a class."""
    import gymnasium

    from highway_rl.envs.host.make import again

    if isinstance(env, gymnasium.Env) and env.spec is not None:
        return again(env.spec)
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv) or not callable(env):
        several = isinstance(env, gymnasium.vector.VectorEnv)
        raise ValueError(
            f"task is a {type(env).__name__}: give a name, module:name, a gymnasium.Env class, a function that makes an"
            " environment"
            + (" or, with a parameter num_envs, a vector of so many" if several else "")
            + ", or an Env(spec, reset, step) of highway_rl"
        )
    return env


def plain_value(name: str, value: Any) -> Any:
    """A setting as a file holds it: a number, a word, a truth value, nothing, or a list of such."""
    if isinstance(value, np.generic | np.ndarray) or hasattr(value, "__jax_array__") or hasattr(value, "device"):
        value = np.asarray(value).tolist()
    if isinstance(value, tuple | list):
        return type(value)(plain_value(name, one) for one in value)
    if isinstance(value, range):
        return (value.start, value.stop - 1)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise checks.refusal(name, value, "a number, a word, True or False, or a list of them")


class Run(NamedTuple):
    """One run of a config: the text it was asked for by, and what that text means."""

    label: str
    seed: int
    agent: DQN
    schedule: Schedule


class Setup(NamedTuple):
    """A config as the objects it names; `need` is what training them will take, where that was asked."""

    config: Config
    env: Env | HostEnv
    runs: list[Run]
    programs: list[Program]
    report_every: int
    checkpoint_every: int
    need: Estimate | None

    @property
    def steps(self) -> int:
        return self.runs[0].schedule.steps

    @property
    def labels(self) -> list[tuple[str, int]]:
        return [(run.label, run.seed) for run in self.runs]


def setup(config: Config, *, to_train: bool = False, devices: int | str = 1) -> Setup:
    """Checks a config and builds what it names; that runs can begin is tried, without computing anything. `to_train`
    also asks whether they fit into memory. `devices`: over how many runs are spread, or "all"; "group" are those of all
    processes of this one's group."""
    for name in ("seeds", "keep", "episodes"):
        checks.whole(name, getattr(config, name), 1)
    checks.whole("seed", config.seed, 0)
    if config.seed + config.seeds > 2**32:
        raise checks.refusal("seed", config.seed, f"one with which the last of seeds={config.seeds} is below 2**32")
    for module in config.imports:
        registry.bring(module)
    env = make_env(config.task, **config.env)
    kinds = expand(config, env)
    many, processes = devices_of(devices, env)
    need = estimate(env, kinds, config.seeds) if to_train else None
    runs = [Run(label, config.seed + i, agent, times) for label, agent, times in kinds for i in range(config.seeds)]
    steps = runs[0].schedule.steps
    refresh = max(run.schedule.refresh for run in runs)
    every = {}
    for name, parts in (("report_every", 500), ("checkpoint_every", 10)):
        given = getattr(config, name)
        every[name] = max(refresh, steps // parts) if given is None else checks.whole(name, given, 1)
    made = Setup(config, env, runs, grouped(env, runs, many, processes), need=need, **every)
    if need is not None:
        check_memory(need, min(program.devices for program in made.programs))
    for program in made.programs:
        program.shapes()
    return made


def devices_of(given: int | str, env: Env | HostEnv) -> tuple[int, int]:
    """How many devices are meant, of each of how many processes."""
    there = jax.local_device_count()
    if given in ("all", "group"):
        processes = jax.process_count() if given == "group" else 1
        return (there, processes) if isinstance(env, Env) else (1, 1)
    many = checks.whole("devices", given, 1)
    if many > there:
        raise checks.refusal("devices", given, f"all, or a number up to {there}: so many are here")
    if many > 1 and isinstance(env, HostEnv):
        raise checks.refusal("devices", given, f"1: {env.spec.name} steps outside JAX, on one device")
    return many, 1


def expand(config: Config, env: Env | HostEnv) -> list[tuple[str, DQN, Schedule]]:
    """What each seed of a config runs: every text, with every value it sweeps."""
    if not config.algos:
        raise ValueError("algos is empty: give at least one algorithm")
    wanted = [one for algo in config.algos for one in text.parse(algo)]
    labels = [one.label for one in wanted]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"{label} is given {labels.count(label)} times: give it once, and seeds for more runs")
    return [(one.label, *build(config, env, one)) for one in wanted]


def build(config: Config, env: Env | HostEnv, wanted: text.Wanted) -> tuple[DQN, Schedule]:
    """The agent and the schedule of one run: the preset, what all runs share, what its text says, in this order."""
    options, own = _split(wanted)
    rule, implied = make_rule(wanted.algo, **options)
    shared = _known("settings", config.settings)
    chosen = preset(config.preset, config.task) | shared | implied | own
    if config.steps is not None:
        chosen["steps"] = config.steps
    chosen |= _fitted(chosen, shared | own)
    for name, value in chosen.items():
        if isinstance(value, tuple | list):
            raise checks.refusal(name, value, "one value; a list sweeps in the text of a run, as in dqn:k=[1,2]")
    bootstrap = chosen.pop("bootstrap", "greedy")
    ruled = with_bootstrap(rule, bootstrap)
    if "bootstrap" in own and ruled is rule and bootstrap != "greedy":
        raise ValueError(f"{wanted.label}: {wanted.algo} has a bootstrap of its own: leave bootstrap out")
    parts = {name: chosen.pop(name) for name in ("network", "optimizer") if name in chosen}
    found: Settings = {}
    if "network" in parts:
        found["network"] = NETWORKS.find(_word("network", parts["network"]))
    if "optimizer" in parts:
        found["optimizer"] = OPTIMIZERS.find(_word("optimizer", parts["optimizer"]))
    chosen.setdefault("discount", 0.99 if env.spec.discount is None else env.spec.discount)
    agent = DQN(rule=ruled, **found, **{k: v for k, v in chosen.items() if k in AGENT})
    schedule = Schedule(**{k: v for k, v in chosen.items() if k in SCHEDULE})
    check_run(agent, schedule)
    return agent, schedule


def _fitted(chosen: Settings, named: Settings) -> Settings:
    """What nobody named, so that the number of environments divides it: a capacity as large, and the nearest refresh
    that divides the steps as well, if there is one within a factor of two."""
    count, steps = chosen.get("num_envs", 1), chosen.get("steps", Schedule.steps)
    if any(not isinstance(x, int) or x < 1 for x in (count, steps)):
        return {}  # refused later
    refresh, capacity = chosen.get("refresh", Schedule.refresh), chosen.get("capacity", Schedule.capacity)
    found = {}
    if "refresh" not in named and refresh % count:
        near = range(count * max(1, refresh // (2 * count)), 2 * refresh + 1, count)
        fit = [x for x in near if steps % x == 0] or list(near) or [count]
        found["refresh"] = min(fit, key=lambda x: abs(math.log(x / refresh)))
    if "capacity" not in named and capacity % count:
        found["capacity"] = -(-capacity // count) * count
    return found


def _split(wanted: text.Wanted) -> tuple[Settings, Settings]:
    """What a text says of the algorithm, and what of the agent and the schedule."""
    options = options_of(wanted.algo)
    mine = {name: value for name, value in wanted.options.items() if name in options}
    rest = {name: value for name, value in wanted.options.items() if name not in options}
    for name, value in mine.items():
        if isinstance(value, tuple | list) and isinstance(options[name], int | float):
            raise checks.refusal(name, value, f"one value; a list in brackets sweeps: {name}=[…]")
    return mine, _known(wanted.algo, rest, options)


def _known(what: str, given: Settings, options: Settings | None = None) -> Settings:
    """Settings under their own names; refuses those that do not exist."""
    found = {SHORT.get(name, name): value for name, value in given.items()}
    if len(found) < len(given):
        twice = next(f"{short} and {name}" for short, name in SHORT.items() if short in given and name in given)
        raise ValueError(f"{what} has {twice}, which are one setting: give one of them")
    taken = [*(options or {}), *sorted(AGENT | NAMED | (SCHEDULE - {"steps"})), *SHORT]
    if "steps" in found:
        raise ValueError(f"{what} has steps: give --steps, or Config(steps=…), which all runs share")
    checks.options(what, [name for name in found if name not in AGENT | NAMED | SCHEDULE], taken)
    return found


def _word(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise checks.refusal(name, value, f"a name; highway_rl.register_{name}(name, function) adds one")
    return value


def modules(config: Config) -> tuple[str, ...]:
    """The modules whose import makes the names of a config exist, beside those that are always there."""
    used = [ENVS.module(config.task)]
    for one in (one for algo in config.algos for one in text.parse(algo)):
        said = preset(config.preset, config.task) | config.settings | one.options
        used += [ALGORITHMS.module(one.algo), NETWORKS.module(said.get("network", ""))]
        used += [OPTIMIZERS.module(said.get("optimizer", ""))]
    return tuple(dict.fromkeys([*config.imports, *(m for m in used if m not in (None, MAIN))]))
