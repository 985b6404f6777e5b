"""Agents of what was trained: train and have the best, or load one of a folder or a file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from highway_rl import checks
from highway_rl.runs import checkpoint, folder
from highway_rl.runs.callbacks import TargetScore
from highway_rl.runs.config import Config, Setup, setup
from highway_rl.runs.fit import fit
from highway_rl.runs.outcome import News, broken_at, check_origin, measured, saved, score, tested
from highway_rl.runs.presets import with_file
from highway_rl.runs.standing import Trained
from highway_rl.runs.trained import TrainedAgent


def train(
    task: Any,
    algo: str | tuple[str, ...] = (),
    *,
    steps: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    episodes: int = 100,
    out: Path | str | None = None,
    preset: str | None = None,
    env: dict[str, Any] | None = None,
    delay: Any = None,
    report: Any = lambda news: None,
    callbacks: Any = (),
    target_score: float | None = None,
    resume: bool = False,
    **settings: Any,
) -> TrainedAgent:
    """Trains on a named task (or an `Env`, a gymnasium.Env class, a function that makes one) and returns the best agent
    by its greedy test episodes.

    It ends early where every run has scored `target_score` on average of its last 100 training episodes, or where one
    of the `callbacks` says so (see `runs.callbacks`). `settings` are the agent's and the schedule's (learning_rate, k,
    refresh, …), `env` the environment's options; `delay` = "end", 20 or "1-20" pays its rewards late. `preset` is a
    word or a file (see `presets`); without `algo` it is the file's, else soft-highway-dqn.
    With `out` everything is kept in that folder, where `highway_rl.load(out)` finds the agents again; with `resume`
    what was stopped there goes on.
    """
    preset, algos, settings = with_file(preset, (algo,) if isinstance(algo, str) else algo, settings)
    options: dict[str, Any] = {"seeds": seeds, "seed": seed, "steps": steps, "preset": preset, "episodes": episodes}
    late = {} if delay is None else {"delay": delay}
    config = Config(task, algos, env=(env or {}) | late, settings=settings, **options)
    listeners = [*callbacks, *([] if target_score is None else [TargetScore(target_score)])]
    return best(fit(config, out, report=report, callbacks=listeners, resume=resume))


def best(trained: Trained, run: Any = None) -> TrainedAgent:
    """An agent of what was just trained: the one asked for, or the best."""
    found = _pick(trained.setup, trained.params, trained.step, tested(trained.scores), run)
    found._trained = trained
    return found


def load(path: Path | str, run: Any = None, imports: Collection[str] = ()) -> TrainedAgent:
    """The agent in a file that `agent.save` wrote, or in a training folder; of several the best by its greedy test
    episodes, or the one `run` names: its number, its text such as "dqn:k=2" (the best seed of it), or (text, seed).

    A file runs no code: where its network or algorithm is yours, name the modules that it may import, as `imports`. A
    folder imports what its config names."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path} is not there: give a file that agent.save wrote, or a training folder")
    if path.is_file():
        if run is not None:
            raise checks.refusal("run", run, f"None: {path} holds one agent")
        from highway_rl.runs import agent_file

        return TrainedAgent(*agent_file.read(path, imports))
    s, params, step, _ = load_all(path)
    found = _pick(s, params, step, measured(path), run)
    found._trained = Trained(s, params, step, False, [], [], None, path)
    return found


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
        params.append(program.left(run))
        steps.append(int(facts["period"]) * program.schedule.refresh)
        broken |= {program.numbers[i]: at for i, at in enumerate(broken_at(run)) if at is not None}
    return s, params, min(steps), broken


def _pick(s: Setup, params: list[PyTree], step: int, found: dict[tuple[str, int], News], run: Any) -> TrainedAgent:
    measures = [found.get(label, {}) for label in s.labels]  # of what has not begun there are none
    scores = [score(one) for one in measures]
    chosen = _number(s, scores, run)
    which, program = next((j, p) for j, p in enumerate(s.programs) if chosen in p.numbers)
    i = program.numbers.index(chosen)
    if params[which] is None:
        raise ValueError(f"{s.labels[chosen]} has no checkpoint yet: wait for it, or give another run")
    mine = jax.tree.map(lambda x: jnp.asarray(x[i]), params[which])
    own = {place: values[i] for place, values in program.own.items()}
    run_of = (*s.labels[chosen], step, scores[chosen], measures[chosen])
    return TrainedAgent(s.config, s.env.spec, program.one(own), mine, *run_of)


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
