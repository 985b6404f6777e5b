"""A trial is one training run of a deep experiment, as data; a batch, trials that one program trains side by side.

    trials ──batches──> batch ──train──> record ──append──> ledger ──stored──> rows, one a trial

Experiments share the ledger: a trial that two of them want is run once.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from highway_rl.experiments.base import Row, Rows, Scale
from highway_rl.experiments.deep import as_deep
from highway_rl.records import ledger
from highway_rl.records.provenance import provenance
from highway_rl.records.rows import read_metrics
from highway_rl.runs import Config, Trained, fit
from highway_rl.runs.folder import plain
from highway_rl.runs.text import settings

FOLDER = "deep"
"""Where the ledgers lie, one a task, and beside them what is not finished."""
MOST = 40
"""Runs of one program: more take longer than they save."""


class Trial(NamedTuple):
    """One training run. `env` are options of the task, as text; k networks; `algo` may name any other setting."""

    task: str
    env: str
    algo: str
    k: int
    steps: int
    seed: int
    preset: str = "paper"
    episodes: int = 100

    @property
    def id(self) -> str:
        """A short name that tells it from every other."""
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()[:8]

    @property
    def label(self) -> str:
        """The text of the run: its algorithm with k."""
        return f"{self.algo}{',' if '=' in self.algo else ':'}k={self.k}"


class Batch(NamedTuple):
    """Trials that differ in nothing but algorithm and seed: every algorithm with every seed from `seed` on."""

    like: Trial
    algos: tuple[str, ...]
    seeds: int

    @property
    def trials(self) -> list[Trial]:
        first = self.like.seed
        return [self.like._replace(algo=a, seed=s) for a in self.algos for s in range(first, first + self.seeds)]

    @property
    def id(self) -> str:
        return hashlib.sha256(" ".join(t.id for t in self.trials).encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        t = self.like
        what = f"{t.task}{' ' + t.env if t.env else ''} k={t.k}"
        return f"{what}: {len(self.algos)} algorithms × {self.seeds} seeds, {t.steps:,} steps"

    def config(self) -> Config:
        t = self.like
        return Config(
            t.task, tuple(t._replace(algo=algo).label for algo in self.algos), seeds=self.seeds, seed=t.seed,
            steps=t.steps, preset=t.preset, env=settings(t.env.split()), episodes=t.episodes,
            report_every=max(t.steps // (100 if t.steps > 1_000_000 else 20), 1), checkpoint_every=max(t.steps // 4, 1),
            keep=1,
        )  # fmt: skip


def batches(trials: Iterable[Trial]) -> list[Batch]:
    """Trials in as few programs as they need, in the order in which the first of each is wanted."""
    by_shape: dict[Trial, dict[str, list[int]]] = {}
    for trial in dict.fromkeys(trials):
        shape = trial._replace(algo="", seed=0)
        by_shape.setdefault(shape, {}).setdefault(trial.algo, []).append(trial.seed)
    found = []
    for shape, seeds_of in by_shape.items():
        blocks: dict[tuple[int, int], list[str]] = {}
        for algo, seeds in seeds_of.items():
            for block in in_a_row(sorted(seeds)):
                blocks.setdefault(block, []).append(algo)
        for (first, n), algos in blocks.items():
            size = max(MOST // n, 1)
            parts = [tuple(algos[i : i + size]) for i in range(0, len(algos), size)]
            found += [Batch(shape._replace(seed=first), part, n) for part in parts]
    return found


def in_a_row(seeds: list[int]) -> list[tuple[int, int]]:
    """Numbers as first ones and how many follow without a gap.

    >>> in_a_row([0, 1, 2, 7])
    [(0, 3), (7, 1)]
    """
    blocks: list[tuple[int, int]] = []
    for seed in seeds:
        if blocks and seed == sum(blocks[-1]):
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + 1)
        else:
            blocks.append((seed, 1))
    return blocks


def train(
    batch: Batch,
    scale: Scale,
    out: Path,
    *,
    first_seed: int = 0,
    report: Callable[[dict[str, Any]], None] = lambda news: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Trains a batch, or goes on with it, and adds it to the ledger when it is done: whether it is."""
    if {trial.id for trial in batch.trials} <= {row["id"] for row in stored(out)}:
        return True  # somebody else has done it meanwhile
    work = out / FOLDER / "unfinished" / batch.id
    begun = time.perf_counter()
    config, resumed = batch.config(), (work / "config.json").exists()
    with as_deep():
        trained = fit(config, work, report=report, should_stop=should_stop, resume=resumed)
    if not trained.finished:
        return False
    facts = provenance(scale=scale, first_seed=first_seed, resumed=resumed, seconds=time.perf_counter() - begun)
    record = {"config": plain(config), "k": batch.like.k, "preset": batch.like.preset, "env": batch.like.env}
    ledger.append(ledger_of(out, batch.like), record | {"provenance": facts} | _results(batch, trained, work))
    shutil.rmtree(work)
    return True


def _results(batch: Batch, trained: Trained, work: Path) -> Row:
    """What is kept of every run of a batch, and the steps at which their curves have points."""
    curves = read_metrics(work)
    tested = {(row["algo"], row["seed"], row["epsilon"] > 0): row for row in trained.scores}
    runs = []
    for trial in batch.trials:
        mine = [row for row in curves if row["algo"] == trial.label and row["seed"] == trial.seed]
        tests = [tested[trial.label, trial.seed, exploring] for exploring in (False, True)]
        runs.append({"id": trial.id, "algo": trial.algo, "seed": trial.seed} | summary(mine, *tests))
    return {"step": sorted({int(row["step"]) for row in curves}), "runs": runs}


def rerun(out: Path, name: str, report: Callable[[dict[str, Any]], None] = lambda news: None) -> tuple[Row, Row]:
    """A stored trial and the same one made again, with the whole program that it was part of; nothing is stored.

    On the same device, with the same versions and code, the two are equal.
    """
    for path in sorted((out / FOLDER).glob("*.jsonl")):
        for record in ledger.records(path):
            if name not in {run["id"] for run in record["runs"]}:
                continue
            config = record["config"]
            like = Trial(
                config["task"], record["env"], "", record["k"], config["steps"], config["seed"], record["preset"],
                config["episodes"],
            )  # fmt: skip
            batch = Batch(like, tuple(dict.fromkeys(run["algo"] for run in record["runs"])), config["seeds"])
            with tempfile.TemporaryDirectory() as folder, as_deep():
                made = _results(
                    batch, fit(batch.config(), Path(folder) / "again", report=report), Path(folder) / "again"
                )
            again = ledger.plain(made)
            return (
                {**record["provenance"], **next(run for run in record["runs"] if run["id"] == name)},
                {**provenance(), **next(run for run in again["runs"] if run["id"] == name)},
            )
    raise ValueError(f"{name} is no stored run: give the id of one in {out / FOLDER}, as `highway-rl report` shows it")


def summary(curve: Rows, greedy: Row, exploring: Row) -> Row:
    """What is kept of a run: its tests, its last quarter of training, and its thinned curve with what was seen."""
    late = [row for row in curve[-(len(curve) // 4 or 1) :] if row["episodes"]]
    episodes = sum(row["episodes"] for row in late)
    column = lambda name: [row[name] for row in curve]  # noqa: E731
    last = curve[-1]
    opened = [name for name in last if name.startswith("open_")]
    return {
        "greedy": greedy["score"],
        "greedy_half_width": greedy["half_width"],
        "exploring": exploring["score"],
        "training": sum(row["score"] * row["episodes"] for row in late) / episodes if episodes else None,
        "length": greedy["length"],
        "cut_off": greedy["cut_off"],
        "broken": greedy["broken"],
        "error": last["error"],
        "open": {name.removeprefix("open_"): last[name] for name in opened if not np.isnan(last[name])},
        "won": {n.removeprefix("won_"): v for n, v in last.items() if n.startswith("won_") and not np.isnan(v)},
        "ratio": [v for n, v in last.items() if n.startswith("ratio_")],
        "score": column("score"),
        "bias": column("bias"),
        "value": column("value"),
        "largest": column("largest"),
    }


def ledger_of(out: Path, trial: Trial) -> Path:
    """The file of a task with its options."""
    name = "-".join([trial.task.removeprefix("minatar/"), *trial.env.split()])
    return out / FOLDER / f"{re.sub('[^A-Za-z0-9.]+', '-', name)}.jsonl"


def stored(out: Path) -> Rows:
    """A row for every trial in the ledgers: the trial's fields, what is kept of its run, and what made it. The first
    one of two that are equal."""
    found: dict[str, Row] = {}
    for path in sorted((out / FOLDER).glob("*.jsonl")):
        for record in ledger.records(path):
            config, facts = record["config"], record["provenance"]
            shared = {"task": config["task"], "env": record["env"], "k": record["k"], "preset": record["preset"]}
            shared |= {"steps": config["steps"], "episodes": config["episodes"], "step": record["step"], **facts}
            for run in record["runs"]:
                found.setdefault(run["id"], {**shared, **run})
    return list(found.values())
