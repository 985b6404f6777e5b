"""Figures, tables and claims of the main comparison, from stored rows alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.experiments import main
from highway_rl.experiments.base import Experiment, Rows, Table
from highway_rl.experiments.main import DELAYED, HIGHWAY, Setting, Size, about, finals, title
from highway_rl.experiments.main_claims import TARGETS, comparison, freeway, late
from highway_rl.experiments.scores import (
    TESTS,
    ByTask,
    above,
    by_game,
    draw_curves,
    how_many,
    mark,
    said,
    seed_table,
    targets,
)
from highway_rl.records.figures import axes, key, key_below, look, save
from highway_rl.records.statistics import aggregate, normalised, profile

LOOKS = {
    "DQN": look("dqn")._replace(line="--"),
    "n-step DQN": look("n-step-dqn")._replace(line=":"),
    "λ-return DQN": look("lambda-dqn")._replace(line="-."),
    "Retrace(1)": look("retrace")._replace(line="--"),
    "n-step Highway DQN": look("n-step-highway-dqn"),
    "Soft Highway DQN": look("soft-highway-dqn"),
}
VIEWS = {"best": "the best k and n of each game, as in the paper", "one": "one k and n for all games"}


def plot(rows: Rows, out: Path) -> list[Path]:
    size, _ = about(rows)
    figures = [screens(rows, out / f"main-screen{suffix(env)}.png", env) for env in size.envs if screened(rows, env)]
    figures += [curves(rows, out / "main.png")] if any(finals(rows, env, "best") for env in size.envs) else []
    for env in size.envs:
        if finals(rows, env, "best"):
            figures.append(summary(rows, env, out / f"main-summary{suffix(env)}.png"))
    return figures


def suffix(env: str) -> str:
    return "-delay" if env == DELAYED else ""


def screened(rows: Rows, env: str) -> dict[str, dict[Setting, float]]:
    """By task, the training score of every setting that the screen tried."""
    size, seed = about(rows)
    found = {task: main.screened(rows, size, task, env, seed) for task in size.tasks if size.screen_seeds}
    return {task: scores for task, scores in found.items() if scores is not None}


def screens(rows: Rows, path: Path, env: str) -> Path:
    """Every setting's training score: what the choice was made from."""
    size, _ = about(rows)
    found = screened(rows, env)
    texts = [(name, algo) for name, algos in main.methods(size).items() for algo in algos]
    steps, seeds = f"{size.screen_steps:,} steps", f"{size.screen_seeds} seed{'s' * (size.screen_seeds > 1)}"
    figure, grid = axes(
        len(found),
        f"The screen, {late(env)}: training score of every setting, last quarter of {steps}, mean of {seeds}",
        columns=min(len(found), 3),
        size=(4.2, 3.8),
    )
    shapes = dict(zip(size.ks, "osD^v", strict=False))
    for ax, (task, scores) in zip(grid, found.items(), strict=True):
        for i, (name, algo) in enumerate(texts):
            for k in size.ks:
                ax.plot(scores[Setting(algo, k)], i, shapes[k], ms=5, color=LOOKS[name].colour, alpha=0.85)
        ax.set_yticks(range(len(texts)), [short(name, algo) for name, algo in texts], fontsize=7)
        ax.set(title=title(task, env), ylim=(len(texts) - 0.5, -0.5), xlabel="training score")
    marks = {f"k = {k}": {"marker": m, "ls": "", "color": "0.4"} for k, m in shapes.items()}
    key(figure, marks, "outside lower center", ncols=len(marks))
    return save(figure, path)


def short(name: str, algo: str) -> str:
    """A method with its n, as a label."""
    n = algo.partition(":n=")[2].replace("end", "∞")
    return name.removesuffix(" DQN") + (f", n = {n}" if n else "")


def curves(rows: Rows, path: Path) -> Path:
    """The paper's figure: training scores, the best setting of each game."""
    size, _ = about(rows)
    panels = [(env, task, found) for env in size.envs for task, found in _by_task(rows, env).items()]
    few = len(panels) < 3
    seeds = how_many(its for _, _, found in panels for its in found.values())
    figure, grid = axes(
        len(panels), f"Training score, {VIEWS['best']} (mean over {seeds}, 95 % interval)",
        columns=(columns := min(len(panels), 5)), size=(6.4, 3.6) if few else (3.0, 2.6),
    )  # fmt: skip
    for i, (ax, (env, task, found)) in enumerate(zip(grid, panels, strict=True)):
        draw_curves(ax, found, "score", LOOKS)
        ax.set(title=title(task, env), ylabel="" if i % columns else "training score")
    key_below(figure, LOOKS, columns=3 if few else 6)
    return save(figure, path)


def _by_task(rows: Rows, env: str) -> dict[str, dict[str, Rows]]:
    runs = finals(rows, env, "best")
    tasks = dict.fromkeys(task for by_task in runs.values() for task in by_task)
    return {task: {name: runs[name][task] for name in runs} for task in tasks}


def normal(runs: Mapping[str, ByTask], name: str) -> dict[str, dict[str, np.ndarray]]:
    """Scores on the way from random play, 0, to the best method's mean of that game, 1."""
    scores = {method: by_game(by_task, name) for method, by_task in runs.items()}
    tasks = list(next(iter(scores.values())))
    low = {task: main.RANDOM.get(task.removeprefix("minatar/"), 0.0) for task in tasks}
    means = {task: max(float(np.mean(scores[m][task])) for m in scores) for task in tasks}
    high = {task: means[task] if means[task] > low[task] else low[task] + 1.0 for task in tasks}
    return normalised(scores, low, high)


def summary(rows: Rows, env: str, path: Path) -> Path:
    """All games together, in both views: interquartile means, probabilities of improvement, profiles."""
    views = {view: found for view in VIEWS if (found := finals(rows, env, view))}
    figure, grid = axes(
        3 * len(views),
        f"All games together{', reward at the end' if env == DELAYED else ''}: greedy test",
        columns=3,
        size=(4.4, 3.2),
    )
    for line, (view, runs) in enumerate(views.items()):
        left, middle, right = grid[3 * line : 3 * line + 3]
        ways = normal(runs, "greedy")
        _bars(left, {name: found.iqm for name, found in aggregate(ways).items()})
        seeds = how_many(its for by_task in runs.values() for its in by_task.values())
        count = len(next(iter(ways.values())))
        games = f"\n({count} game{'s' * (count > 1)}, {seeds} each)"
        left.set(title=VIEWS[view] + games, xlabel="interquartile mean: 0 random, 1 best of the game")
        pairs = [(a, b) for a in HIGHWAY for b in runs if b not in HIGHWAY]
        for i, (a, b) in enumerate(pairs):
            likely = above(runs[a], runs[b], "greedy")
            if likely is not None:
                mark(middle, likely, i, LOOKS[a].colour)
        middle.axvline(0.5, color="0.6", lw=0.8, ls=":")
        middle.set_yticks(range(len(pairs)), [f"{a.removesuffix(' DQN')} > {b}" for a, b in pairs], fontsize=7)
        middle.set(
            title="a seed scores more than a rival's",
            xlabel="probability",
            xlim=(-0.03, 1.03),
            ylim=(len(pairs) - 0.5, -0.5),
        )
        levels = np.linspace(0, 1.6, 81)
        for name, by_task in ways.items():
            share = profile(by_task, levels, repeats=500)
            right.plot(levels, share.value, LOOKS[name].line, color=LOOKS[name].colour, lw=1.4)
            right.fill_between(levels, share.low, share.high, color=LOOKS[name].colour, alpha=0.12, lw=0)
        right.set(title="share of runs above a score", xlabel="score: 0 random, 1 best of the game", ylim=(-0.02, 1.02))
    key_below(figure, {name: look for name, look in LOOKS.items() if any(name in runs for runs in views.values())})
    return save(figure, path)


def _bars(ax: Any, found: dict[str, Any]) -> None:
    for i, (name, one) in enumerate(found.items()):
        mark(ax, one, i, LOOKS[name].colour)
    ax.set_yticks(range(len(found)), list(found), fontsize=8)
    ax.set_ylim(len(found) - 0.5, -0.5)


def tables(rows: Rows) -> list[Table]:
    """What was chosen, every seed's scores, and all games together."""
    size, _ = about(rows)
    found = []
    for env in size.envs:
        when = late(env)
        for view, words in VIEWS.items():
            runs = finals(rows, env, view)
            if not runs:
                continue

            def label(method: str, its: Rows) -> str:
                return f"{short(method, its[0]['algo'])}, k = {its[0]['k']}"

            for name in TESTS:
                found.append(seed_table(f"Scores, {when}, {words}", runs, name, label))
            found.append(_pairs(f"Probability that a seed scores more, {when}, {words}", runs))
            if view == "best":
                found.append(_seen(f"{TARGETS}, {when}", runs))
        if scores := screened(rows, env):
            found.append(_choices(f"Chosen by the screen, {when}", scores, size))
    return found


def _pairs(what: str, runs: Mapping[str, ByTask]) -> Table:
    lines = [
        (a, b, said(above(runs[a], runs[b], "greedy"), 2), said(above(runs[a], runs[b], "exploring"), 2))
        for a in HIGHWAY
        for b in runs
        if b not in HIGHWAY
    ]
    return Table(what, ("method", "against", "greedy test", "test at the training ε"), lines)


def _seen(what: str, runs: Mapping[str, ByTask]) -> Table:
    """How often each gate was open at the end, how far targets lay above what followed, and how large values got."""

    def line(method: str, task: str, rows: Rows) -> tuple[str, ...]:
        opened, above_, largest = targets(rows)
        gates = ", ".join(f"{n}: {share:.1%}" for n, share in opened.items())
        return task.removeprefix("minatar/"), method, gates or "–", f"{above_:.2f}", f"{largest:.1f}"

    lines = [line(method, task, rows) for method, by_task in runs.items() for task, rows in by_task.items()]
    columns = (
        "task", "method", "steps at which the gate is open, by n (last report)",
        "target above what followed (mean of the last tenth of training)", "largest value (last report)",
    )  # fmt: skip
    return Table(what, columns, sorted(lines))


def _choices(what: str, scores: dict[str, dict[Setting, float]], size: Size) -> Table:
    lines = []
    for task, of in scores.items():
        for name, texts in main.methods(size).items():
            pick = main.best(of, texts)
            lines.append((task.removeprefix("minatar/"), short(name, pick.algo), str(pick.k), f"{of[pick]:.2f}"))
    return Table(what, ("task", "method", "k", "training score"), lines)


EXPERIMENT = Experiment(
    name="main",
    paper="Fig. 6",
    summary="six targets on five MinAtar games, with and without delay",
    plot=plot,
    claims={11: freeway, 18: comparison},
    stages=main.stages,
    tables=tables,
)
