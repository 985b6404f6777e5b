"""A sweep: every task × algorithm × seed of a spec, as trials of the one queue, into a folder.

    spec ──trials──> cells ──batches, by the shape of their program──> queue, the dearest first ──> ledgers

A cell that is stored is not run again, whoever ran it, and what was cut off goes on: the same call again finishes the
sweep, and several at once share it. How cells are put into programs does not depend on who runs them, so neither do
their numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from highway_rl import checks
from highway_rl.machines import group
from highway_rl.machines.workers import check_workers
from highway_rl.records.rows import Rows, write_text
from highway_rl.runs import queue, text, trials
from highway_rl.runs.config import Setup, devices_of, plain_value, setup
from highway_rl.runs.estimate import estimate
from highway_rl.runs.fit import led
from highway_rl.runs.folder import check_writable
from highway_rl.runs.presets import preset as settings_of
from highway_rl.runs.presets import preset_name, with_file
from highway_rl.runs.trials import MOST, Batch, Trial

SPEC = "sweep.json"
MANY = 1_000_000
"""Seeds of one sweep."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What to run: every task with every algorithm (a list in its text sweeps) and every seed. `seeds` are numbers, a
    range, a text such as "0-99" or "0,3,7", or how many there are from 0 on. `most` runs share a program. Without
    algorithms it is the preset file's, else soft-highway-dqn."""

    tasks: tuple[str, ...]
    algos: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    preset: str | None = None
    env: dict[str, Any] = dataclasses.field(default_factory=dict)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    imports: tuple[str, ...] = ()
    episodes: int = 100
    most: int = MOST

    def __post_init__(self) -> None:
        for name in ("tasks", "algos", "imports"):
            given = getattr(self, name)
            if not isinstance(given, Iterable):
                raise checks.refusal(name, given, "a list of names")
            words = (given,) if isinstance(given, str) else tuple(given)
            if not all(isinstance(word, str) for word in words):
                raise checks.refusal(name, given, "names: workers in other processes find things by name")
            object.__setattr__(self, name, tuple(dict.fromkeys(words)))
        for name in ("env", "settings"):
            if not isinstance(getattr(self, name), Mapping):
                raise checks.refusal(name, getattr(self, name), "names and their values")
        preset, algos, settings = with_file(self.preset, self.algos, self.settings)
        for name, value in (("preset", preset), ("algos", algos), ("settings", settings)):
            object.__setattr__(self, name, value)
        if self.steps is not None:
            checks.whole("steps", self.steps, 1)
        for name in ("env", "settings"):
            plain = {key: plain_value(key, value) for key, value in getattr(self, name).items()}
            object.__setattr__(self, name, plain)
        object.__setattr__(self, "seeds", seeds_of(self.seeds))
        checks.whole("most", self.most, 1)
        if not self.tasks:
            raise ValueError("a sweep without tasks has no cells: give at least one")

    def trials(self) -> list[Trial]:
        """All cells."""
        labels = [one.label for algo in self.algos for one in text.parse(algo)]
        env, settings = (" ".join(f"{k}={as_text(v)}" for k, v in x.items()) for x in (self.env, self.settings))
        found = []
        for task in self.tasks:
            preset = preset_name(self.preset, task)
            steps = settings_of(preset, task)["steps"] if self.steps is None else self.steps
            like = Trial(task, env, "", None, steps, 0, preset, self.episodes, settings)
            found += [like._replace(algo=label, seed=seed) for label in labels for seed in self.seeds]
        return found


def seeds_of(given: Any) -> tuple[int, ...]:
    """Seeds as numbers.

    >>> seeds_of("0-3"), seeds_of("5,7"), seeds_of(2)
    ((0, 1, 2, 3), (5, 7), (0, 1))
    """
    refused = checks.refusal("seeds", given, "a range such as 0-99, numbers such as 0,3,7, or how many")
    if isinstance(given, str):
        parts = [part.split("-") for part in given.split(",")]
        if not all(len(part) <= 2 and all(number.strip().isdigit() for number in part) for part in parts):
            raise refused
        spans = [range(int(part[0]), int(part[-1]) + 1) for part in parts]
        if not all(spans) or sum(map(len, spans)) > MANY:
            raise refused
        given = int(given) if given.strip().isdigit() else [seed for span in spans for seed in span]
    if isinstance(given, int):
        given = range(checks.whole("seeds", given, 1, MANY))
    if not isinstance(given, Iterable):
        raise refused
    found = tuple(checks.whole("seeds", seed, 0, 2**32 - 1) for seed in given)
    if not found:
        raise refused
    return tuple(sorted(dict.fromkeys(found)))


def as_text(value: Any) -> str:
    """A value as `text.value` reads it back.

    >>> as_text((1, 2, "end")), as_text(True), as_text(1e-5), as_text((3,))
    ('1,2,end', 'true', '1e-05', '3,')
    """
    if isinstance(value, tuple | list):
        return ",".join(map(as_text, value)) + "," * (len(value) == 1)
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_spec(path: Path) -> Sweep:
    """A spec from a TOML file, with the fields of `Sweep`; or from the sweep.json of a folder."""
    try:
        if path.name == SPEC:
            found = json.loads(path.read_text(encoding="utf-8"))
            found.pop("workers", None)
        else:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is not there: give a TOML file with tasks, algos, seeds, …") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML ({checks.one_line(error)}): write it as name = value lines") from None
    checks.options(str(path), found, [field.name for field in dataclasses.fields(Sweep)])
    if "tasks" not in found:
        raise ValueError(f'{path} names no tasks: write tasks = ["late"] into it')
    return Sweep(**found)


def sweep(
    tasks: Any,
    algos: Any = (),
    *,
    out: Path | str,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    minutes: float | None = None,
    devices: int | str = 1,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Rows:
    """Runs what is not stored yet of a `Sweep` (given as one, or as its fields), into the folder `out`, and returns the
    rows of its cells.

    `executor` "local" has `workers` processes of this machine, one of them this one; "ray" as many actors of the
    cluster at `address`, or of one on this machine. With `minutes` it stops in time to save what is under way.
    `devices`: each program's runs are spread over so many, or "all" that its worker sees, or those of a "group" of
    processes that all call this; the first one writes.
    """
    spec = tasks if isinstance(tasks, Sweep) else Sweep(tasks, algos, **options)
    out = Path(out).absolute()
    how: dict[str, Any] = {"executor": executor, "workers": workers, "address": address, "minutes": minutes}
    check_workers(executor, workers, address)
    if devices == "group" and (executor != "local" or workers not in (None, 1)):
        raise ValueError("a group of processes is its own executor: leave executor and workers out")
    with trials.as_deep() if devices == "group" else contextlib.nullcontext(), led(devices) as leads:
        if not leads:
            return []
        plan = Plan(spec, out)
        if executor == "local":
            for made in plan.made.values():
                devices_of(devices, made.env)
        check_writable(out)
        write_spec(spec, out, workers)
        said: set[str] = set()

        def once(text: str) -> None:
            if text not in said:
                said.add(text)
                say(text)

        while not queue.work(plan.pending, out, {"devices": devices}, say=once, **how) and minutes is None:
            time.sleep(1)  # what is left is trained by somebody else
    mine = {trial.id for trial in spec.trials()}
    return [row for row in trials.stored(out) if row["id"] in mine]


def joined() -> bool:
    """Joins the group of this process; whether it leads it."""
    group.join()
    return group.leads()


def write_spec(spec: Sweep, out: Path, workers: int | None) -> None:
    """The spec of the folder's latest sweep, for `status`."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / SPEC, json.dumps(dataclasses.asdict(spec) | {"workers": workers}, indent=2) + "\n")


class Plan:
    """The batches of a sweep, the dearest first: by the seconds that cells of the same task took, or, before there are
    any, by an estimate. Everything is checked before anything runs."""

    def __init__(self, spec: Sweep, out: Path) -> None:
        self.spec, self.out = spec, out
        self.cells = spec.trials()
        self.made: dict[str, Setup] = {}
        self.programs: dict[tuple[str, str], int] = {}
        for task in spec.tasks:
            like = next(trial for trial in self.cells if trial.task == task)
            algos = tuple(dict.fromkeys(trial.algo for trial in self.cells))
            with trials.as_deep():
                made = self.made[task] = setup(Batch(like, algos, 1, spec.imports).config())
            for number, program in enumerate(made.programs):
                self.programs |= {(task, label): number for label, _ in program.labels}

    def pending(self, rows: Rows, under_way: Iterable[Batch]) -> list[Batch]:
        """What is still to be trained."""
        done = {row["id"] for row in rows} | {trial.id for batch in under_way for trial in batch.trials}
        left = (trial for trial in self.cells if trial.id not in done)
        found = trials.batches(left, self.spec.most, lambda trial: self.programs[trial.task, trial.algo])
        measured = rates(self.out)
        return sorted((b._replace(imports=self.spec.imports) for b in found), key=lambda b: -self.cost(b, measured))

    def cost(self, batch: Batch, measured: dict[str, float]) -> float:
        """Seconds it will take."""
        if batch.like.task in measured:
            return measured[batch.like.task] * work_of(batch.trials)
        made = self.made[batch.like.task]
        kinds = {run.label: (run.label, run.agent, run.schedule) for run in made.runs if run.label in batch.algos}
        with trials.as_deep():
            return estimate(made.env, list(kinds.values()), batch.seeds).seconds


def work_of(cells: Iterable[Trial]) -> float:
    """Steps of all runs."""
    return float(sum(trial.steps for trial in cells))


def rates(out: Path) -> dict[str, float]:
    """By task: the seconds that a step of a run took, of all that is stored."""
    spent: dict[str, tuple[float, float]] = {}
    for record in trials.records(out):
        config = record["config"]
        seconds, work = spent.get(config["task"], (0.0, 0.0))
        work += config["steps"] * len(record["runs"])
        spent[config["task"]] = seconds + record["provenance"]["seconds"], work
    return {task: seconds / work for task, (seconds, work) in spent.items()}
