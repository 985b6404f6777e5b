"""The picture of a training folder: scores, the depths the gate chose, and whether values are too high or too low."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np


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


def draw(folder: Path) -> Path | None:
    """`curves.png` from `metrics.csv`; None where there is nothing to draw or matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return None
    rows = read(folder)
    if not rows:
        return None
    algos = list(dict.fromkeys(r["algo"] for r in rows))
    choosing = any(won_columns(rows, algo) for algo in algos)  # without several depths there is nothing to choose
    figure, axes = plt.subplots(1, 2 + choosing, figsize=(9 + 4 * choosing, 3.6), layout="constrained")
    left, middle, right = axes[0], axes[1], axes[-1]
    for i, algo in enumerate(algos):
        step, scores = curve(rows, algo, "score")
        colour = f"C{i}"
        left.plot(step, mean(scores), color=colour, label=algo)
        left.fill_between(step, *band(scores), color=colour, alpha=0.15, lw=0)
        step, bias = curve(rows, algo, "bias")
        right.plot(step, mean(bias), color=colour, label=algo)
        for column, style in zip(won_columns(rows, algo), ("-", "--", ":", "-."), strict=False):
            step, won = curve(rows, algo, column)
            name = column.removeprefix("won_")
            name = "1-step (gate shut)" if name == "gate" else f"{name}-step" if name != "end" else "to the end"
            middle.plot(step, mean(won), style, color=colour, label=f"{algo}: {name}")
    left.set(title="score of training episodes", xlabel="step", ylabel="mean; band: least to largest seed")
    if choosing:
        middle.set(
            title="which return was the largest", xlabel="step", ylabel="share of stored steps", ylim=(-0.03, 1.03)
        )
    right.set(title="target minus what really followed", xlabel="step")
    right.axhline(0, color="0.6", lw=0.8, zorder=0)
    for axis in axes:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    path = folder / "curves.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


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


def won_columns(rows: list[dict[str, Any]], algo: str) -> list[str]:
    """The columns of the depths this algorithm looks at, if it looks at more than one."""
    mine = [r for r in rows if r["algo"] == algo]
    found = [k for k in mine[0] if k.startswith("won_") and any(not np.isnan(r[k]) for r in mine)]
    return found if len(found) > 1 and algo not in ("dqn", "double-dqn", "maxmin-dqn") else []
