"""A trained agent as an object: `agent = highway_rl.load(folder)`; it acts, values, and is evaluated."""

from __future__ import annotations

import contextlib
import csv
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from highway_rl import checks
from highway_rl.deep import dqn
from highway_rl.deep.dqn import DQN
from highway_rl.deep.evaluation import play, summary
from highway_rl.envs.registry import make_env
from highway_rl.runs import checkpoint, folder
from highway_rl.runs.config import Config, Setup, setup
from highway_rl.runs.fit import Trained, fit
from highway_rl.runs.outcome import broken_at, check_origin, saved
from highway_rl.types import Env, Spec


class TrainedAgent:
    """One run's networks. `spec` is what it knows of its environment, `label` and `seed` which run it is, `step` how
    far it was trained, `score` the mean of its greedy test episodes where there were any."""

    def __init__(
        self, config: Config, spec: Spec, agent: DQN, params: PyTree, label: str, seed: int, step: int, score: Any
    ) -> None:
        self.config, self.spec, self.agent, self.params = config, spec, agent, params
        self.label, self.seed, self.step, self.score = label, seed, step, score

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score {self.score:.4g}"
        return f"<{self.label} seed {self.seed} on {self.config.task}, step {self.step:,}{score}>"

    @cached_property
    def _values(self) -> Any:
        return jax.jit(lambda params, obs: dqn.q_values(self.agent, self.spec, params, obs))

    def q_values(self, obs: Any) -> np.ndarray:
        """Q(s, ·): [a] of one observation, [t, a] of a batch."""
        batch, single = self._batch(obs)
        q = np.asarray(self._values(self.params, batch))
        return q[0] if single else q

    def act(self, obs: Any, *, epsilon: float = 0.0, rng: np.random.Generator | None = None) -> Any:
        """The greedy action of one observation, or of each in a batch; random with probability `epsilon`."""
        checks.unit_interval("epsilon", epsilon)
        best = np.argmax(self.q_values(obs), axis=-1)
        if epsilon > 0:
            rng = rng or np.random.default_rng()
            chance = rng.integers(self.spec.num_actions, size=best.shape)
            best = np.where(rng.random(best.shape) < epsilon, chance, best)
        return int(best) if best.ndim == 0 else best

    def evaluate(
        self,
        env: Env | str | None = None,
        episodes: int = 100,
        *,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int = 100_000,
    ) -> dict[str, Any]:
        """So many episodes in an environment, its own by default: score, half its 95 % interval, length, cut off."""
        checks.whole("episodes", episodes, 1)
        found = self._environment(env)
        act = lambda params, obs: dqn.best(dqn.q_values(self.agent, self.spec, params, obs))  # noqa: E731
        go = jax.jit(
            lambda params, key, share: play(
                found, lambda obs: act(params, obs), key, epsilon=share, episodes=episodes, max_steps=max_steps
            )
        )
        played = jax.device_get(go(self.params, jax.random.key(seed), jnp.float32(epsilon)))
        return summary(played, epsilon)

    def _environment(self, env: Env | str | None) -> Env:
        found = make_env(self.config.task, **self.config.env) if env is None else env
        found = make_env(found) if isinstance(found, str) else found
        if not isinstance(found, Env):
            raise checks.refusal("env", type(found).__name__, "a name, or an Env(spec, reset, step) of highway_rl")
        mine, theirs = _shapes(self.spec), _shapes(found.spec)
        if mine != theirs:
            raise ValueError(
                f"{found.spec.name} has observations {theirs[0]} and {theirs[1]} actions, the agent {mine[0]} and"
                f" {mine[1]}: give an environment like the one it was trained on"
            )
        return found

    def _batch(self, obs: Any) -> tuple[PyTree, bool]:
        """Observations with a first axis, and whether there was only one."""
        wanted, structure = jax.tree.flatten(self.spec.observation)
        given, found = jax.tree.flatten(obs, is_leaf=lambda x: isinstance(x, list))
        given = given if bool(found == structure) else [obs]  # type: ignore[operator]
        shapes = [np.shape(x) for x in given]
        for lead in (0, 1):
            if len(given) == len(wanted) and all(s[lead:] == w.shape for s, w in zip(shapes, wanted, strict=True)):
                arrays = [np.asarray(x, w.dtype) for x, w in zip(given, wanted, strict=True)]
                return jax.tree.unflatten(structure, [x if lead else x[None] for x in arrays]), lead == 0
        raise ValueError(
            f"obs has shape {', '.join(map(str, shapes))}: give {', '.join(str(w.shape) for w in wanted)}, or that with"
            " one more axis in front"
        )


def _shapes(spec: Spec) -> tuple[str, int]:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(spec.observation)), spec.num_actions


def train(
    task: Any,
    algo: str | tuple[str, ...] = "soft-highway-dqn",
    *,
    steps: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    episodes: int = 100,
    out: Path | str | None = None,
    preset: str | None = None,
    env: dict[str, Any] | None = None,
    report: Any = lambda news: None,
    **settings: Any,
) -> TrainedAgent:
    """Trains on a named task (or an `Env`) and returns the best agent by its greedy test episodes.

    `settings` are the agent's and the schedule's (learning_rate, k, refresh, …), `env` the environment's options.
    With `out` everything is kept in that folder, where `highway_rl.load(out)` finds the agents again.
    """
    algos = (algo,) if isinstance(algo, str) else algo
    options: dict[str, Any] = {"seeds": seeds, "seed": seed, "steps": steps, "preset": preset, "episodes": episodes}
    config = Config(task, algos, env=env or {}, settings=settings, **options)
    return best(fit(config, out, report=report))


def best(trained: Trained, run: Any = None) -> TrainedAgent:
    """An agent of what was just trained: the one asked for, or the best."""
    rows = {(row["algo"], row["seed"]): row["score"] for row in trained.scores if row["epsilon"] == 0.0}
    scores = [rows.get(label) for label in trained.setup.labels]
    return _pick(trained.setup, trained.params, trained.step, scores, run)


def load(path: Path | str, run: Any = None) -> TrainedAgent:
    """The agent in a training folder; of several the best by its greedy test episodes, or the one `run` names:
    its number, its text such as "dqn:k=2" (the best seed of it), or (text, seed)."""
    s, params, step, _ = load_all(Path(path))
    return _pick(s, params, step, _scores(Path(path), s), run)  # what has not begun has no score


def load_all(out: Path) -> tuple[Setup, list[PyTree], int, dict[int, int]]:
    """The newest sound networks of every program in a folder (None where one has not come to its first checkpoint), how
    far those that have begun have come, and which runs broke when."""
    config = folder.read_config(out)
    s = setup(config)
    params: list[PyTree] = []
    steps = []
    broken: dict[int, int] = {}
    for number, program in enumerate(s.programs):
        kept = out / "checkpoints" / f"program_{number}"
        if number and not checkpoint.steps(kept):
            params.append(None)
            continue
        try:
            where, facts = checkpoint.latest(kept)
        except checkpoint.Missing as error:
            raise ValueError(f"{error}: train it with `highway-rl resume {out}`") from None
        check_origin(facts, config, out)
        run = checkpoint.load(where, saved(config, program.shapes()))
        params.append(run.learning.params)
        steps.append(int(facts["period"]) * program.schedule.refresh)
        broken |= {program.numbers[i]: at for i, at in enumerate(broken_at(run)) if at is not None}
    return s, params, min(steps), broken


def _pick(s: Setup, params: list[PyTree], step: int, scores: list[float | None], run: Any) -> TrainedAgent:
    chosen = _number(s, scores, run)
    which, program = next((j, p) for j, p in enumerate(s.programs) if chosen in p.numbers)
    i = program.numbers.index(chosen)
    if params[which] is None:
        raise ValueError(f"{s.labels[chosen]} has no checkpoint yet: wait for it, or give another run")
    mine = jax.tree.map(lambda x: jnp.asarray(x[i]), params[which])
    own = {place: values[i] for place, values in program.own.items()}
    return TrainedAgent(s.config, s.env.spec, program.one(own), mine, *s.labels[chosen], step, scores[chosen])


def _number(s: Setup, scores: list[float | None], run: Any) -> int:
    """The number of the run that is meant."""
    if isinstance(run, int | np.integer) and not isinstance(run, bool):
        return checks.whole("run", run, 0, len(s.labels) - 1)
    if isinstance(run, tuple | list):
        run = tuple(run)
        if run not in s.labels:
            raise checks.refusal("run", run, f"one of {', '.join(map(str, s.labels))}")
        return s.labels.index(run)
    numbers = [i for i, (label, _) in enumerate(s.labels) if run is None or label == run]
    if not numbers:
        raise checks.unknown("run", run, dict.fromkeys(label for label, _ in s.labels))
    known = {i: score for i in numbers if (score := scores[i]) is not None and not np.isnan(score)}
    return max(numbers, key=lambda i: (known.get(i, -np.inf), -i))


def _scores(out: Path, s: Setup) -> list[float | None]:
    """The greedy score of each run; before there is one, the last of its training."""
    found: dict[tuple[str, int], float] = {}
    broken = (OSError, ValueError, KeyError, TypeError)  # files that a run in progress, or somebody, cut short
    with contextlib.suppress(*broken), (out / "metrics.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["score"] not in ("", "nan", None):
                found[row["algo"], int(row["seed"])] = float(row["score"])
    with contextlib.suppress(*broken):
        stored = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))
        for row in stored["scores"]:
            if row.get("epsilon", 0.0) == 0.0 and row["score"] is not None:
                found[row["algo"], row["seed"]] = row["score"]
    return [found.get(label) for label in s.labels]
