"""Multi-Room: iterations and samples of Highway VI, VI and PI against the number of rooms, under every counting.

The paper compares "iterations" and "samples" and leaves open how large the rooms are, what a state is, whether finding
a door pays again, whether policies and depths are averaged or maximised, and what counts as one iteration of PI or one
sample. All of it is run here, next to a method the paper does not mention: in-place sweeps in order of distance
to the goal. Rooms have sides of 4 to 10 as gym-minigrid draws them, or are all 10 × 10; the first of the two is the
paper's "based on gym-minigrid" taken at its word, and figure and claim show both (docs/deviations.md, 26).

Paper: Fig. 4, App. C.1 (depths 1…10, 5 policies, a new one every 7 iterations, PI depth 10, error 1e-10).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.core import table1
from highway_rl.envs.models.layouts import DOORS, GOAL, START
from highway_rl.envs.models.multiroom import layout_picture, multi_room, random_layout
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Row, Rows, Scale, Verdict, select
from highway_rl.mdp.model import MDP
from highway_rl.records.figures import axes, key, log_ticks, look, save
from highway_rl.solvers import (
    Solution,
    gauss_seidel,
    highway_value_iteration,
    policy_iteration,
    value_iteration,
)

DISCOUNT, TOLERANCE = 0.99, 1e-10
PI_DEPTH = 10
PLANNERS: dict[str, Callable[..., Solution]] = {
    "Highway VI (max)": highway_value_iteration,
    "Highway VI (mean)": functools.partial(highway_value_iteration, backup=table1.highway(range(1, 11))),
    "VI": value_iteration,
    "PI": functools.partial(policy_iteration, sweeps=PI_DEPTH),
    "PI (exact)": policy_iteration,
    "ordered Gauss–Seidel": gauss_seidel,
}
VARIANTS = [
    ("positions", "repeat", 4),
    ("positions", "repeat", 10),
    ("positions", "once", 4),
    *((state, reward, 4) for state in ("headings", "doors") for reward in ("repeat", "once")),
]
"""State, door reward, smallest side of a room; the largest is 10. The first two lead the figure and the claim."""

DOOR = {"repeat": "each time", "once": "once"}

COUNTS = {
    "rows": "every model row read",
    "distinct": "distinct rows per iteration",
    "cached": "n-step policy tables kept",
}


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    rooms, layouts = {"smoke": ((2,), 1), "quick": ((2, 4, 6, 8), 2), "paper": (range(2, 13), 10)}[scale]
    return [
        {"state": state, "door_reward": reward, "smallest_side": side, "rooms": n, "layout": seed + i}
        for state, reward, side in VARIANTS
        for n in rooms
        for i in range(layouts)
    ]


def run(state: str, door_reward: str, smallest_side: int, rooms: int, layout: int) -> Iterable[Row]:
    """One row per method."""
    made = multi_room(rooms=rooms, min_room_size=smallest_side, state=state, door_reward=door_reward, seed=layout)
    mdp = MDP.from_table(*made.table, DISCOUNT).sparse()
    best = policy_iteration(mdp, tol=1e-8).value
    for name, method in PLANNERS.items():
        start = time.perf_counter()
        solution = method(mdp, tol=TOLERANCE, until="change")
        yield {
            "method": name,
            "states": mdp.num_states,
            "actions": mdp.num_actions,
            "iterations": solution.num_iters,
            **solution.num_queries._asdict(),
            "error": float(np.abs(solution.value - best).max()),
            "bound": solution.bound,
            "seconds": round(time.perf_counter() - start, 5),
        }


def means(rows: Rows, column: str, **where: Any) -> dict[str, dict[int, float]]:
    """The mean over layouts by method and number of rooms; queries per state, so that layouts compare."""
    chosen = select(rows, **where)
    found: dict[str, dict[int, list[float]]] = {}
    for row in chosen:
        value = row[column] / (row["states"] if column in COUNTS else 1)
        found.setdefault(row["method"], {}).setdefault(row["rooms"], []).append(value)
    return {method: {n: float(np.mean(x)) for n, x in sorted(by.items())} for method, by in found.items()}


def _wins(mine: dict[int, float], other: dict[int, float]) -> str:
    """At which numbers of rooms the first is smaller, in words."""
    won = [n for n in mine if mine[n] < other[n]]
    if len(won) == len(mine):
        return "at every number of rooms"
    if won and won == [n for n in mine if n >= won[0]]:
        return f"from {won[0]} rooms up"
    return "at " + ", ".join(map(str, won)) + " rooms" if won else "nowhere"


def present(rows: Rows) -> list[dict[str, Any]]:
    """The variants that a stored run holds, each as the columns that name it."""
    keys = ("state", "door_reward", "smallest_side")
    return [w for v in VARIANTS if select(rows, **(w := dict(zip(keys, v, strict=True))))]


def _title(where: dict[str, Any]) -> str:
    size = "10" if where["smallest_side"] == 10 else f"{where['smallest_side']}–10"
    return f"{where['state']}, door pays {DOOR[where['door_reward']]}, sides {size}"


def comparison(rows: Rows) -> Iterable[tuple[str, str, str, bool]]:
    """(variant, aggregation, count, where Highway VI beats VI and PI, whether everywhere): what is behind claim 9."""
    for where in present(rows):
        for column in ("iterations", *COUNTS):
            found = means(rows, column, **where)
            for aggregation in ("max", "mean"):
                mine, vi, pi = found[f"Highway VI ({aggregation})"], found["VI"], found["PI"]
                text = f"{COUNTS.get(column, column)}: fewer than VI {_wins(mine, vi)}, than PI {_wins(mine, pi)}"
                yield _title(where), aggregation, text, all(mine[n] < min(vi[n], pi[n]) for n in mine)


def _row(rows: Rows, where: dict[str, Any]) -> str:
    """Iterations of one variant at its fewest and most rooms, and where the maximum beats VI and PI."""
    found = means(rows, "iterations", **where)
    mine, vi, pi = found["Highway VI (max)"], found["VI"], found["PI"]
    ends = sorted({min(n for n in vi if n >= 4) if max(vi) >= 4 else min(vi), max(vi)})
    numbers = ", ".join(f"{mine[n]:.1f} / {pi[n]:.1f} / {vi[n]:.1f} at {n} rooms" for n in ends)
    won = f"fewer than VI {_wins(mine, vi)}, than PI {_wins(mine, pi)}"
    return f"{_title(where)}: Highway (max) / PI / VI {numbers}; {won}"


def _losses(rows: Rows) -> Iterable[str]:
    """What the comparison turns on, each said with its numbers at the most rooms."""
    where = present(rows)[0]
    most = max(row["rooms"] for row in select(rows, **where))
    iterations, read = means(rows, "iterations", **where), means(rows, "rows", **where)
    yield f"with the mean instead of the maximum {iterations['Highway VI (mean)'][most]:.0f} iterations"
    yield "rows read per state " + " / ".join(f"{read[m][most]:.0f}" for m in ("Highway VI (max)", "PI", "VI"))
    for other in present(rows)[1:]:
        if other["smallest_side"] == where["smallest_side"]:
            found = means(rows, "iterations", **other)
            numbers = " / ".join(f"{found[m][most]:.0f}" for m in ("Highway VI (max)", "PI", "VI"))
            yield f"{other['state']}, door pays {DOOR[other['door_reward']]}: {numbers}"
    ordered = max(x for w in present(rows) for x in means(rows, "iterations", **w)["ordered Gauss–Seidel"].values())
    yield f"ordered Gauss–Seidel never more than {ordered:.0f}"


def _fewer(rows: Rows) -> Verdict:
    held = [good for *_, good in comparison(rows)]
    leading = present(rows)[:2]
    most = max(row["rooms"] for row in rows)
    text = (
        f"iterations. {'. '.join(_row(rows, where) for where in leading)}. At {most} rooms, {_title(leading[0])}: "
        f"{'; '.join(_losses(rows))}. Below both VI and PI at every number of rooms in {sum(held)} of {len(held)} "
        "readings (room size, state, door, aggregation, count)"
    )
    by_method = [means(rows, "iterations", **where) for where in leading]
    against_vi = all(by["Highway VI (max)"][n] < by["VI"][n] for by in by_method for n in by["VI"])
    return Verdict(text, HOLDS if all(held) else PARTLY if any(held) or against_vi else FAILS)


def plot(rows: Rows, out: Path) -> list[Path]:
    """Three figures: the paper's two panels, every variant and counting, the layouts."""
    return [_headline(rows, out), _every_counting(rows, out), _layouts(rows, out)]


def _curve(ax: Any, by_rooms: dict[int, float], name: str) -> None:
    shade, line = look(name)
    ax.plot(list(by_rooms), list(by_rooms.values()), f"o{line}", color=shade, label=name, ms=4)


def _headline(rows: Rows, out: Path) -> Path:
    """The paper's two panels, once per family of rooms."""
    leading = present(rows)[:2]
    figure, grid = axes(2 * len(leading), "Multi-Room: Highway VI against VI and PI", columns=2, size=(5, 3.6))
    for i, where in enumerate(leading):
        left, right = grid[2 * i : 2 * i + 2]
        for ax, column, label in (
            (left, "iterations", "iterations until ‖ΔV‖ ≤ 1e-10"),
            (right, "rows", "model rows read / states"),
        ):
            found = means(rows, column, **where)
            for name, by_rooms in found.items():
                _curve(ax, by_rooms, name)
            if column == "iterations":
                swept = {n: (1 + PI_DEPTH) * x for n, x in found["PI"].items()}
                _curve(ax, swept, "PI, sweeps counted")
            ax.set(xlabel="number of rooms", ylabel=label, title=_title(where))
            log_ticks(ax)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    return save(figure, out / "multi-room.png")


def _every_counting(rows: Rows, out: Path) -> Path:
    columns = ("iterations", *COUNTS)
    title = "Multi-Room under every reading: how large the rooms, what a state is, how the door pays, what is counted"
    readings = present(rows)
    figure, grid = axes(len(readings) * len(columns), title, columns=len(columns), size=(3.8, 2.6))
    for i, where in enumerate(readings):
        lowest = i == len(readings) - 1
        for j, column in enumerate(columns):
            ax = grid[i * len(columns) + j]
            for name, by_rooms in means(rows, column, **where).items():
                _curve(ax, by_rooms, name)
            ylabel = "iterations" if column == "iterations" else f"queries / states\n({COUNTS[column]})"
            ax.set(title=_title(where), xlabel="number of rooms" if lowest else "", ylabel=ylabel)
            ax.tick_params(labelbottom=lowest)
            log_ticks(ax)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return save(figure, out / "multi-room-countings.png")


def _layouts(rows: Rows, out: Path) -> Path:
    rooms = sorted({row["rooms"] for row in rows})
    seed = min(row["layout"] for row in rows)
    columns = min(6, len(rooms))
    gap: list[int | None] = [None] * (-len(rooms) % columns)  # each family starts a new line
    shown = [(side, n) for side in sorted({row["smallest_side"] for row in rows}) for n in [*rooms, *gap]]
    figure, grid = axes(len(shown), f"The layouts of seed {seed}", columns=columns, size=(2.4, 2.5))
    for ax, (side, n) in zip(grid, shown, strict=True):
        if n is None:
            ax.set_visible(False)
            continue
        ax.imshow(layout_picture(random_layout(rooms=n, min_room_size=side, seed=seed)))
        ax.set_title(f"{n} rooms, sides {side}–10" if side < 10 else f"{n} rooms of 10 × 10")
        ax.axis("off")
    square = {"marker": "s", "lw": 0, "ms": 9}
    marks = {"start": {**square, "color": _rgb(START), "ms": 5}, "goal": {**square, "color": _rgb(GOAL)}}
    marks |= {f"door {i}": {**square, "color": _rgb(shade)} for i, shade in enumerate(DOORS, 1)}
    marks[f"doors beyond {len(DOORS)}: again from the first colour"] = {"lw": 0}
    key(figure, marks, "outside lower center", ncols=len(marks))
    return save(figure, out / "multi-room-layouts.png")


def _rgb(levels: tuple[int, int, int]) -> tuple[float, ...]:
    return tuple(x / 255 for x in levels)


EXPERIMENT = Experiment(
    name="multi-room",
    paper="Fig. 4",
    summary="iterations and samples of Highway VI, VI, PI and ordered sweeps against the number of rooms",
    cells=cells,
    run=run,
    plot=plot,
    claims={9: _fewer},
)
