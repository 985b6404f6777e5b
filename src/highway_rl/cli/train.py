"""The commands of the deep agents: train, resume, evaluate."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from highway_rl.cli.console import table

Words = tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Train deep agents on a game, a task or any Gymnasium environment: all algorithms and seeds side by side.

    highway-rl train key-door --algo dqn --algo soft-highway-dqn --seeds 3

    highway-rl train CartPole-v1 --delay end --setting num_envs=8 --target-score 475

    highway-rl train minatar/breakout --delay end --algo soft-highway-dqn --seeds 10 --steps 5e6

    highway-rl train late --algo n-step-dqn:n=3 --algo soft-highway-dqn:alpha=[0,0.005,inf] --setting k=2
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """A game or task, as `highway-rl list` shows them, an id of Gymnasium such as CartPole-v1, or module:name of an
    environment of your own: an Env, a gymnasium.Env class, or a function that makes one."""
    algo: Annotated[Words, arg(metavar="NAME[:OPTION=VALUE,…]"), UseAppendAction] = ()
    """dqn, double-dqn, maxmin-dqn, n-step-dqn, lambda-dqn, watkins-dqn, tree-backup-dqn, retrace, n-step-highway-dqn,
    soft-highway-dqn (the default), an ablation (highway-gate-0, highway-gate-3, highway-mean-gate), or module:name of
    your own. Options of the algorithm (n, depths, alpha, lam; the depth ∞ is "end") and settings of its run (k,
    bootstrap, learning_rate, optimizer, refresh, …) follow a colon; a list in brackets sweeps. May be given several
    times."""
    preset: str | None = None
    """paper (the default for MinAtar), general (for everything else), explorer, or a file that `highway-rl tune`
    wrote, which also names the algorithm."""
    delay: str | None = None
    """Pay rewards late: "end" of the episode, a number of steps, or a range of them such as 1-20."""
    seeds: int = 1
    """Runs of each algorithm."""
    seed: int = 0
    """The first seed; the others follow it."""
    steps: float | None = None
    """Environment steps of each run; by default the preset's."""
    devices: str = "1"
    """Spread the runs of a program over so many devices, or all; each then holds its share of the memory. group: over
    those of all processes that a batch system (srun, mpirun) starts this command in."""
    out: Path = Path("runs/train")
    """Folder for checkpoints, metrics.csv, evaluation.json, TensorBoard events, config.json, curves.png."""
    set: Annotated[Words, arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """An option of the environment, such as feature=score; may be given several times."""
    setting: Annotated[Words, arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """A setting of all runs, such as learning_rate=1e-4, k=2, optimizer=adam, refresh=500 (`highway-rl list` has them
    all); may be given several times."""
    imports: Annotated[Words, arg(metavar="MODULE", name="import"), UseAppendAction] = ()
    """A module to import first, which registers names of yours; may be given several times."""
    report_every: int | None = None
    """Steps between rows of metrics.csv; by default a five-hundredth of all."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; by default a tenth of all."""
    keep: int = 3
    """Checkpoints to keep."""
    no_store: bool = False
    """Leave the replay store out of checkpoints: smaller, but a resumed run has to fill it again."""
    episodes: int = 100
    """Test episodes of each run at the end, greedy and as many at the training ε."""
    target_score: float | None = None
    """End where every run has scored so much on average of its last 100 training episodes."""
    json: bool = False
    """Print the result as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl import runs
        from highway_rl.envs.wrappers import as_delay
        from highway_rl.runs.presets import with_file
        from highway_rl.runs.text import settings

        delay = {"delay": as_delay(self.delay)} if self.delay is not None else {}
        preset, algos, shared = with_file(self.preset, self.algo, settings(self.setting))
        config = runs.Config(
            task=self.task,
            algos=algos,
            seeds=self.seeds,
            seed=self.seed,
            steps=whole_steps(self.steps),
            preset=preset,
            env=delay | settings(self.set),
            settings=shared,
            imports=self.imports,
            report_every=self.report_every,
            checkpoint_every=self.checkpoint_every,
            keep=self.keep,
            save_store=not self.no_store,
            episodes=self.episodes,
        )
        more: Any = {"target": self.target_score, "devices": many_devices(self.devices)}
        together(config, self.out, in_json=self.json, resume=False, **more)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a run that was stopped or killed, from its newest sound checkpoint (or its beginning): to the bit, but
    for environments of Gymnasium, which begin a new episode."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The folder `highway-rl train` wrote."""
    devices: str = "1"
    """Spread the runs of a program over so many devices, all, or a group's; they may be others than before."""
    steps: float | None = None
    """Train for so many steps in all, where that is more than before."""
    json: bool = False
    """Print the result as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl import runs

        config = runs.read_config(self.folder)
        if self.steps is not None:
            config = dataclasses.replace(config, steps=whole_steps(self.steps))
        devices = many_devices(self.devices)
        together(config, self.folder, in_json=self.json, resume=True, devices=devices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play test episodes with the newest networks of a training folder, greedy and at the training ε; or greedy ones
    with the agent of a file."""

    folder: Annotated[Positional[Path], arg(metavar="AGENT")]
    """The folder `highway-rl train` wrote, or a file of `agent.save`."""
    imports: Annotated[tuple[str, ...], arg(metavar="MODULE", name="import"), UseAppendAction] = ()
    """A module of yours that the file may import, where its network or algorithm is not ours."""
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
        from highway_rl import runs

        options: Any = {"episodes": self.episodes, "seed": self.seed, "max_steps": self.max_steps}
        if self.folder.is_file():
            agent = runs.load(self.folder, imports=self.imports)
            row = {"algo": agent.label, "seed": agent.seed, **agent.evaluate(**options), "broken": None}
            return _show({"step": agent.step, "of": agent.step, "scores": [row]}, self.json)
        s, params, step, broken = runs.load_all(self.folder)
        rows = runs.evaluate(s, params, broken=broken, **options)
        _show({"step": step, "of": s.steps, "scores": rows}, self.json)


def together(config: Any, out: Path, *, devices: int | str, **more: Any) -> None:
    """Trains; as one of a group of processes, what the first of them does, and only that one shows it."""
    from highway_rl.runs.fit import led

    with led(devices) as leads:
        if leads:
            go(config, out, devices=devices, **more)


def go(
    config: Any,
    out: Path,
    *,
    in_json: bool = False,
    resume: bool = False,
    target: float | None = None,
    devices: int | str = 1,
) -> None:
    """Trains, shows, draws; says how to go on where it was stopped."""
    from highway_rl import runs
    from highway_rl.cli.live import bar, signals
    from highway_rl.records.curves import draw

    with bar(config) as live, signals(live, out) as caught:
        until = [] if target is None else [runs.TargetScore(target)]
        options: Any = {"should_stop": lambda: bool(caught), "resume": resume, "callbacks": until}
        options["devices"] = devices
        trained = runs.fit(config, out, report=live.report, **options)
    result = {"folder": str(out), "step": trained.step, "of": trained.setup.steps, "stopped": trained.stopped}
    _show(result | {"scores": trained.scores}, in_json)
    figure = None
    with contextlib.suppress(ImportError, ValueError):  # without matplotlib, or stopped before the first report
        figure = draw(out)
    if not in_json:
        print(f"folder: {out}" + (f"\nfigure: {figure}" if figure else ""))
    if trained.stopped:
        print("highway-rl: " + "; ".join(runs.sentence(x) for x in trained.stopped), file=sys.stderr)
        raise SystemExit(2)
    if caught and not trained.finished:
        print(f"stopped at step {trained.step:,}; `highway-rl resume {out}` goes on", file=sys.stderr)
        raise SystemExit(128 + caught[0])


def _show(result: dict[str, Any], in_json: bool) -> None:
    from highway_rl.deep.evaluation import by_algo
    from highway_rl.runs.evaluate import as_json

    rows = result["scores"]
    result = result | {"by_algo": by_algo(rows), "by_algo_training_epsilon": by_algo(rows, greedy=False)}
    if in_json:
        print(as_json(result))
        return
    if not rows:
        return
    explored = {(r["algo"], r["seed"]): r for r in rows if r["epsilon"] > 0}
    each = [
        (
            r["algo"],
            str(r["seed"]),
            _interval(r),
            _interval(explored[r["algo"], r["seed"]]) if (r["algo"], r["seed"]) in explored else "",
            f"{r['length']:.3g}",
            str(r["cut_off"]),
        )
        for r in rows
        if r["epsilon"] == 0
    ]
    table(("algorithm", "seed", "greedy score (95 %)", "at the training ε", "length", "cut off"), each)
    for algo, found in result["by_algo"].items():
        without = f", without seed {', '.join(map(str, found['broken']))}: numbers broke" * bool(found["broken"])
        print(f"{algo}: {_interval(found)} over {found['seeds']} seed{'s' * (found['seeds'] != 1)}{without}")


def _interval(found: dict[str, Any]) -> str:
    half = found["half_width"]
    if found["score"] is None:
        return "no score"
    return f"{found['score']:.3g}" + ("" if half is None else f" ± {half:.2g}")


def many_devices(text: str) -> int | str:
    words = ("all", "group")
    if text not in words and not text.isdigit():
        raise ValueError(f"--devices {text}: give {', '.join(words)}, or a whole number >= 1")
    return text if text in words else int(text)


def whole_steps(steps: float | None) -> int | None:
    if steps is not None and (not math.isfinite(steps) or steps != int(steps)):
        raise ValueError(f"steps={steps}: give a whole number >= 1")
    return None if steps is None else int(steps)
