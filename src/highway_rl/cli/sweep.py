"""The command of sweeps: many cells on many workers, and how they stand."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

Words = tuple[str, ...]
Executor = Literal["local", "ray"]
SAID = {"tasks": "tasks"} | {
    name: f"--{name}" for name in ("algo", "seeds", "steps", "preset", "delay", "set", "setting", "episodes", "most")
}
SAID["imports"] = "--import"
"""What a file says in place of the options."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train every task with every algorithm and seed, on this machine or a Ray cluster; goes on where it stopped.

    Every finished cell is a row in --out with what made it; the same command again runs what is missing. From another
    terminal `highway-rl sweep status DIR` says how it stands.

    highway-rl sweep late key-door --algo dqn --algo n-step-dqn:n=[2,3,end] --seeds 0-99 --workers 2 --out runs/depths

    highway-rl sweep --spec sweep.toml --executor ray --out runs/depths

    highway-rl sweep status runs/depths
    """

    tasks: Annotated[Positional[Words], arg(metavar="TASK… | status DIR")] = ()
    """Tasks, as `highway-rl train` takes them; or the word status and the folder of a sweep."""
    spec: Path | None = None
    """A TOML file with tasks, algos, seeds, steps, preset, env, settings, imports, episodes, most; in place of the
    options. Or the sweep.json of a folder, to go on with it."""
    algo: Annotated[Words, arg(metavar="NAME[:OPTION=VALUE,…]"), UseAppendAction] = ()
    """As `highway-rl train` takes it; a list in brackets sweeps. May be given several times."""
    seeds: str = "1"
    """A range such as 0-99, numbers such as 0,3,7, or how many from 0 on."""
    steps: float | None = None
    """Environment steps of each run; by default the preset's."""
    preset: str | None = None
    """A preset, as `highway-rl train` takes it."""
    delay: str | None = None
    """Pay rewards late: "end" of the episode, a number of steps, or a range of them such as 1-20."""
    set: Annotated[Words, arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """An option of the environments; may be given several times."""
    setting: Annotated[Words, arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """A setting of all runs; may be given several times."""
    imports: Annotated[Words, arg(metavar="MODULE", name="import"), UseAppendAction] = ()
    """A module to import first, which registers names of yours; may be given several times."""
    episodes: int = 100
    """Test episodes of each run at the end."""
    most: int = 40
    """Runs that share a program at most."""
    executor: Executor = "local"
    """local: this machine; ray: a Ray cluster (pip install 'highway-rl[ray]')."""
    workers: int | None = None
    """Programs at a time, each in a process of its own: by default one here, and all that a cluster has there."""
    address: str | None = None
    """Of a Ray cluster that is running; by default one is begun on this machine, and ends with the sweep."""
    minutes: float | None = None
    """Stop after so many minutes; the same command goes on from there."""
    devices: str = "1"
    """Spread the runs of a program over so many devices, or all; each then holds its share of the memory. group: over
    those of all processes that a batch system (srun, mpirun) starts this command in."""
    out: Path = Path("runs/sweep")
    """Folder of the rows. Where workers are on several machines, all of them have to see it."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.cli.train import many_devices
        from highway_rl.runs.queue import Failed
        from highway_rl.runs.status import status
        from highway_rl.runs.sweep import joined, sweep

        if self.tasks[:1] == ("status",):
            if len(self.tasks) != 2:
                raise ValueError("status stands alone: give one folder, as in `highway-rl sweep status runs/sweep`")
            return show(status(Path(self.tasks[1])))
        spec = self.cells()
        how: dict[str, Any] = {"executor": self.executor, "workers": self.workers, "address": self.address}
        how["devices"] = many_devices(self.devices)
        if self.devices == "group" and not joined():
            sweep(spec, out=self.out, minutes=self.minutes, **how)
            return None
        failed = False
        with live(self.out) as say:
            try:
                sweep(spec, out=self.out, minutes=self.minutes, say=say, **how)
            except Failed:
                failed = True  # the table names them
        show(status(self.out))
        print(f"folder: {self.out}")
        if failed:
            raise ValueError("some cells failed, as said above: run the same again when that is mended")

    def cells(self) -> Any:
        """What to run, from the options or the file."""
        from highway_rl.cli.train import whole_steps
        from highway_rl.envs.wrappers import as_delay
        from highway_rl.runs.sweep import Sweep, read_spec, seeds_of
        from highway_rl.runs.text import settings

        if self.spec is not None:
            named = [word for name, word in SAID.items() if getattr(self, name) != getattr(type(self), name)]
            if named:
                raise ValueError(
                    f"--spec {self.spec} says what to run: write it there, and leave {', '.join(named)} out"
                )
            return read_spec(self.spec)
        if not self.tasks:
            raise ValueError("a sweep needs tasks: give their names, or --spec FILE.toml")
        delay = {} if self.delay is None else {"delay": as_delay(self.delay)}
        return Sweep(
            self.tasks, self.algo, seeds_of(self.seeds), whole_steps(self.steps), self.preset,
            delay | settings(self.set), settings(self.setting), self.imports, self.episodes, self.most,
        )  # fmt: skip


def columns(s: Any) -> list[tuple[str, str]]:
    """How a sweep stands, as names and texts."""
    left = "?" if s.seconds_left is None else str(datetime.timedelta(seconds=round(s.seconds_left)))
    running = ", ".join(f"{name} at step {step:,}" for name, step in s.running.items()) or "none"
    best = "; ".join(f"{b.task}: {b.algo} {b.score:.3g} over {b.seeds} seed{'s' * (b.seeds != 1)}" for b in s.best)
    rows = [("cells done", f"{s.done} of {s.cells}"), ("failed", str(len(s.failed))), ("programs running", running)]
    return [*rows, ("time left", left if s.left else "none"), ("best so far", best or "none")]


def show(s: Any) -> None:
    """The table of a sweep, and why cells failed."""
    from highway_rl.cli.console import table

    table(("sweep", ""), columns(s))
    for name, error in s.failed.items():
        print(f"failed: {name}: {error}")


@contextlib.contextmanager
def live(out: Path, every: float = 30.0) -> Iterator[Any]:
    """A table that follows the folder: redrawn in a terminal; elsewhere a line for what happens, and one now and then
    for how all stands. Gives what to say the lines with."""
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from highway_rl.runs.status import status

    console, ended = Console(stderr=True), threading.Event()

    def drawn() -> Any:
        table = Table(show_header=False)
        with contextlib.suppress(ValueError):  # not begun yet
            for row in columns(status(out)):
                table.add_row(*row)
        return table

    def follow() -> None:
        while not ended.wait(every):
            with contextlib.suppress(ValueError):
                print("sweep: " + ", ".join(f"{k} {v}" for k, v in columns(status(out))), file=sys.stderr, flush=True)

    if sys.stderr.isatty():
        with Live(console=console, get_renderable=drawn, refresh_per_second=0.5):
            yield console.print
        return
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield lambda text: print(text, file=sys.stderr, flush=True)
    finally:
        ended.set()
        thread.join()
