"""The picture of one episode: what each return promised, which won at every step, and the rewards that came."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.records import figures
from highway_rl.records.rows import Rows

COLOURS = {
    "1-step": figures.PALETTE["one step"],
    "to the end": figures.PALETTE["highway"],
    "Q(s,a)": figures.PALETTE["policy evaluation"],
}
OTHERS = [figures.PALETTE[name] for name in ("Q(λ)", "multi-step", "retrace", "ordered sweeps", "λ-return")]
MARKS = ("o", "s", "^", "D", "v", "P")
FEW = 40
"""Steps up to which every one of them gets a marker."""


def draw(rows: Rows, returns: dict[str, str], rivals: list[str], title: str, path: Path) -> Path:
    """A PNG of the rows of an explained episode; `returns` are the names of its returns and their columns, `rivals` the
    names among which one won."""
    colours = _colours([*returns, *rivals])
    wide = min(7.6 + len(rows) / 40, 13.0)
    title = textwrap.fill(title, int(9 * wide))
    figure, axes = figures.axes(3, title, columns=1, size=(wide, 1.9 + 0.08 * len(rivals)))
    axes[0].get_gridspec().set_height_ratios([3.2, 0.4 + 0.24 * len(rivals), 1.0])
    promises(axes[0], rows, returns, colours)
    winners(axes[1], rows, rivals, colours)
    rewards(axes[2], rows)
    for axis in axes:
        _steps(axis, len(rows), last=axis is axes[2])
    figure.align_ylabels(axes[::2])
    return figures.save(figure, path)


def promises(axis: Any, rows: Rows, returns: dict[str, str], colours: dict[str, str]) -> None:
    """Every return by step, over the target that they make; the key beside the panel."""
    marked = len(rows) <= FEW
    thin = 1.6 if marked else 1.1

    def line(name: str, column: str, **look: Any) -> None:
        axis.plot([row[column] for row in rows], label=name, solid_capstyle="round", **look)

    line("target", "target", color=figures.PALETTE["changed gate"], lw=6, alpha=0.35)
    for i, (name, column) in enumerate(returns.items()):
        mark = {"marker": MARKS[i % len(MARKS)], "ms": 4} if marked else {}
        line(name, column, color=colours[name], lw=thin, ls=figures.LINES[i % 2], **mark)
    line("really followed", "followed", color="black", lw=thin, ls=":")
    line("max Q(s,·)", "value", color=COLOURS["Q(s,a)"], lw=0.9)
    line("Q(s,a)", "q", color=COLOURS["Q(s,a)"], lw=0, marker="o", ms=3.5 if marked else 1.8, mfc="white")
    axis.set(title="What the returns promised", ylabel="discounted return")
    figures.legend(axis, loc="upper left", bbox_to_anchor=(1.01, 1.02), handlelength=2.6, labelspacing=0.7)


def winners(axis: Any, rows: Rows, rivals: list[str], colours: dict[str, str]) -> None:
    """At every step a cell in the row of the return that won."""
    labels = []
    for i, name in enumerate(rivals):
        steps = [row["step"] for row in rows if row["won"] == name]
        axis.bar(steps, np.full(len(steps), 0.84), bottom=i - 0.42, width=1.0, color=colours[name], lw=0)
        labels.append(f"{name}, {len(steps) / len(rows):.0%}")
    axis.set(title="Which return was the largest", ylim=(len(rivals) - 0.4, -0.6))
    axis.set_yticks(range(len(rivals)), labels)
    axis.set_axisbelow(True)


def rewards(axis: Any, rows: Rows) -> None:
    """A line for every reward."""
    paid = [row["reward"] for row in rows]
    axis.vlines(range(len(rows)), 0, paid, color=figures.PALETTE["changed gate"], lw=4 if len(rows) <= FEW else 1.2)
    axis.axhline(0, color="black", lw=0.6)
    axis.set(title="Rewards" if any(paid) else "Rewards: none came", ylabel="reward")
    if not any(paid):
        axis.set_ylim(-1, 1)


def _colours(names: list[str]) -> dict[str, str]:
    others = [name for name in dict.fromkeys(names) if name not in COLOURS]
    return COLOURS | {name: OTHERS[i % len(OTHERS)] for i, name in enumerate(others)}


def _steps(axis: Any, count: int, *, last: bool) -> None:
    """The same steps in every panel, whole numbers, named below the last one."""
    from matplotlib.ticker import MaxNLocator

    axis.set_xlim(-0.6 - 0.01 * count, count - 0.4 + 0.01 * count)
    axis.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axis.tick_params(labelbottom=last)
    if last:
        axis.set_xlabel("step of the episode")
