"""The commands of the deep agent: train, resume, evaluate."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from highway_rl.cli.console import as_json, settings, table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Train deep agents on a game or task: all algorithms and seeds in one compiled program.

    highway-rl train minatar/breakout --delay end --algo soft-highway-dqn --seeds 10 --steps 5e6

    highway-rl train late --algo dqn --algo soft-highway-dqn --steps 20000 --schedule refresh=500

    highway-rl train minatar/asterix --algo n-step-dqn --rule n=3 --agent learning_rate=1e-4
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """A game or task, as `highway-rl list` shows them."""
    algo: Annotated[tuple[str, ...], arg(metavar="NAME"), UseAppendAction] = ()
    """dqn, double-dqn, maxmin-dqn, n-step-dqn, lambda-dqn, watkins-dqn, tree-backup-dqn, retrace, n-step-highway-dqn,
    soft-highway-dqn (the default), or an ablation: highway-gate-0, highway-gate-3, highway-mean-gate. May be given
    several times."""
    delay: str | None = None
    """Pay rewards late: "end" of the episode, a number of steps, or a range of them such as 1-20."""
    seeds: int = 1
    """Runs of each algorithm."""
    seed: int = 0
    """The first seed; the others follow it."""
    steps: float = 5e6
    """Environment steps of each run."""
    out: Path = Path("runs/train")
    """Folder for checkpoints, metrics.csv, TensorBoard events, config.json, curves.png."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """An option of the environment, such as feature=score; may be given several times."""
    rule: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """An option of the algorithm: n, depths, alpha, lam, k. "end" is the depth ∞."""
    agent: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """A setting of the agent, such as discount=0.99, learning_rate=1e-4, bootstrap=epsilon-greedy."""
    schedule: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """capacity, start, refresh, num_envs or updates_per_step."""
    network: str = "auto"
    """auto, minatar, nature, mlp, dueling-minatar or dueling-mlp."""
    report_every: int = 10_000
    """Steps between rows of metrics.csv."""
    checkpoint_every: int = 500_000
    """Steps between checkpoints."""
    keep: int = 3
    """Checkpoints to keep."""
    no_store: bool = False
    """Leave the replay store out of checkpoints: smaller, but a resumed run has to fill it again."""
    episodes: int = 100
    """Greedy episodes to score each run with at the end."""
    json: bool = False
    """Print the result as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.runs import fit as runs

        delay = {"delay": _delay(self.delay)} if self.delay is not None else {}
        if not math.isfinite(self.steps) or self.steps != int(self.steps):
            raise ValueError(f"steps={self.steps}: give a whole number >= 1")
        config = runs.Config(
            task=self.task,
            algos=self.algo or ("soft-highway-dqn",),
            seeds=self.seeds,
            seed=self.seed,
            env=delay | settings(self.set),
            rule=settings(self.rule),
            agent=settings(self.agent),
            network=self.network,
            schedule={"steps": int(self.steps)} | settings(self.schedule),
            report_every=self.report_every,
            checkpoint_every=self.checkpoint_every,
            keep=self.keep,
            save_store=not self.no_store,
            episodes=self.episodes,
        )
        _go(config, self.out, in_json=self.json, resume=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a run that was stopped or killed, from its newest sound checkpoint (or its beginning), to the bit."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The folder `highway-rl train` wrote."""
    json: bool = False
    """Print the result as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.runs import fit as runs

        _go(runs.read_config(self.folder), self.folder, in_json=self.json, resume=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play greedy episodes with the newest networks of a training folder."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The folder `highway-rl train` wrote."""
    episodes: int = 100
    """Episodes of each run."""
    seed: int = 0
    """Seed of the games."""
    max_steps: int = 100_000
    """Cut an episode off after so many steps."""
    json: bool = False
    """Print mean, interval and per-seed scores as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.deep.evaluation import by_algo, evaluate
        from highway_rl.runs import fit as runs

        with _warnings_as_lines():
            _, params, made, step, broken = runs.load(self.folder)
            options = {"episodes": self.episodes, "seed": self.seed, "max_steps": self.max_steps}
            rows = evaluate(made, params, broken=broken, **options)
        _show({"step": step, "of": made.schedule.steps, "scores": rows, "by_algo": by_algo(rows)}, self.json)


def _go(config: Any, out: Path, *, in_json: bool, resume: bool) -> None:
    from highway_rl.deep.evaluation import by_algo, evaluate
    from highway_rl.records.curves import draw
    from highway_rl.runs import fit as runs

    with _signals() as caught, _warnings_as_lines(), _bar(config) as report:
        trained = runs.fit(config, out, report=report, should_stop=lambda: bool(caught), resume=resume)
        finished = trained.step >= trained.setup.schedule.steps
        params, broken = trained.run.learning.params, trained.broken
        rows = evaluate(trained.setup, params, episodes=config.episodes, broken=broken) if finished else []
    result = {"folder": str(out), "step": trained.step, "of": trained.setup.schedule.steps, "stopped": trained.stopped}
    result |= {"scores": rows, "by_algo": by_algo(rows)}
    if finished:
        (out / "evaluation.json").write_text(as_json(result) + "\n", encoding="utf-8")
    _show(result, in_json)
    figure = None
    with contextlib.suppress(ImportError, ValueError):  # without matplotlib, or stopped before the first report
        figure = draw(out)
    if not in_json:
        print(f"folder: {out}" + (f"\nfigure: {figure}" if figure else ""))
    if trained.stopped:
        raise ValueError("; ".join(runs.sentence(x) for x in trained.stopped))
    if caught:
        print(f"stopped at step {trained.step:,}; `highway-rl resume {out}` goes on", file=sys.stderr)
        raise SystemExit(128 + caught[0])


def _show(result: dict[str, Any], in_json: bool) -> None:
    if in_json:
        print(as_json(result))
        return
    if result["scores"]:
        each = [
            (r["algo"], str(r["seed"]), _interval(r), f"{r['length']:.3g}", str(r["cut_off"])) for r in result["scores"]
        ]
        table(("algorithm", "seed", "score (95 %)", "length", "cut off"), each)
        for algo, found in result["by_algo"].items():
            without = f", without seed {', '.join(map(str, found['broken']))}: numbers broke" * bool(found["broken"])
            print(f"{algo}: {_interval(found)} over {found['seeds']} seed{'s' * (found['seeds'] != 1)}{without}")


def _interval(found: dict[str, Any]) -> str:
    half = found["half_width"]
    if found["score"] is None:
        return "no score"
    return f"{found['score']:.3g}" + ("" if half is None else f" ± {half:.2g}")


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM instead of dying of them; a second SIGINT does end the program at once."""
    caught: list[int] = []

    def note(number: int, _: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    import warnings

    def line(message: Any, *_: Any, **__: Any) -> None:
        print(f"highway-rl: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = line
        yield


@contextlib.contextmanager
def _bar(config: Any) -> Iterator[Any]:
    """Progress on stderr: a bar in a terminal, a line every half minute elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    from highway_rl.runs.fit import sentence

    live = sys.stderr.isatty()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    last = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), disable=not live) as bar:
        task = bar.add_task(config.task, total=config.schedule["steps"], note="compiling")

        def report(news: dict[str, Any]) -> None:
            nonlocal last
            if "stopped" in news:
                print(f"highway-rl: {sentence(news['stopped'])}", file=sys.stderr)
                return
            scores: dict[str, list[float]] = {}
            for row in news["rows"]:
                scores.setdefault(row["algo"], []).append(row["score"])
            best = "  ".join(f"{algo} {sum(x) / len(x):.2f}" for algo, x in scores.items())
            left = datetime.timedelta(seconds=round((news["of"] - news["step"]) / news["speed"]))
            note = f"{news['step']:,}/{news['of']:,}  {news['speed']:,.0f} steps/s  {left} left  {best}"
            bar.update(task, completed=news["step"], note=note)
            if not live and time.monotonic() - last > 30:
                last = time.monotonic()
                print(note, file=sys.stderr)

        yield report


def _delay(text: str) -> Any:
    """end, 20 or 1-20."""
    if text == "end":
        return text
    first, dash, last = text.partition("-")
    try:
        return [int(first), int(last)] if dash else int(first)
    except ValueError:
        raise ValueError(f"--delay {text}: give end, a number of steps, or a range such as 1-20") from None


LATE: dict[str, Any] = {
    "task": "late",
    "algo": ("dqn", "soft-highway-dqn"),
    "seeds": 3,
    "steps": 8_000,
    "set": ("num_actions=8", "prize=10.0"),
    "agent": ("learning_rate=0.002", "loss=squared", "epsilon_steps=4000"),
    "schedule": ("refresh=250", "start=1000", "capacity=8000"),
    "report_every": 500,
    "checkpoint_every": 8_000,
    "episodes": 20,
}
"""What the demo trains: small enough for two cores, late enough to matter."""
