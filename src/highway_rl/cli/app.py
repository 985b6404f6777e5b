"""The command line: list, run, plot, check, solve, …, doctor. Every command is a record with a docstring."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg, subcommand

from highway_rl.cli.console import one_line, progress, short, table
from highway_rl.cli.demo import Demo
from highway_rl.cli.doctor import Doctor
from highway_rl.cli.experiments import Check, Plot, Run
from highway_rl.cli.explain import Explain
from highway_rl.cli.games import Play, Watch
from highway_rl.cli.learn import Learn
from highway_rl.cli.live import warnings_as_lines
from highway_rl.cli.report import Report
from highway_rl.cli.sweep import Sweep
from highway_rl.cli.train import Evaluate, Resume, Train
from highway_rl.cli.tune import Tune


@dataclasses.dataclass(frozen=True, kw_only=True)
class Debug:
    debug: bool = False
    """Show the full traceback of an error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class List(Debug):
    """List the experiments, the environments, the algorithms, and what can be set of a run."""

    def __call__(self) -> None:
        from highway_rl import envs
        from highway_rl.experiments.base import experiments

        rows = [(e.name, e.paper, e.summary) for e in experiments().values()]
        table(("experiment", "paper", "what it shows"), rows)
        from highway_rl.deep.algorithms import ALGORITHMS
        from highway_rl.runs import settings

        table(("setting", "paper", "general", "what it is"), settings.table())
        print("models to solve: " + ", ".join([*envs.MODELS, *envs.registry.TOY_TEXT]))
        print("environments to learn: " + ", ".join(envs.learnable()))
        print("algorithms: " + ", ".join(ALGORITHMS.names()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solve(Debug):
    """Solve an MDP to a certified error: a named environment, a Gymnasium id, or a file.

    Files: an .npz with arrays P [s,a,s'] and R (and discount); or transitions saved by scipy.sparse.save_npz, one row
    per (state, action) or one file per action, with the rewards in --reward.

    highway-rl solve taxi --method highway

    highway-rl solve multi-room --set rooms=8 --set state=headings --compare

    highway-rl solve my-model.npz --discount 0.95 --save solution.npz
    """

    model: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL [MODEL ...]")]
    """Environment (see `highway-rl list`), Gymnasium id such as Taxi-v4, or .npz file (one per action, if several)."""
    method: str = "gated"
    """gated, highway, value-iteration, policy-iteration, modified-policy-iteration or gauss-seidel."""
    tol: float = 1e-6
    """Largest certified error of the values that is accepted."""
    discount: float | None = None
    """Discount factor; by default the model's own (environments: 0.99)."""
    reward: Path | None = None
    """Rewards (.npy, .npz or .csv) for a file that holds transitions only."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """An option of the environment; may be given several times."""
    compare: bool = False
    """Solve with every method and compare them."""
    save: Path | None = None
    """Write value and policy to this .npz."""
    start: Path | None = None
    """Begin with the values of a solution that --save wrote, of this model or one like it."""
    time_limit: float | None = None
    """Stop after so many seconds (method gated), as Ctrl-C does, with the bounds reached by then."""
    json: bool = False
    """Print the table as JSON."""

    def __call__(self) -> None:
        from highway_rl.cli.planning import compare, load, save, saved_value
        from highway_rl.runs.text import settings

        if self.save is not None and self.save.suffix != ".npz":
            raise ValueError(f"--save {self.save}: give a name that ends in .npz")
        if self.save is not None and not self.save.parent.is_dir():
            raise ValueError(f"--save {self.save}: {self.save.parent} is not there: make that folder first")
        mdp = load(self.model, self.discount, self.reward, settings(self.set))
        name = " ".join(self.model)
        given: dict[str, Any] = {"value": None if self.start is None else saved_value(self.start)}
        if self.time_limit is not None and (self.compare or self.method != "gated"):
            raise ValueError(f"--time-limit {self.time_limit:g}: use --method gated, which has one")
        if self.time_limit is not None:
            given["time_limit"] = self.time_limit
        with progress(f"solving {name}", unit="error", goal=self.tol) as step:
            rows, solution = compare(mdp, None if self.compare else self.method, self.tol, step, **given)
        if self.save is not None:
            save(self.save, solution)
        if self.json:
            print(json.dumps(rows, indent=2))
            return
        print(f"{name}: {mdp.num_states} states, {mdp.num_actions} actions")
        names = ("method", "iterations", "rows read", "distinct", "cached", "seconds", "certified error", "note")
        shown = len(names) if any(row["note"] for row in rows) else -1
        table(names[:shown], [tuple(short(v) for v in row.values())[:shown] for row in rows])


Command = (
    Annotated[List, subcommand("list")]
    | Annotated[Run, subcommand("run")]
    | Annotated[Plot, subcommand("plot")]
    | Annotated[Check, subcommand("check")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Solve, subcommand("solve")]
    | Annotated[Learn, subcommand("learn")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Sweep, subcommand("sweep")]
    | Annotated[Tune, subcommand("tune")]
    | Annotated[Explain, subcommand("explain")]
    | Annotated[Play, subcommand("play")]
    | Annotated[Watch, subcommand("watch")]
    | Annotated[Demo, subcommand("demo")]
    | Annotated[Doctor, subcommand("doctor")]
)


ABOUT = """Highway reinforcement learning: fast, exact credit for rewards that come late."""


def main(args: Sequence[str] | None = None) -> None:
    """Parse, run, and turn every error into one line on stderr and exit code 2."""
    try:
        _main(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(args: list[str]) -> None:
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            command: Any = tyro.cli(
                Command, prog="highway-rl", description=ABOUT, args=args, config=(FlagCreatePairsOff,)
            )
    except SystemExit as stop:
        if stop.code:
            _fail(one_line(errors.getvalue()))
        raise
    try:
        with warnings_as_lines():
            command()
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError) as error:
        if command.debug:
            raise
        _fail(one_line(str(error)))
    except KeyboardInterrupt:
        again = ": run the same command again{} to go on"
        how = {Sweep: again.format(""), Tune: again.format(""), Run: again.format(" with --resume")}
        _fail("interrupted" + how.get(type(command), ""))
    except MemoryError as error:
        if command.debug:
            raise
        _fail(one_line(f"out of memory: {error}"))
    except Exception as error:  # ours to mend, and still one line to whoever only uses it
        if command.debug:
            raise
        _fail(one_line(f"{type(error).__name__}: {error} (a bug; --debug shows where)"))


def _fail(message: str) -> None:
    print(f"highway-rl: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
