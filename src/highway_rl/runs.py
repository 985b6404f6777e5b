"""A run on the host: what to train as data, the loop around the compiled one, its folder, resuming, evaluating.

config.json      what was asked for, and what made it (code, device, versions, date)
metrics.csv      a row per report and run
events…          the same for TensorBoard, where that is installed
checkpoints/     the newest few states
evaluation.json  greedy episodes with the final networks
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl import checkpoint, train
from highway_rl.agents.algorithms import make_rule
from highway_rl.agents.dqn import DQN
from highway_rl.agents.networks import NETWORKS
from highway_rl.agents.settings import check_together
from highway_rl.envs.registry import make_learnable
from highway_rl.metrics import Metrics, rows_of
from highway_rl.provenance import provenance
from highway_rl.types import Env
from highway_rl.validate import unknown, whole

Report = Callable[[dict[str, Any]], None]


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
    """Checks a config and builds what it names."""
    if not config.algos:
        raise ValueError("algos is empty: give at least one algorithm")
    for name in ("seeds", "report_every", "checkpoint_every", "keep", "episodes"):
        whole(name, getattr(config, name), 1)
    if config.network not in NETWORKS:
        raise unknown("network", config.network, NETWORKS)
    env = make_learnable(config.task, **config.env)
    made = [make_rule(name, **config.rule) for name in config.algos]
    if any(implied != made[0][1] for _, implied in made):
        raise ValueError(f"{', '.join(config.algos)} need different networks: train them one at a time")
    discount = {"discount": 0.996 if config.env.get("delay") else 0.99}
    known = {f.name for f in dataclasses.fields(DQN)} - {"rule", "which", "network", "optimizer"}
    for name in config.agent:
        if name not in known:
            raise ValueError(f"the agent has no setting {name!r}: it has {', '.join(sorted(known))}")
    agent = DQN(
        rule=tuple(rule for rule, _ in made),
        network=NETWORKS[config.network],
        **(discount | made[0][1] | config.agent),
    )
    times = {f.name for f in dataclasses.fields(train.Schedule)}
    for name in config.schedule:
        if name not in times:
            raise ValueError(f"the schedule has no setting {name!r}: it has {', '.join(sorted(times))}")
    schedule = train.Schedule(**config.schedule)
    check_together(agent, schedule)
    labels = [(algo, config.seed + i) for algo in config.algos for i in range(config.seeds)]
    which = jnp.repeat(jnp.arange(len(config.algos)), config.seeds)
    keys = jnp.stack([jax.random.key(seed) for _, seed in labels])
    return Setup(env, agent, schedule, which, keys, labels)


class Trained(NamedTuple):
    """What training leaves: the final state of all runs (first axis), who is who, and what went wrong."""

    run: train.Run
    setup: Setup
    step: int
    stopped: list[dict[str, Any]]
    folder: Path | None


def fit(
    config: Config,
    out: Path | None = None,
    *,
    report: Report = lambda row: None,
    should_stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
) -> Trained:
    """Trains, reporting and saving as it goes. `resume` goes on from the newest sound checkpoint in `out`.

    `should_stop` is asked after every period; on yes the state is saved and what there is returned.
    """
    s = setup(config)
    start = s.start()

    def more(which: Any, run: train.Run, first: Any, learn_from: Any) -> tuple[train.Run, train.Curve]:
        return train.advance(s.env, s.one(which), s.schedule, run, first, 1, learn_from)

    go = jax.jit(jax.vmap(more, in_axes=(0, 0, None, None)), donate_argnums=1)
    if resume and out is None:
        raise ValueError("resuming needs the folder of the run")
    period, learn_from, run, pending = _restore(config, s, start, out) if resume and out else (0, 0, start(), [])
    metrics = Metrics(out, s.labels, s.agent, from_step=period * s.schedule.refresh if resume else None)
    saved = period
    stopped: list[dict[str, Any]] = []
    step = period * s.schedule.refresh

    def save() -> None:
        nonlocal saved
        if out is not None and period > saved:
            facts = {"period": period, "pending": [[x.tolist() for x in c[:5]] for c in pending]}
            _save(config, s, out, run, facts, min((x["checkpoint"] for x in stopped), default=-1))
            saved = period

    begun = time.perf_counter()
    first_step = step
    try:
        while period < s.schedule.periods:
            run, curve = go(s.which, run, jnp.int32(period), jnp.int32(learn_from))
            curve = jax.tree.map(lambda x: np.asarray(x)[:, 0], jax.device_get(curve))
            period += 1
            step = period * s.schedule.refresh
            pending.append(curve)
            stopped += _broken(curve, s, {x["run"] for x in stopped}, saved * s.schedule.refresh, report)
            if step % config.report_every < s.schedule.refresh or period == s.schedule.periods:
                speed = (step - first_step) / (time.perf_counter() - begun)
                rows = rows_of(pending, s.labels, s.agent, s.which)
                metrics.write(rows)
                report({"step": step, "of": s.schedule.steps, "speed": speed, "rows": rows})
                pending = []
            if step % config.checkpoint_every < s.schedule.refresh:
                save()
            if len(stopped) == len(s.labels) or should_stop():
                break
        save()
    finally:
        metrics.close()
    return Trained(run, s, step, stopped, out)


def _broken(
    curve: train.Curve, s: Setup, known: set[int], checkpoint_step: int, report: Report
) -> list[dict[str, Any]]:
    """Runs whose loss or reward stopped being a number in this period."""
    found = []
    for i in np.flatnonzero(curve.broken != train.NEVER):
        if int(i) in known:
            continue
        algo, seed = s.labels[i]
        last = {k: float(getattr(curve.seen, k)[i]) for k in ("value", "largest", "error", "bias")}
        found.append(
            {
                "run": int(i),
                "algo": algo,
                "seed": seed,
                "step": int(curve.broken[i]),
                "checkpoint": checkpoint_step,
                "diagnostics": {"loss": float(curve.loss[i]), **last},
            }
        )
        report({"stopped": found[-1]})
    return found


def _saved(config: Config, run: train.Run) -> Any:
    return run if config.save_store else (*run[:2], *run[3:])


def _save(config: Config, s: Setup, out: Path, run: train.Run, facts: dict[str, Any], pinned: int) -> None:
    step = facts["period"] * s.schedule.refresh
    try:
        checkpoint.save(out / "checkpoints", step, _saved(config, run), facts, keep=config.keep, pinned=pinned)
    except OSError as error:
        warnings.warn(f"no checkpoint at step {step}: {error}; the ones before are in place", stacklevel=2)


def _restore(config: Config, s: Setup, start: Any, out: Path) -> tuple[int, int, train.Run, list[train.Curve]]:
    """Period to go on with, the period to learn from, the state of all runs, and periods not yet reported."""
    path, facts = checkpoint.latest(out / "checkpoints")
    empty = jax.eval_shape(start)
    loaded = checkpoint.load(path, _saved(config, empty))
    period = int(facts["period"])
    pending = [train.Curve._make([*map(np.asarray, c), None, None, None]) for c in facts["pending"]]
    if config.save_store:
        return period, 0, loaded, pending
    run = train.Run._make((*loaded[:2], None, *loaded[2:]))
    store = jax.vmap(lambda obs: train.new_store(s.env, s.schedule, obs))(run.env.obs)
    return period, period + math.ceil(s.schedule.start / s.schedule.refresh), run._replace(store=store), pending


def write_config(config: Config, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**dataclasses.asdict(config), "provenance": provenance()}, indent=2, default=str)
    (out / "config.json").write_text(text + "\n", encoding="utf-8")


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


def sentence(stopped: dict[str, Any]) -> str:
    """A run that broke, in words."""
    last = ", ".join(f"{k} {v:.4g}" for k, v in stopped["diagnostics"].items())
    return (
        f"{stopped['algo']} seed {stopped['seed']} stopped at step {stopped['step']:,}: its loss or reward is no longer"
        f" a number ({last}); the checkpoint of step {stopped['checkpoint']:,} is kept"
    )


def load(out: Path) -> tuple[Config, Any, Setup, int]:
    """The newest sound networks in a training folder, what they belong to, and how far they have come."""
    config = read_config(out)
    s = setup(config)
    path, facts = checkpoint.latest(out / "checkpoints")
    loaded = checkpoint.load(path, _saved(config, jax.eval_shape(s.start())))
    learning = loaded.learning if config.save_store else loaded[0]
    return config, learning.params, s, int(facts["period"]) * s.schedule.refresh
