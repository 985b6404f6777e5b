"""Search for the settings that matter where the reward comes late, with Optuna, and an honest look at what it found.

    study in the folder ──asks──> a run's text ──fit, several seeds in one program, pruned on the way──> score ──> study
    the best text and the default, both with fresh seeds ──sweep──> rows ──> preset.json, and whether it is better

The study is a file: what was interrupted goes on with it. Its best score is the largest of many, and so too good to be
true; what counts is the comparison with seeds that the search has not seen. Needs the extra `tune`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from highway_rl import checks
from highway_rl.records.provenance import provenance
from highway_rl.records.rows import Rows, write_text
from highway_rl.records.statistics import Interval, mean, probability_of_improvement
from highway_rl.runs.callbacks import Pruning
from highway_rl.runs.config import Config, setup
from highway_rl.runs.fit import fit
from highway_rl.runs.folder import locked
from highway_rl.runs.presets import DEFAULT, EDITION, preset, preset_name
from highway_rl.runs.sweep import sweep
from highway_rl.runs.trials import as_deep

FRESH = 10_000
"""The first seed of the comparison; the search has those from 0 on."""
PRESET, STUDY = "preset.json", "study.db"
ALGOS: dict[str, dict[str, Any]] = {
    "soft-highway-dqn": {"depths": ("1,2,end", "1,end", "1,2,4,8,end"), "alpha": (1e-3, 10.0)},
    "n-step-highway-dqn": {"n": ("2", "4", "8", "16", "end")},
    "n-step-dqn": {"n": ("2", "4", "8", "16", "end")},
    "lambda-dqn": {"lam": (0.5, 0.999)},
    "dqn": {},
}
"""Algorithms, and what each may have of its own: words to choose from, or the ends of a range."""
SHARED: dict[str, Any] = {
    "k": ("1", "2", "4"),
    "learning_rate": (1e-4, 3e-3),
    "refresh": ("50", "100", "250", "500", "1000"),
    "epsilon_end": (0.005, 0.2),
    "epsilon_share": (0.02, 1.0),
}
"""The same for all of them; `epsilon_share` is the part of all steps in which ε falls."""


class Tuned(NamedTuple):
    """What the search found: the text of the best run, its score in the search, the scores of it and of the default
    with fresh seeds, how likely a run of it scores more, and the preset file."""

    text: str
    searched: float
    scores: dict[str, list[float]]
    improvement: Interval[float]
    preset: Path

    @property
    def verdict(self) -> str:
        """In words, from the interval of the probability: chance alone is 1/2."""
        if self.improvement.low > 0.5:
            return "better than the default"
        return "worse than the default" if self.improvement.high < 0.5 else "not better than the default"


def tune(
    task: str,
    *,
    out: Path | str,
    trials: int = 30,
    seeds: int = 3,
    fresh: int = 10,
    report: Callable[[str], None] = lambda text: None,
    **config: Any,
) -> Tuned:
    """Searches until `trials` settings are tried, each with `seeds` seeds in one program, in all calls with this folder
    together; then trains the best and the default with `fresh` new seeds. `config` are fields of `Config`: steps,
    preset, env, imports, episodes."""
    optuna = _optuna()
    for name, value in (("trials", trials), ("seeds", seeds), ("fresh", fresh)):
        checks.whole(name, value, 1)
    checks.options("tune", config, ("steps", "preset", "env", "imports", "episodes"))
    out = Path(out).absolute()
    steps = config.pop("steps", None) or preset(config.get("preset"), task)["steps"]
    base = Config(task, (DEFAULT,), seeds=seeds, steps=steps, report_every=max(steps // 10, 1), **config)
    with as_deep():
        setup(base)  # the default is trained at the end: what it refuses is better known before the search
    with locked(out):
        study = _study(optuna, out, base)
        _search(optuna, study, base, trials, report)
        best = study.best_trial
        text = best.user_attrs["text"]
        report(f"the best of {len(_ended(study))}: {text}, {best.value:.4g} in the search; fresh seeds decide")
        shared: dict[str, Any] = {"env": base.env, "imports": base.imports, "episodes": base.episodes}
        algos = (DEFAULT, text)
        rows = sweep(
            task, algos, seeds=range(FRESH, FRESH + fresh), steps=steps, preset=base.preset, out=out / "fresh", **shared
        )
    return _written(out, base, text, float(best.value), rows)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError("tune needs a package that is not here: run pip install 'highway-rl[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(optuna: Any, out: Path, base: Config) -> Any:
    """The study of the folder. It begins with the default; what was under way when it was interrupted comes again."""
    known = (out / STUDY).exists()
    seed = len(optuna.load_study(study_name="tune", storage=f"sqlite:///{out / STUDY}").trials) if known else 0
    study = optuna.create_study(
        study_name="tune", storage=f"sqlite:///{out / STUDY}", load_if_exists=True, direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed, multivariate=False),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=(base.steps or 0) // 4),
    )  # fmt: skip
    what = json.loads(json.dumps({name: getattr(base, name) for name in ("task", "steps", "seeds", "preset", "env")}))
    what["edition"] = EDITION.get(preset_name(base.preset, base.task))
    before = study.user_attrs.get("what", what)
    for name in what:
        if before.get(name) != what[name]:
            raise ValueError(
                f"{out} holds a search with {name}={before.get(name)!r}, not {what[name]!r}: give another --out"
            )
    study.set_user_attr("what", what)
    if not study.trials:
        study.enqueue_trial(_as_default(base))
    for trial in study.trials:
        if trial.state == optuna.trial.TrialState.RUNNING:
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(trial.params)
    return study


def _ended(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def _search(optuna: Any, study: Any, base: Config, trials: int, report: Callable[[str], None]) -> None:
    while len(_ended(study)) < trials:
        trial = study.ask()
        text = suggested(trial, base)
        trial.set_user_attr("text", text)
        try:
            with as_deep():
                made = fit(_replaced(base, text), callbacks=[Pruning(trial)])
        except optuna.TrialPruned:
            score = None
        else:
            found = [row["score"] for row in made.scores if row["epsilon"] == 0]
            score = None if any(x is None or math.isnan(x) for x in found) else float(mean(found))
        state = optuna.trial.TrialState.PRUNED if score is None else optuna.trial.TrialState.COMPLETE
        study.tell(trial, score, state=state)
        report(f"trial {trial.number}: {text}: {'pruned' if score is None else f'{score:.4g}'}")


def _replaced(base: Config, text: str) -> Config:
    return Config(**{**vars(base), "algos": (text,)})


def suggested(trial: Any, base: Config) -> str:
    """The text of a run, from what an Optuna trial suggests."""
    algo = trial.suggest_categorical("algo", tuple(ALGOS))
    own = {name: _suggest(trial, f"{algo}.{name}", among) for name, among in ALGOS[algo].items()}
    shared = {name: _suggest(trial, name, among) for name, among in space(base).items()}
    shared["epsilon_steps"] = str(max(1, round(float(shared.pop("epsilon_share")) * (base.steps or 0))))
    return f"{algo}:" + ",".join(f"{name}={value}" for name, value in (own | shared).items())


def space(base: Config) -> dict[str, Any]:
    """What all algorithms share, with the refreshes that divide the steps."""
    fit_in = tuple(text for text in SHARED["refresh"] if (base.steps or 0) % int(text) == 0)
    if not fit_in:
        raise checks.refusal("steps", base.steps, f"a multiple of one of {', '.join(SHARED['refresh'])}")
    return SHARED | {"refresh": fit_in}


def _suggest(trial: Any, name: str, among: Any) -> str:
    if isinstance(among[0], str):
        return str(trial.suggest_categorical(name, among))
    low, high = among
    return f"{trial.suggest_float(name, low, high, log=high / low > 10):.3g}"


def _as_default(base: Config) -> dict[str, Any]:
    """The default preset, as near as the space has it."""
    said = {"num_networks": 1, "learning_rate": 2.5e-4, "refresh": 1000, "epsilon_end": 0.1, "epsilon_steps": 1e5}
    said |= preset(base.preset, base.task)
    share = min(1.0, max(0.02, said["epsilon_steps"] / (base.steps or 1)))
    refresh = str(said["refresh"]) if str(said["refresh"]) in space(base)["refresh"] else space(base)["refresh"][-1]
    return {
        "algo": DEFAULT, f"{DEFAULT}.depths": "1,2,end", f"{DEFAULT}.alpha": 0.005, "k": str(said["num_networks"]),
        "learning_rate": said["learning_rate"], "refresh": refresh, "epsilon_end": said["epsilon_end"],
        "epsilon_share": share,
    }  # fmt: skip


def _written(out: Path, base: Config, text: str, searched: float, rows: Rows) -> Tuned:
    """The preset file, with what it was compared with."""
    scores: dict[str, list[float]] = {DEFAULT: [], text: []}
    for row in rows:
        scores[row["algo"]].append(float("-inf") if row["greedy"] is None else row["greedy"])
    least = min(x for found in scores.values() for x in found if math.isfinite(x))
    scores = {algo: [max(x, least) for x in found] for algo, found in scores.items()}  # what broke did no better
    improvement = probability_of_improvement({base.task: scores[text]}, {base.task: scores[DEFAULT]})
    tuned = Tuned(text, searched, scores, improvement, out / PRESET)
    name = preset_name(base.preset, base.task)
    facts = {"task": base.task, "env": base.env, "steps": base.steps, "scores": scores, "verdict": tuned.verdict}
    made = {"preset": name, "algo": text, "settings": {}, "tuned": facts, "provenance": provenance()}
    write_text(out / PRESET, json.dumps(made, indent=2) + "\n")
    return tuned
