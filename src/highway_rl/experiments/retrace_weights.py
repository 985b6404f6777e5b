"""Retrace's weights: how fast the product of clipped ratios fades with depth, in the runs of the main comparison."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from highway_rl.deep.diagnostics import RATIO_DEPTHS
from highway_rl.experiments import main
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Rows, Scale, Stage, Table, Verdict
from highway_rl.experiments.main import DELAYED, HIGHWAY, finals, title
from highway_rl.experiments.scores import ByTask, above, how_many, parts, said, share, values
from highway_rl.records.figures import axes, in_order, key, save
from highway_rl.records.statistics import Interval, aggregate

RETRACE = "Retrace(1)"
LATE = ("keeps up without delay", "half of Highway's score or less in every game with delay")


def stages(scale: Scale, seed: int, rows: Rows) -> list[Stage]:
    """The main comparison's: nothing is trained for this alone."""
    return main.stages(scale, seed, rows)


def used(rows: Rows) -> Rows:
    """Retrace's long runs, and those of the Highway agents, beside which the claim puts them."""
    every = [finals(rows, env, "best") for env in dict.fromkeys(row["env"] for row in rows)]
    return [row for runs in every for name in (RETRACE, *HIGHWAY) for its in runs.get(name, {}).values() for row in its]


def notes(rows: Rows) -> list[str]:
    """Which of them the figure shows."""
    found = used(rows)
    shown = sum(row["algo"].startswith("retrace") for row in found)
    return [
        f"Nothing is trained for this alone: the figure and the table show the {shown} long runs of {RETRACE} in the"
        f" main comparison, and the claim puts the {len(found) - shown} of the two Highway agents beside them."
    ]


def products_of(rows: Rows) -> dict[tuple[str, str], np.ndarray]:
    """By task and options, the product over the next 1, 2, 4, … actions at the end of Retrace's long runs,
    [seed, depth]."""
    by_task: dict[tuple[str, str], list[list[float]]] = {}
    for env in dict.fromkeys(row["env"] for row in rows):
        for task, its in finals(rows, env, "best").get(RETRACE, {}).items():
            sound = [row["ratio"] for row in its if row["broken"] is None]
            by_task[task, env] = [[np.nan if x is None else x for x in products] for products in sound]
    return {where: np.array(each, float) for where, each in by_task.items()}


def weights(rows: Rows) -> dict[tuple[str, str], np.ndarray]:
    """The mean over seeds, [depth]."""
    tables = products_of(rows)
    return {where: np.nansum(x, 0) / np.maximum((~np.isnan(x)).sum(0), 1) for where, x in tables.items()}


def halving(products: np.ndarray) -> tuple[float, float]:
    """The depth in which the product halves, and how much of its logarithm a straight line explains (R²), over the
    depths at which it is still above one in a hundred thousand."""
    depths = np.array(RATIO_DEPTHS, float)
    there = products > 1e-5
    if there.sum() < 2:
        return float("nan"), float("nan")
    x, y = depths[there], np.log(products[there])
    slope, start = np.polyfit(x, y, 1)
    rest, spread = np.sum((y - start - slope * x) ** 2), np.sum((y - y.mean()) ** 2)
    return float(-np.log(2) / slope), float(1 - rest / spread) if spread > 0 else float("nan")


def beside(runs: Mapping[str, ByTask], task: str) -> Interval[float]:
    """Retrace's greedy score beside that of the better Highway agent."""
    better = max(HIGHWAY, key=lambda name: float(np.mean(values(runs[name][task], "greedy") or [0.0])))
    return share(runs[RETRACE][task], runs[better][task], "greedy")


def fading(rows: Rows) -> Verdict:
    """Claim 16: keeps up without delay; fails with it, at half of Highway's score or less in every game, as in claim
    12; and ratios that fade exponentially."""
    each = [np.reshape([halving(x) for x in products], (-1, 2)) for products in products_of(rows).values()]
    sound = [x[~np.isnan(x).any(1)] for x in each]
    lasts, fits = ({str(i): x[:, j] for i, x in enumerate(sound) if len(x)} for j in range(2))
    words, holds = [], {"fades exponentially": False}
    if lasts:
        depth, fit = (aggregate({"": x})[""].median for x in (lasts, fits))
        line = f"a straight line explains {said(fit, 3)} of its logarithm"
        words = [f"the product halves every {said(depth)} steps (median over tasks); {line}"]
        holds = {"fades exponentially": fit.value >= 0.9}
    for env in dict.fromkeys(row["env"] for row in rows):
        runs = finals(rows, env, "best")
        if not runs:
            words.append(f"{'with' if env == DELAYED else 'without'} delay the long runs are still to come")
            holds[LATE[env == DELAYED]] = False
            continue
        likely = {name: above(runs[name], runs[RETRACE], "greedy") for name in HIGHWAY}
        most = max(one.value if one else 0.0 for one in likely.values())
        shares = {task: beside(runs, task) for task in runs[RETRACE]}
        fails = most >= 0.75 and all(one.value <= 0.5 for one in shares.values())
        holds[LATE[env == DELAYED]] = fails if env == DELAYED else most < 0.75
        said_ = ", ".join(f"P({name} above Retrace) = {said(one, 2)}" for name, one in likely.items())
        each_ = ", ".join(f"{title(task, env)} {said(x, 2)}" for task, x in shares.items())
        words.append(
            f"{'with' if env == DELAYED else 'without'} delay ({len(runs[RETRACE])} tasks) {said_}; Retrace's share of"
            f" the better one's score: {each_}"
        )
    verdict = HOLDS if all(holds.values()) else PARTLY if any(holds.values()) else FAILS
    return Verdict(parts(holds) + "; ".join(words), verdict)


def plot(rows: Rows, out: Path) -> list[Path]:
    found, envs = weights(rows), list(dict.fromkeys(row["env"] for row in rows))
    seeds = how_many(its for env in envs for its in finals(rows, env, "best").get(RETRACE, {}).values())
    figure, (ax,) = axes(1, f"Retrace(1): mean product of clipped ratios, {seeds}", size=(7.2, 4.0))
    looks = in_order(dict.fromkeys(task for task, _ in found))
    marks = dict(zip(looks, itertools.cycle("os^DvPX"), strict=False))
    for (task, env), products in found.items():
        there = products > 1e-6
        line = "-" if env == DELAYED else "--"
        depths = np.array(RATIO_DEPTHS)[there]
        shade = looks[task].colour
        ax.plot(depths, products[there], line, marker=marks[task], ms=4, color=shade)
    ax.set(yscale="log", xlabel="depth (a straight line fades exponentially)", ylabel="at the end of training")
    games = {title(task, ""): {"color": looks[task].colour, "marker": marks[task], "ms": 4} for task in looks}
    kinds = [("with delay", "-", True), ("without delay", "--", False)]
    lines = {
        name: {"color": "0.4", "ls": line} for name, line, late in kinds if late in [e == DELAYED for _, e in found]
    }
    key(figure, games | lines, "outside right center", handlelength=3)
    return [save(figure, out / "retrace-weights.png")]


def tables(rows: Rows) -> list[Table]:
    lines = [
        (title(task, env), *(f"{x:.2g}" for x in products), f"{halving(products)[0]:.2g}")
        for (task, env), products in weights(rows).items()
    ]
    columns = ("task", *(f"{n}" for n in RATIO_DEPTHS), "halves every … steps")
    return [Table("Mean product of the next n clipped ratios, by n", columns, lines)]


EXPERIMENT = Experiment(
    name="retrace-weights",
    paper="Fig. 10",
    summary="how fast Retrace's weights fade with depth",
    plot=plot,
    claims={16: fading},
    stages=stages,
    tables=tables,
    ready=lambda rows: bool(weights(rows)),
    used=used,
    notes=notes,
)
