"""The picture of a training folder: scores, the depths the gate chose, and whether values are too high or too low."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.records import figures


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.csv, numbers as numbers."""
    path = folder / "metrics.csv"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                {k: v if k == "algo" else float(v) if v else np.nan for k, v in r.items()} for r in csv.DictReader(file)
            ]
    except FileNotFoundError:
        raise ValueError(f"{folder} is no training folder: {path} is not there") from None


def draw(folder: Path) -> Path:
    """`curves.png` from `metrics.csv` and, where it is there, `evaluation.json`."""
    rows = read(folder)
    if not rows:
        raise ValueError(f"{folder} has nothing to draw: its metrics.csv holds no rows yet")
    algos = list(dict.fromkeys(r["algo"] for r in rows))
    panels: list[Callable[[Any, list[dict[str, Any]], list[str]], None]] = [scores]
    if greedy := _evaluation(folder):
        panels.append(lambda axis, _, names: final(axis, greedy, names))
    if any(depths(rows, algo, "won_") for algo in algos):
        panels.append(winners)
    if any(depths(rows, algo, "open_") for algo in algos):
        panels.append(gates)
    panels.append(bias)
    figure, axes = figures.axes(len(panels), _title(folder), columns=min(3, len(panels)), size=(4.6, 3.4))
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis, rows, algos)
        if axis.get_legend_handles_labels()[0]:
            figures.legend(axis)
    return figures.save(figure, folder / "curves.png")


def scores(axis: Any, rows: list[dict[str, Any]], algos: list[str]) -> None:
    for i, algo in enumerate(algos):
        step, found = curve(rows, algo, "score")
        axis.plot(step, mean(found), color=f"C{i}", label=algo)
        axis.fill_between(step, *band(found), color=f"C{i}", alpha=0.15, lw=0)
    axis.set(title="Score of training episodes", xlabel="step", ylabel="mean; band: least to largest seed")


def final(axis: Any, greedy: list[dict[str, Any]], algos: list[str]) -> None:
    for i, algo in enumerate(algos):
        each = [row["score"] for row in greedy if row["algo"] == algo and row.get("broken") is None]
        axis.bar(i, np.mean(each) if each else np.nan, color=f"C{i}", alpha=0.35)
        axis.plot([i] * len(each), each, "o", ms=3, color=f"C{i}")
    axis.set(title="Greedy episodes with the final networks", ylabel="mean; a dot is a seed")
    axis.set_xticks(range(len(algos)), [algo.replace("-dqn", "").replace("-", "\n") for algo in algos], fontsize=8)


def winners(axis: Any, rows: list[dict[str, Any]], algos: list[str]) -> None:
    _per_depth(axis, rows, algos, "won_")
    axis.set(title="Which return was the largest", xlabel="step", ylabel="share of stored steps", ylim=(-0.03, 1.03))


def gates(axis: Any, rows: list[dict[str, Any]], algos: list[str]) -> None:
    _per_depth(axis, rows, algos, "open_")
    axis.set(title="Where the gate is open (or would be)", xlabel="step", ylabel="share of stored steps", yscale="log")


def bias(axis: Any, rows: list[dict[str, Any]], algos: list[str]) -> None:
    for i, algo in enumerate(algos):
        step, found = curve(rows, algo, "bias")
        axis.plot(step, mean(found), color=f"C{i}")
    axis.axhline(0, color="0.6", lw=0.8, zorder=0)
    axis.set(title="Target minus what really followed", xlabel="step", ylabel="mean; colours as in the first panel")


def _per_depth(axis: Any, rows: list[dict[str, Any]], algos: list[str], prefix: str) -> None:
    for i, algo in enumerate(algos):
        for column, style in zip(depths(rows, algo, prefix), ("-", "--", ":", "-."), strict=False):
            step, found = curve(rows, algo, column)
            axis.plot(step, mean(found), style, color=f"C{i}", label=f"{algo}: {_named(column.removeprefix(prefix))}")


def _named(depth: str) -> str:
    return {"gate": "1-step (gate shut)", "end": "to the end"}.get(depth, f"{depth}-step")


def depths(rows: list[dict[str, Any]], algo: str, prefix: str) -> list[str]:
    """The columns of the depths this algorithm looks at; who wins is a question where there are several."""
    mine = [r for r in rows if r["algo"] == algo]
    found = [k for k in mine[0] if k.startswith(prefix) and any(not np.isnan(r[k]) for r in mine)]
    found = [k for k in found if k != f"{prefix}1"]  # the 1-step return is the gate's own
    return found if prefix == "open_" or len(found) > 2 else []


def _evaluation(folder: Path) -> list[dict[str, Any]]:
    path = folder / "evaluation.json"
    return json.loads(path.read_text(encoding="utf-8"))["scores"] if path.exists() else []


def _title(folder: Path) -> str:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    delay = config.get("env", {}).get("delay")
    return f"{config.get('task', folder.name)}" + (f", delay {delay}" if delay else "")


def mean(found: np.ndarray) -> np.ndarray:
    """Over seeds, leaving out what is missing; NaN where all is."""
    known = ~np.isnan(found)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, found, 0).sum(axis=0) / np.maximum(count, 1), np.nan)


def band(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest over seeds."""
    return np.fmin.reduce(found, axis=0), np.fmax.reduce(found, axis=0)


def curve(rows: list[dict[str, Any]], algo: str, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and [seed, step] of a column."""
    mine = [r for r in rows if r["algo"] == algo]
    steps = sorted({r["step"] for r in mine})
    seeds = sorted({r["seed"] for r in mine})
    found = np.full((len(seeds), len(steps)), np.nan)
    for r in mine:
        found[seeds.index(r["seed"]), steps.index(r["step"])] = r.get(column, np.nan)
    return np.asarray(steps), found
