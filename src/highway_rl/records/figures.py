"""How our figures look: one colour for an algorithm in every figure, panels, bands, ticks, one way to save.

A colour belongs to a family: all that back up in the same way, planners, tables and networks alike. Variants of a
family differ in shade and line style, which follow from their label alone.
"""

from __future__ import annotations

import colorsys
import io
import math
import re
import textwrap
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PALETTE = {
    "one step": "#6A5F5E",
    "double": "#AAAB9D",
    "maxmin": "#232038",
    "multi-step": "#CF82C9",
    "λ-return": "#880060",
    "Q(λ)": "#48AFFD",
    "tree backup": "#CE9C03",
    "retrace": "#7E4BE0",
    "highway": "#009E73",
    "soft highway": "#1B4D14",
    "changed gate": "#CF723C",
    "policy evaluation": "#1977A1",
    "ordered sweeps": "#E7B713",
    "RUDDER": "#BC5104",
}
"""By family. Any two are further apart than the closest of Okabe and Ito's eight are, also without red or green
cones (tests/records/test_figures.py)."""

FAMILIES = {
    "one step": ("dqn", "VI", "Bellman optimality"),
    "double": ("double",),
    "maxmin": ("maxmin",),
    "multi-step": ("n-step", "multi-step", "Monte Carlo"),
    "λ-return": ("lambda", "λ-return", "SARSA(λ)"),
    "Q(λ)": ("watkins", "Q(λ"),
    "tree backup": ("tree-backup", "Tree Backup"),
    "retrace": ("retrace",),
    "highway": ("n-step-highway", "highway", "Highway VI (max)", "Highway Q-learning", "optimality"),
    "soft highway": ("soft-highway", "Highway softmax"),
    "changed gate": ("highway-gate", "highway-mean-gate", "gate", "mean, no gate"),
    "policy evaluation": ("PI", "Bellman expectation"),
    "ordered sweeps": ("ordered Gauss–Seidel",),
    "RUDDER": ("RUDDER",),
}
"""How the names of a family begin; the longest beginning wins."""

LINES = ("-", "--", ":", "-.")
SHADES = {
    "Highway VI (mean)": (0.1, "-"),
    "highway, uniform over 1…n": (0.1, "-"),
    "optimality, 1…n": (0.9, "--"),
    "highway-gate-0": (0.2, "--"),
    "highway-gate-3": (0.5, "-"),
    "highway-mean-gate": (0.9, ":"),
    "mean, no gate": (0.9, "--"),
    "PI (exact)": (0.9, "--"),
    "PI, sweeps counted": (0.1, ":"),
    "RUDDER + Q(λ)": (0.15, "-"),
}
"""From 0, light, over 0.5, the family's own colour, to 1, dark; and the line, of variants that have no option."""

MIDDLE = {"n": 5.0, "k": 4.0, "num_networks": 4.0, "alpha": 0.003, "lam": 0.8}
"""The value of an option that has its family's own colour: smaller ones are lighter, larger ones darker."""


class Look(NamedTuple):
    """A colour as #rrggbb and a line style."""

    colour: str
    line: str


def family(name: str) -> str:
    """The family a name or label belongs to; a name that begins like no family is one of its own."""
    head = _halves(name)[0].casefold()
    starts = {start.casefold(): kind for kind, names in FAMILIES.items() for start in (kind, *names)}
    known = [s for s in starts if head.startswith(s) and not head[len(s) : len(s) + 1].isalnum()]
    return starts[max(known, key=len)] if known else head


def colour(name: str, shade: float | None = None) -> str:
    """The colour of an algorithm, by its label alone: the hue of its family in a shade of its own, or in this one."""
    return look(name).colour if shade is None else _shaded(_base(family(name)), shade)


def look(name: str) -> Look:
    """Colour and line of a label, whatever else is in the figure."""
    shade, line = _variant(name)
    return Look(_shaded(_base(family(name)), shade), line)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """`look` of each, whatever their order; where two of a family could be mistaken one gets another line or shade."""
    taken: dict[str, list[tuple[float, str]]] = {}
    found = {}
    for name in sorted(set(names), key=lambda name: (len(_halves(name)[1]) > 0, name)):
        shade, line = _variant(name)
        others = taken.setdefault(family(name), [])
        turned = [LINES[(LINES.index(line) + i) % len(LINES)] for i in range(len(LINES))]
        shades = [shade] + sorted(np.linspace(0, 1, 6).tolist(), key=lambda x: -abs(x - shade))
        free = [(s, x) for s in shades for x in turned if all(x != y or abs(s - r) >= 0.3 for r, y in others)]
        others.append(free[0] if free else (shade, line))
        found[name] = Look(_shaded(_base(family(name)), others[-1][0]), others[-1][1])
    return found


def in_order(names: Iterable[str]) -> dict[str, Look]:
    """Looks for variants of one thing that have an order: from dark to light along a map that is safe for colour-blind
    readers, each with another line than its neighbours."""
    from matplotlib import colormaps

    every = list(names)
    shades = np.linspace(0, 0.85, max(len(every), 2))
    hexed = ["#" + "".join(f"{round(255 * x):02x}" for x in colormaps["viridis"](shade)[:3]) for shade in shades]
    return {name: Look(hexed[i], LINES[i % len(LINES)]) for i, name in enumerate(every)}


def _halves(name: str) -> tuple[str, str]:
    """A label at the colon before its options."""
    match = re.fullmatch(r"(.*?):(\w+=.*)", name)
    return (match[1], match[2]) if match else (name, "")


def _variant(name: str) -> tuple[float, str]:
    """Shade and line: by the table, by the first option, or the family's own."""
    head, options = _halves(name)
    if not options:
        return SHADES.get(head, (0.5, "-"))
    chance = zlib.crc32(options.encode())
    key, _, value = re.split(r",(?=\w+=)", options)[0].partition("=")
    size = math.inf if value == "end" else _real(value.strip("(").split(",")[0])
    if key not in MIDDLE or size is None:
        return chance % 1000 / 999, LINES[chance % len(LINES)]
    return (1.0 if size == math.inf else size / (size + MIDDLE[key])), LINES[chance % len(LINES)]


def _real(text: str) -> float | None:
    try:
        return max(float(text), 0.0)
    except ValueError:
        return None


def _base(kind: str) -> tuple[float, ...]:
    """Red, green, blue of a family; of an unknown one, a hue from its name."""
    if kind in PALETTE:
        return tuple(int(PALETTE[kind][i : i + 2], 16) / 255 for i in (1, 3, 5))
    return colorsys.hls_to_rgb(zlib.crc32(kind.encode()) % 360 / 360, 0.42, 0.6)


def _shaded(base: tuple[float, ...], shade: float) -> str:
    """Mixed with up to 60 % white (shade 0) or 55 % black (shade 1)."""
    far = abs(2 * shade - 1) * (0.6 if shade < 0.5 else 0.55)
    mixed = [(1 - far) * x + far * (shade < 0.5) for x in base]
    return "#" + "".join(f"{round(255 * x):02x}" for x in mixed)


def short(names: Iterable[str], width: int = 24) -> list[str]:
    """Labels for a narrow place: without `-dqn`, Greek letters, at most three lines, and still all different."""
    whole = [_plain(name) for name in names]
    cut = [textwrap.fill(x, width, break_on_hyphens=False, max_lines=3, placeholder=" …") for x in whole]
    return [y if cut.count(y) == whole.count(x) else x for x, y in zip(whole, cut, strict=True)]


def _plain(name: str) -> str:
    head, options = _halves(name)
    options = re.sub(r",(?=\w+=)", " ", options)
    return f"{head.removesuffix('-dqn')} {options}".strip().replace("alpha=", "α=").replace("lam=", "λ=")


def log_band(centre: Any, low: Any, high: Any, factor: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """A band for a logarithmic axis: never further than `factor` times from the centre, so it never fills a panel."""
    middle = np.asarray(centre, float)
    return np.clip(low, middle / factor, middle), np.clip(high, middle, middle * factor)


def log_ticks(ax: Any, along: str = "y") -> None:
    """A logarithmic axis, y or x, with numbers that can be read, at most seven; to be called when all is drawn."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax.set(**{f"{along}scale": "log"})
    axis = getattr(ax, f"{along}axis")
    low, high = sorted(axis.get_view_interval())
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [x * 10.0**k for k in powers for x in steps if low <= x * 10.0**k <= high]
        if len(ticks) <= 7:
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axis.set_minor_locator(NullLocator())


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
    style: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}
    with rc_context({**style, "font.size": 9}):
        figure = Figure(figsize=(size[0] * columns, size[1] * lines + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for unused in grid[panels:]:
        unused.set_visible(False)
    heading = figure.suptitle(title, fontsize=12, fontweight="bold")
    share = heading.get_window_extent().width / (0.97 * figure.bbox.width)
    if share > 1:
        longest = max(map(len, title.splitlines()))
        heading.set_text("\n".join(textwrap.fill(line, int(longest / share)) for line in title.splitlines()))
    return figure, grid[:panels]


def legend(ax: Any, **options: Any) -> None:
    """A key inside a panel."""
    ax.legend(fontsize=8, framealpha=0.75, edgecolor="none", **options)


def key(figure: Any, entries: dict[str, dict[str, Any]], place: str = "outside right upper", **options: Any) -> None:
    """A key beside the panels: for each text the look of its line or marker."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], **given) for given in entries.values()]
    figure.legend(lines, list(entries), loc=place, frameon=False, fontsize=8, **options)


def key_below(figure: Any, looks: Mapping[str, Look], columns: int = 6) -> None:
    """A key of lines under the panels."""
    lines = {name: {"color": x.colour, "ls": x.line} for name, x in looks.items()}
    key(figure, lines, "outside lower center", ncols=min(columns, len(looks)))


def save(figure: Any, path: Path) -> Path:
    """The figure as a PNG of 256 colours, a third of the bytes of all; its folder is made if need be."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    for ax in figure.axes:
        ax.set_title(ax.get_title(), fontsize=10, y=1.0)  # a size of now; with a place, no ticks are measured for one
    figure.set_dpi(130)
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    figure.canvas.draw()  # savefig draws twice, to find the places
    path.write_bytes(png(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())), figure.get_suptitle()))
    return path


def png(image: Any, title: str = "") -> bytes:
    """A picture of PIL as a PNG of 256 colours; a title stands in it where viewers and `highway-rl report` find it."""
    from PIL.Image import Quantize
    from PIL.PngImagePlugin import PngInfo

    file, about = io.BytesIO(), PngInfo()
    if title:
        about.add_itxt("Title", title)
    image.convert("RGB").quantize(256, Quantize.FASTOCTREE).save(file, "PNG", pnginfo=about)
    return file.getvalue()
