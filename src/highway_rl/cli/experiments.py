"""Commands around experiments: run, plot, check."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from highway_rl.cli.console import coloured, progress, table

Scale = Literal["smoke", "quick", "paper"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Run an experiment: rows to a file with their provenance, figures drawn from it, claims judged by it.

    Experiments that train networks share their runs in results/deep; one that is stored already is not run again.

    highway-rl run multi-room --scale paper

    highway-rl run deep --scale paper --minutes 9 --workers 2

    highway-rl run main --cell 22740ce6
    """

    experiment: Annotated[Positional[str], arg(metavar="EXPERIMENT")]
    """Its name, as `highway-rl list` shows it; "all"; or "deep": all that train networks, as one queue."""
    scale: Scale = "quick"
    """smoke: seconds, to see that it works; quick: minutes; paper: the paper's size."""
    out: Path = Path("results")
    """Folder for the rows and the figures."""
    seed: int = 0
    """Seed of everything random; the same seed gives the same rows."""
    workers: int | None = None
    """Cells run side by side, each in a process of its own; by default what suits the experiment."""
    executor: Literal["local", "ray"] = "local"
    """Where networks are trained: on this machine, or on a Ray cluster (pip install 'highway-rl[ray]')."""
    address: str | None = None
    """Of a Ray cluster that is running; by default one is begun on this machine."""
    minutes: float | None = None
    """Stop training networks after so many minutes; the same command goes on from there."""
    cell: str | None = None
    """Make this stored training run again, by its id, and compare; nothing is written. EXPERIMENT is one that it is of,
    or "deep", which has all; ids stand in the tables of `highway-rl report`."""
    resume: bool = False
    """Keep the rows of cells that are stored already, if the same code, scale and seed made them."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.experiments import base, queue

        names = {"all": list(base.experiments().values()), "deep": queue.deep()}
        chosen = names.get(self.experiment) or [base.find(self.experiment)]
        trained = [experiment for experiment in chosen if experiment.stages is not None]
        if self.cell is not None:
            return self.again(self.cell)
        if self.minutes is not None and not trained:
            raise ValueError(
                f"{self.experiment} trains no networks: leave --minutes out, --resume goes on with its rows"
            )
        if self.executor != "local" and not trained:
            raise ValueError(f"{self.experiment} trains no networks: leave --executor out, --workers has several cores")
        if trained:
            with progress(f"{self.experiment} ({self.scale})") as step:
                limits: dict[str, Any] = {"minutes": self.minutes, "workers": self.workers}
                limits |= {"executor": self.executor, "address": self.address}
                whole = queue.work(trained, self.scale, self.seed, self.out, step, **limits, say=print)
            print(f"rows: {trained[0].path(self.out)}{'' if whole else ', more to come: run the same again'}")
            shown = {row["scale"] for experiment in trained for row in experiment.found(self.out)}
            if shown - {self.scale}:
                print(f"{self.out} also holds runs of a larger scale, which the figures show: give another --out")
        for experiment in chosen:
            if experiment.stages is None:
                with progress(f"{experiment.name} ({self.scale})") as step:
                    size: dict[str, Any] = {"workers": self.workers, "resume": self.resume}
                    path = base.run(experiment, self.scale, self.seed, self.out, step, **size)
                print(f"rows: {path}")
            try:
                Plot(experiment=experiment.name, out=self.out)()
            except ValueError as error:  # none of its runs has had its turn yet
                if experiment.stages is None:
                    raise
                print(error)
                continue
            Check(experiment=experiment.name, out=self.out)()

    def again(self, name: str) -> None:
        """The stored run of that id, if what is named has it, beside the same one made now."""
        from highway_rl.experiments import queue

        plain = Run(experiment=self.experiment, out=self.out, cell=name, debug=self.debug)
        for field in dataclasses.fields(self):
            if getattr(self, field.name) != getattr(plain, field.name):
                raise ValueError(f"--cell makes one stored run again, as it was: leave --{field.name} out")
        known = [experiment.name for experiment in queue.deep()]
        if self.experiment not in (*known, "deep", "all"):
            raise ValueError(
                f"{self.experiment} keeps no runs by id: leave --cell out, or give it with deep, which has all, or with"
                f" one of {', '.join(known)}"
            )
        if self.experiment in known and self.experiment not in (of := queue.of_which(self.out, name)):
            raise ValueError(
                f"cell {name!r} is none of {self.experiment}'s: give one of {', '.join([*of, 'deep'])} as EXPERIMENT"
            )
        compare(self.out, name, self.experiment)


def compare(out: Path, name: str, experiment: str = "deep") -> None:
    """A stored run beside the same one made now; fails where a number is another."""
    from highway_rl.experiments.report import duration
    from highway_rl.records.provenance import provenance
    from highway_rl.runs import checkout
    from highway_rl.runs.again import program_of, rerun

    record, batch = program_of(out, name)
    made, here = record["provenance"], provenance()
    runs = len(record["runs"])
    print(
        f"run {name} is one of {runs} that a program trained side by side, and all are made again: {batch.name}\n"
        f"stored: {duration(made['seconds'])} on {made['device']} with jax {made['jax']}, by commit {made['commit']}"
    )
    new = [f"{what} ({here[what]})" for what in ("device", "jax", "code") if here[what] != made[what]]
    if new:
        print(f"other here: {', '.join(new)}; so numbers may be others")
    if here["code"] != made["code"]:
        python = "python" if shutil.which("python") == sys.executable else sys.executable
        print(checkout.again(made, name, experiment, str(out), python))
    with progress(f"run {name} again", unit="steps") as step:

        def watch(news: dict[str, Any]) -> None:
            if news.get("rows"):
                step(news["rows"][0]["step"], batch.like.steps)

        before, now = rerun(out, name, watch)
    shown = ("commit", "code", "device", "jax", "greedy", "exploring", "training", "error")
    table(("", "stored", "now"), [(key, str(before.get(key)), str(now.get(key))) for key in shown])
    numbers = [
        key for key in before if key in now and isinstance(before[key], float | list | dict) and key != "seconds"
    ]
    other = [key for key in numbers if before[key] != now[key]]
    print("all numbers are the same" if not other else f"other numbers: {', '.join(other)}")
    if other:
        raise SystemExit(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw figures again from stored rows: those of an experiment, or of a training folder.

    highway-rl plot multi-room

    highway-rl plot results/asterix-delay
    """

    experiment: Annotated[Positional[str], arg(metavar="EXPERIMENT or DIR")]
    """Its name, as `highway-rl list` shows it; or a folder that `highway-rl train` wrote."""
    out: Path = Path("results")
    """Folder that holds the rows, and gets the figures."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.experiments import base, claims

        folder = Path(self.experiment)
        if folder.is_dir() or (folder.parent != Path() and self.experiment not in base.experiments()):
            from highway_rl.records.curves import draw

            if not folder.is_dir():
                raise ValueError(f"{folder} is not there: give a training folder, or an experiment's name")
            print(f"figure: {draw(folder)}")
            return
        if self.experiment not in base.experiments():
            raise ValueError(
                f"{self.experiment} is neither a folder nor an experiment: give a training folder, or one of"
                f" {', '.join(base.experiments())}"
            )
        experiment = base.find(self.experiment)
        rows = experiment.stored(self.out)
        with claims.fitting(experiment.path(self.out)):
            figures = experiment.plot(rows, self.out)
        for path in figures:
            print(f"figure: {path}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """Judge the paper's claims by the stored runs: holds, partly, does not hold, not yet run."""

    experiment: Annotated[Positional[str | None], arg(metavar="EXPERIMENT")] = None
    """Only the claims of this experiment."""
    out: Path = Path("results")
    """Folder that holds the rows."""
    json: bool = False
    """Print a list of {id, statement, value, verdict, scale, command} instead of the table."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.experiments import base, claims

        if not self.out.is_dir():
            raise ValueError(f"{self.out} is not there: give --out a folder of stored runs, such as results")
        found = claims.check(self.out, base.find(self.experiment) if self.experiment else None)
        if self.json:
            print(json.dumps(found, indent=2, ensure_ascii=False))
        elif found:
            made = {c["id"]: f"\n({c['command']})" if c["scale"] else "" for c in found}
            rows = [(str(c["id"]), c["statement"], c["value"] + made[c["id"]], coloured(c["verdict"])) for c in found]
            table(("claim", "the paper says", "measured here", "verdict"), rows)
