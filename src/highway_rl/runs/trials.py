"""A trial is one training run that is wanted, as data; a batch, trials that one program trains side by side.

    trials ──batches──> batch ──train──> record ──append──> ledger ──stored──> rows, one a trial

Whoever wants trials shares the ledger: one that two experiments, or two sweeps of a folder, want is run once.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from highway_rl.records import ledger
from highway_rl.records.provenance import provenance
from highway_rl.records.rows import Row, Rows, read_metrics
from highway_rl.runs.config import Config
from highway_rl.runs.fit import fit
from highway_rl.runs.folder import InUse, claimed, plain
from highway_rl.runs.presets import EDITION
from highway_rl.runs.standing import Trained
from highway_rl.runs.text import settings

FOLDER = "deep"
"""Where the ledgers lie, one a task, and beside them what is not finished."""
NEEDED = ("config", "k", "preset", "env", "provenance", "step", "runs")
"""What a line of a ledger has."""
MOST = 40
"""Runs of one program: more take longer than they save."""


class Trial(NamedTuple):
    """One training run. `env` are options of the task, as text; k networks (None: as many as its text or preset says);
    `algo` may name any other setting, and `settings`, as text, those that all runs of its kind share."""

    task: str
    env: str
    algo: str
    k: int | None
    steps: int
    seed: int
    preset: str = "paper"
    episodes: int = 100
    settings: str = ""

    @property
    def id(self) -> str:
        """A short name that tells it from every other; that of trials without settings is older than these."""
        text = repr(tuple(self) if self.settings else tuple(self)[:-1]) + str(EDITION.get(self.preset, ""))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def label(self) -> str:
        """The text of the run: its algorithm with k."""
        return self.algo if self.k is None else f"{self.algo}{',' if '=' in self.algo else ':'}k={self.k}"


class Batch(NamedTuple):
    """Trials that differ in nothing but algorithm and seed: every algorithm with every seed from `seed` on. `imports`
    are modules that register names they use."""

    like: Trial
    algos: tuple[str, ...]
    seeds: int
    imports: tuple[str, ...] = ()

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
        what = " ".join([t.task, *([t.env] if t.env else []), *([] if t.k is None else [f"k={t.k}"])])
        seeds = f"seed {t.seed}" if self.seeds == 1 else f"seeds {t.seed}-{t.seed + self.seeds - 1}"
        algos = self.algos[0] if len(self.algos) == 1 else f"{self.algos[0]} and {len(self.algos) - 1} more"
        return f"{what}: {algos}, {seeds}, {t.steps:,} steps"

    def halves(self) -> list[Batch]:
        """The same trials in two batches."""
        if len(self.algos) > 1:
            half = len(self.algos) // 2
            return [self._replace(algos=part) for part in (self.algos[:half], self.algos[half:])]
        half, later = self.seeds // 2, self.like._replace(seed=self.like.seed + self.seeds // 2)
        return [self._replace(seeds=half), self._replace(like=later, seeds=self.seeds - half)]

    def config(self) -> Config:
        t = self.like
        return Config(
            t.task, tuple(t._replace(algo=algo).label for algo in self.algos), seeds=self.seeds, seed=t.seed,
            steps=t.steps, preset=t.preset, env=settings(t.env.split()), episodes=t.episodes,
            report_every=max(t.steps // (100 if t.steps > 1_000_000 else 20), 1), checkpoint_every=max(t.steps // 4, 1),
            keep=1, imports=self.imports, settings=settings(t.settings.split()),
        )  # fmt: skip


def batches(
    trials: Iterable[Trial], most: int = MOST, alike: Callable[[Trial], Hashable] = lambda trial: None
) -> list[Batch]:
    """Trials in as few programs as they need, in the order in which the first of each is wanted: no more than `most`
    in one, and those together that are `alike`."""
    by_shape: dict[Any, dict[str, list[int]]] = {}
    for trial in dict.fromkeys(trials):
        shape = trial._replace(algo="", seed=0), alike(trial)
        by_shape.setdefault(shape, {}).setdefault(trial.algo, []).append(trial.seed)
    found = []
    for (shape, _), seeds_of in by_shape.items():
        blocks: dict[tuple[int, int], list[str]] = {}
        for algo, seeds in seeds_of.items():
            for first, n in in_a_row(sorted(seeds)):
                for start in range(first, first + n, most):
                    blocks.setdefault((start, min(most, first + n - start)), []).append(algo)
        for (first, n), algos in blocks.items():
            size = max(most // n, 1)
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


@contextlib.contextmanager
def as_deep() -> Iterator[None]:
    """The numbers that deep agents run with, whoever asks."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def train(
    batch: Batch,
    out: Path,
    facts: dict[str, Any],
    *,
    report: Callable[[dict[str, Any]], None] = lambda news: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Trains a batch, or goes on with it, and adds it to the ledger, with what `facts` say of it, when it is done:
    whether it is. A fact is also over how many `devices` its runs are spread."""
    work = unfinished(out, batch.id)
    claim = work.with_name(f"{batch.id}.claim")
    cells = {trial.id for trial in batch.trials}
    with claimed(claim, cells, batch.name):  # from before the first look into the ledger until the row is there
        left = cells - {row["id"] for row in stored(out)}
        if left and left != cells:
            raise InUse(f"{batch.name} is stored in part by now: run the same again for the rest")
        done = not left or _trained(batch, out, facts, report, should_stop)
        if done:
            for folder in (work, claim):
                shutil.rmtree(folder, ignore_errors=True)
    return done


def _trained(batch: Batch, out: Path, facts: dict[str, Any], report: Any, should_stop: Callable[[], bool]) -> bool:
    work = unfinished(out, batch.id)
    begun = time.perf_counter()
    config, resumed = batch.config(), (work / "config.json").exists()
    with as_deep():
        trained = fit(
            config, work, report=report, should_stop=should_stop, resume=resumed, devices=facts.get("devices", 1)
        )
    if not trained.finished:
        return False
    made = provenance(**facts, resumed=resumed, seconds=time.perf_counter() - begun)
    record = {"config": plain(config), "k": batch.like.k, "preset": batch.like.preset, "env": batch.like.env}
    record |= {"settings": batch.like.settings} if batch.like.settings else {}
    ledger.append(ledger_of(out, batch.like), record | {"provenance": made} | results(batch, trained, work))
    return True


def unfinished(out: Path, batch: str) -> Path:
    """Where a batch is trained, by its id."""
    return out / FOLDER / "unfinished" / batch


def results(batch: Batch, trained: Trained, work: Path) -> Row:
    """What is kept of every run of a batch, and the steps at which their curves have points."""
    curves = read_metrics(work)
    tested = {(row["algo"], row["seed"], row["epsilon"] > 0): row for row in trained.scores}
    runs = []
    for trial in batch.trials:
        mine = [row for row in curves if row["algo"] == trial.label and row["seed"] == trial.seed]
        tests = [tested[trial.label, trial.seed, exploring] for exploring in (False, True)]
        runs.append({"id": trial.id, "algo": trial.algo, "seed": trial.seed} | summary(mine, *tests))
    return {"step": sorted({int(row["step"]) for row in curves}), "runs": runs}


def last_quarter(curve: Rows) -> float | None:
    """The mean training score of the episodes that ended in it.

    >>> last_quarter([{"score": 9, "episodes": 9}] * 6 + [{"score": 1, "episodes": 1}, {"score": 3, "episodes": 3}])
    2.5
    """
    late = [row for row in curve[-(len(curve) // 4 or 1) :] if row["episodes"]]
    episodes = sum(row["episodes"] for row in late)
    return sum(row["score"] * row["episodes"] for row in late) / episodes if episodes else None


def summary(curve: Rows, greedy: Row, exploring: Row) -> Row:
    """What is kept of a run: its tests, its last quarter of training, and its thinned curve with what was seen."""
    column = lambda name: [row[name] for row in curve]  # noqa: E731
    last = curve[-1]
    opened = [name for name in last if name.startswith("open_")]
    return {
        "greedy": greedy["score"],
        "greedy_half_width": greedy["half_width"],
        "exploring": exploring["score"],
        "training": last_quarter(curve),
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


def records(out: Path) -> Iterator[Row]:
    """Every record of every ledger."""
    for path in sorted((out / FOLDER).glob("*.jsonl")):
        yield from ledger.records(path, NEEDED)


def stored(out: Path) -> Rows:
    """A row for every trial in the ledgers: the trial's fields, what is kept of its run, and what made it. The first
    one of two that are equal."""
    found: dict[str, Row] = {}
    for record in records(out):
        config, facts = record["config"], record["provenance"]
        shared = {"task": config["task"], "env": record["env"], "k": record["k"], "preset": record["preset"]}
        shared |= {"steps": config["steps"], "episodes": config["episodes"], "step": record["step"], **facts}
        shared["settings"] = record.get("settings", "")
        for run in record["runs"]:
            found.setdefault(run["id"], {**shared, **run})
    return list(found.values())
