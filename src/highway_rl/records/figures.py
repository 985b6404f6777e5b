"""How our figures look: one palette, one way to lay out panels, one way to save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {
    "blue": "#2c6fbb",
    "orange": "#e08a1e",
    "red": "#c8393b",
    "multi-step": "#8c6bb1",
    "highway": "#1b7f5c",
    "highway, uniform over 1…n": "#8fc9b2",
    "optimality, 1…n": "#0b3d2e",
    "Highway VI (max)": "#1b7f5c",
    "Highway VI (mean)": "#8fc9b2",
    "VI": "#777777",
    "PI": "#2c6fbb",
    "PI, sweeps counted": "#9ec4ea",
    "PI (exact)": "#8c6bb1",
    "ordered Gauss–Seidel": "#e08a1e",
}


def axes(
    panels: int, title: str, *, columns: int | None = None, size: tuple[float, float] = (4.4, 3.6)
) -> tuple[Any, Any]:
    """A figure with `panels` axes in rows of `columns`; the unused ones are hidden."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'highway-rl[plots]'") from None

    columns = columns or panels
    lines = -(-panels // columns)
    look: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}
    with rc_context({**look, "font.size": 9}):
        figure = Figure(figsize=(size[0] * columns, size[1] * lines + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for unused in grid[panels:]:
        unused.set_visible(False)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    return figure, grid[:panels]


def legend(ax: Any, **options: Any) -> None:
    ax.legend(frameon=False, fontsize=8, **options)


def save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    for ax in figure.axes:
        ax.title.set_fontsize(10)  # `set_title` takes its size from the settings of the moment it is called
    figure.savefig(path, dpi=130)
    return path
