"""What to train, as data: the config of a run, the objects it names, and the folder it belongs to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from highway_rl import checks
from highway_rl.deep import loop as train
from highway_rl.deep.algorithms import make_rule
from highway_rl.deep.dqn import DQN
from highway_rl.deep.networks import NETWORKS
from highway_rl.envs.registry import make_learnable
from highway_rl.records.provenance import provenance
from highway_rl.runs import checkpoint
from highway_rl.types import Env


@dataclasses.dataclass(frozen=True)
class Config:
    """What to train. `algos` × `seeds` runs share one compiled program; every field is plain data, kept in config.json.

    `env`, `rule` and `agent` hold options of the environment, of the algorithms and of the agent.
    """

    task: str
    algos: tuple[str, ...] = ("soft-highway-dqn",)
    seeds: int = 1
    seed: int = 0
    env: dict[str, Any] = dataclasses.field(default_factory=dict)
    rule: dict[str, Any] = dataclasses.field(default_factory=dict)
    agent: dict[str, Any] = dataclasses.field(default_factory=dict)
    network: str = "auto"
    schedule: dict[str, Any] = dataclasses.field(default_factory=dict)
    report_every: int = 10_000
    checkpoint_every: int = 500_000
    keep: int = 3
    save_store: bool = True
    episodes: int = 100


class Setup(NamedTuple):
    """A config as the objects it names: one agent that holds all rules, and per run which of them, key and label."""

    env: Env
    agent: DQN
    schedule: train.Schedule
    which: Any
    keys: Any
    labels: list[tuple[str, int]]

    def one(self, which: Any) -> DQN:
        """The agent of a single run."""
        return dataclasses.replace(self.agent, which=which)

    def start(self) -> Callable[[], train.Run]:
        begin = jax.vmap(lambda which, key: train.init(self.env, self.one(which), self.schedule, key))
        return jax.jit(lambda: begin(self.which, self.keys))


def setup(config: Config) -> Setup:
    """Checks a config and builds what it names; that the runs can begin is tried, without computing anything."""
    for name in ("seeds", "report_every", "checkpoint_every", "keep", "episodes"):
        checks.whole(name, getattr(config, name), 1)
    checks.whole("seed", config.seed, 0)
    if config.seed + config.seeds > 2**32:
        raise ValueError(f"seed={config.seed}: with seeds={config.seeds} the last seed must be below 2**32")
    if not isinstance(config.network, str):
        raise ValueError(f"network={config.network!r}: give a name; agents.networks.NETWORKS[name] = function adds one")
    if config.network not in NETWORKS:
        raise checks.unknown("network", config.network, NETWORKS)
    env = make_learnable(config.task, **config.env)
    rules, implied = _rules(config)
    discount = {"discount": 0.996 if config.env.get("delay") else 0.99}
    known = {f.name for f in dataclasses.fields(DQN)} - {"rule", "which", "network", "optimizer"}
    for name, value in (config.rule | config.agent | config.schedule).items():
        if isinstance(value, (tuple, list)) and name not in ("n", "depths"):
            raise ValueError(f"{name}={value!r}: give one value")
    for name in config.agent:
        if name not in known:
            raise ValueError(f"the agent has no setting {name!r}: it has {', '.join(sorted(known))}")
    agent = DQN(rule=rules, network=NETWORKS[config.network], **(discount | implied | config.agent))
    times = {f.name for f in dataclasses.fields(train.Schedule)}
    for name in config.schedule:
        if name not in times:
            raise ValueError(f"the schedule has no setting {name!r}: it has {', '.join(sorted(times))}")
    schedule = train.Schedule(**config.schedule)
    labels = [(algo, config.seed + i) for algo in config.algos for i in range(config.seeds)]
    which = jnp.repeat(jnp.arange(len(config.algos)), config.seeds)
    keys = jnp.stack([jax.random.key(seed) for _, seed in labels])
    made = Setup(env, agent, schedule, which, keys, labels)
    jax.eval_shape(made.start())
    return made


def _rules(config: Config) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The rule of each algorithm, and the settings of the agent they imply, which one program has once for all."""
    if not config.algos:
        raise ValueError("algos is empty: give at least one algorithm")
    for algo in config.algos:
        if config.algos.count(algo) > 1:
            raise ValueError(f"{algo} is given {config.algos.count(algo)} times: give it once, and seeds for more runs")
    made = [make_rule(algo, **config.rule) for algo in config.algos]
    usual = {f.name: f.default for f in dataclasses.fields(DQN)}
    first = made[0][1]
    for algo, (_, implied) in zip(config.algos, made, strict=True):
        for name in first | implied:
            one, other = (x.get(name, usual[name]) for x in (first, implied))
            if one != other:
                raise ValueError(
                    f"{config.algos[0]} has {name}={one!r} and {algo} {name}={other!r}, but the algorithms of one"
                    " program share all settings of the agent: train them one at a time"
                )
    return tuple(rule for rule, _ in made), first


def check_folder(config: Config, out: Path, *, resume: bool) -> bool:
    """Refuses a used folder; or, to resume, one of another config. Only the number of steps may differ from it.

    Whether config.json is still to be written.
    """
    if not resume:
        if any((out / name).exists() for name in ("config.json", "metrics.csv", "checkpoints")):
            raise ValueError(
                f"{out} holds a run already: `highway-rl resume {out}` goes on with it, --out names another"
            )
        return True
    stored, asked = _flat(read_config(out)), _flat(config)
    different = [name for name in stored | asked if stored.get(name) != asked.get(name)]
    for name in different:
        if name != "schedule.steps":
            raise ValueError(
                f"{out} was trained with {name}={stored.get(name, 'default')!r}, not {asked.get(name, 'default')!r}:"
                " only schedule.steps may change when it is resumed"
            )
    return bool(different)


def _flat(config: Config) -> dict[str, Any]:
    """Every setting as config.json has it, under a name of its own such as rule.alpha."""
    fields = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    inner = {f"{k}.{name}": x for k, v in fields.items() if isinstance(v, dict) for name, x in v.items()}
    return {k: v for k, v in fields.items() if not isinstance(v, dict)} | inner


def write_config(config: Config, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**dataclasses.asdict(config), "provenance": provenance()}, indent=2, default=str)
    checkpoint.write_text(out / "config.json", text + "\n")


def read_config(out: Path) -> Config:
    """The config a folder was made with."""
    path = out / "config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found.pop("provenance", None)
        found["algos"] = tuple(found["algos"])
        found["rule"] = {k: tuple(v) if isinstance(v, list) else v for k, v in found["rule"].items()}
        return Config(**found)
    except FileNotFoundError:
        raise ValueError(f"{out} is no training folder: {path} is not there") from None
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a training config: {error}") from None
