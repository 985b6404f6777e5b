"""One HTML page of all that is stored: claims with their verdicts, figures, tables, and how each was measured.

    stored rows ──section, per experiment──> figures, tables, verdicts, what made the rows ──page──> FILE.html

Figures are drawn anew, so the page shows what the rows say today. The same rows give the same page.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import gc
import io
import multiprocessing
import queue
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from highway_rl import checks
from highway_rl.experiments import claims
from highway_rl.experiments.base import NOT_RUN, Experiment, Rows, Table, Verdict, experiments, find
from highway_rl.experiments.scores import id_table
from highway_rl.records.figures import png
from highway_rl.records.rows import write_text
from highway_rl.runs import checkout
from highway_rl.runs.sweep import SPEC
from highway_rl.runs.trials import in_a_row

LIMIT = 5_000_000
"""Bytes that the page may have."""

SMALLER = (0.7, 0.5, 0.35, 0.2)
"""Share of the figures' width, where they would make the page too large as they are."""


class Picture(NamedTuple):
    """A figure as a PNG of 256 colours, and its size in pixels as it was drawn."""

    title: str
    data: bytes
    width: int
    height: int


class Origin(NamedTuple):
    """Rows that the same code made on the same kind of machine: how many, and all that is known of it."""

    amount: str
    facts: dict[str, str]


class Section(NamedTuple):
    """An experiment on the page; where nothing is stored yet there are no origins, and the claims say how to run it.
    What is no experiment says by which command it was made."""

    name: str
    paper: str
    summary: str
    scale: str
    size: str
    claims: list[dict[str, Any]]
    pictures: list[Picture]
    tables: list[Table]
    origins: list[Origin]
    command: str = ""
    notes: Sequence[str] = ()
    again: Sequence[str] = ()
    """Of training runs, which have ids: the commands that make one again by its own code."""


def report(
    results: Path, file: Path, step: Callable[[int, int], None] | None = None, *, workers: int | None = None
) -> Path:
    """Writes the page of all experiments, from the rows stored in `results`, or of a sweep where that is its folder.
    `step` hears of each finished one.

    `workers` are processes that draw side by side; by default this one draws all.
    """
    from highway_rl.experiments.report_page import page

    if not results.is_dir():
        raise ValueError(f"{results} is not there: give a folder of stored runs, such as results")
    if (results / SPEC).exists():
        from highway_rl.experiments import report_sweep

        write_text(file, page([], [report_sweep.section(results)]))
        return file
    workers = checks.whole("workers", 1 if workers is None else workers, 1)
    names = list(experiments())
    found: dict[str, Section] = {}
    for section in _sections(sorted(names, key=lambda name: -_drawn(name, results)), results, workers):
        found[section.name] = section
        if step is not None:
            step(len(found), len(names))
    sections = [found[name] for name in names]
    judged = {claim["id"]: claim for section in sections for claim in section.claims}
    every = [judged.get(i, claims.claim(i, Verdict("no experiment for it yet", NOT_RUN))) for i in claims.STATEMENTS]
    text = page(every, sections)
    for share in SMALLER:
        if len(text.encode()) <= LIMIT:
            break
        text = page(every, [s._replace(pictures=[smaller(p, share) for p in s.pictures]) for s in sections])
    write_text(file, text)
    return file


def _drawn(name: str, results: Path) -> int:
    """How large the figures are that lie beside the rows of an experiment: those that have most to draw begin first."""
    return sum(path.stat().st_size for path in results.glob(f"{name}*.png"))


def _sections(names: list[str], results: Path, workers: int) -> Iterator[Section]:
    """The section of each experiment, as they come: this process draws, and others beside it take what is next."""
    todo, done = collections.deque(names), queue.SimpleQueue[Section]()
    spawn = multiprocessing.get_context("spawn")

    def left() -> Iterator[str]:
        with contextlib.suppress(IndexError):  # another has taken the last one
            while True:
                yield todo.popleft()

    def hand_out(pool: concurrent.futures.Executor) -> None:
        for name in left():
            done.put(pool.submit(_named, name, results).result())

    helpers = []
    with contextlib.ExitStack() as stack:
        if workers > 1:
            pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(workers - 1, spawn, initializer=_ready))
            threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(workers - 1))
            helpers = [threads.submit(hand_out, pool) for _ in range(workers - 1)]
        stack.callback(todo.clear)  # if one fails, the others stop after what they are at
        stack.callback(gc.unfreeze)
        _ready()
        for name in left():
            yield _named(name, results)
            while not done.empty():
                yield done.get()
        for helper in concurrent.futures.as_completed(helpers):
            helper.result()
            while not done.empty():
                yield done.get()


def _ready() -> None:
    """Imports all experiments; what is there then is no longer looked through for what can be thrown away."""
    list(experiments())
    gc.freeze()


def _named(name: str, results: Path) -> Section:
    return section(find(name), results)


def section(experiment: Experiment, results: Path) -> Section:
    """All that the page shows of an experiment."""
    about = (experiment.name, experiment.paper, experiment.summary)
    rows, facts = claims.stored(experiment, results)
    if not rows:
        how = f"run it with: highway-rl run {experiment.name} --scale paper"
        return Section(
            *about, "paper", "", [claims.claim(i, Verdict(how, NOT_RUN)) for i in experiment.claims], [], [], []
        )
    with claims.fitting(experiment.path(results)), tempfile.TemporaryDirectory() as folder:
        pictures = [picture(path) for path in experiment.plot(rows, Path(folder))]
        notes, used = experiment.notes(rows), experiment.used(rows)
        tables = experiment.tables(rows)
        tables = [table for table in [*tables, *([] if facts else [id_table(used, tables)])] if table.rows]
        judged = [claims.claim(i, judge(rows)) for i, judge in experiment.claims.items()]
    size, origins = (_size(rows, facts), of_file(rows, facts)) if facts else (runs_in_words(used), of_runs(used))
    scale = (facts or rows[0]).get("scale", "unknown")
    again = () if facts else checkout.commands("COMMIT", "ID", experiment.name)
    return Section(*about, str(scale), size, judged, pictures, tables, origins, "", notes, again)


def picture(path: Path) -> Picture:
    """A figure of a file; its title is the one that stands in the PNG, or else the name of the file."""
    from PIL import Image

    with Image.open(path) as image:
        title = image.info.get("Title") or path.stem.replace("-", " ").capitalize()
        return Picture(title, path.read_bytes() if image.mode == "P" else png(image), *image.size)


def smaller(old: Picture, share: float) -> Picture:
    """The same figure, narrower."""
    from PIL import Image

    with Image.open(io.BytesIO(old.data)) as image:
        size = (max(round(share * old.width), 1), max(round(share * old.height), 1))
        return old._replace(data=png(image.convert("RGB").resize(size)))


def _size(rows: Rows, facts: dict[str, Any]) -> str:
    """How many cells, rows and seeds a file holds."""
    cells = facts.get("cells")
    done = facts.get("finished", cells)
    words = [] if cells is None else [f"{done:,} of " * (done != cells) + counted(cells, "cell")]
    seeds = _seeds(rows) or (f"seed {facts['seed']}" if "seed" in facts else "")
    return ", ".join(filter(None, [*words, counted(len(rows), "row"), seeds]))


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "cell"), counted(1_200, "row")
    ('1 cell', '1,200 rows')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def runs_in_words(rows: Rows) -> str:
    return f"{counted(len(rows), 'training run')}, {_seeds(rows)}"


def _seeds(rows: Rows) -> str:
    """The seeds that rows name, runs of them as first–last.

    >>> _seeds([{"seed": 1}, {"seed": 2}, {"seed": 3}, {"seed": 9}])
    '4 seeds (1–3, 9)'
    """
    found = sorted({row["seed"] for row in rows if isinstance(row.get("seed"), int)})
    spans = ", ".join(f"{first}" if n == 1 else f"{first}–{first + n - 1}" for first, n in in_a_row(found))
    return f"{len(found)} seeds ({spans})" if len(found) > 1 else f"seed {spans}" if found else ""


def of_file(rows: Rows, facts: dict[str, Any]) -> list[Origin]:
    """What made the rows of a file. Facts in the facts are those of a part that was made apart from the others: of some
    cells all rows, or of all cells some rows, which then are among the cells of the others, too."""
    parts = {name: part for name, part in facts.items() if isinstance(part, dict) and part.get("cells")}
    if not parts:
        return [_origin(counted(len(rows), "row"), [facts], by_id=False)]
    every = facts["cells"]
    left = every - sum(part["cells"] for part in parts.values() if part["cells"] < every)
    found = [_origin(counted(left if left > 0 else every, "cell"), [facts], by_id=False)]
    for name, part in parts.items():
        found.append(_origin(f"{counted(part['cells'], 'cell')}: {name}", [{**facts, **part}], by_id=False))
    return found


def of_runs(rows: Rows) -> list[Origin]:
    """What made training runs, which each carry it: the distinct codes, machines and versions, most runs first."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in ("commit", "code", "device", *VERSIONS)), []).append(row)
    return [_origin(counted(len(its), "run"), its) for its in sorted(groups.values(), key=lambda its: -len(its))]


VERSIONS = ("version", "python", "jax", "numpy")


def _origin(amount: str, its: Iterable[dict[str, Any]], by_id: bool = True) -> Origin:
    """The facts that rows share, the days they were made on, and the time it took: runs made together count once."""
    its = list(its)
    days = sorted({str(facts["date"])[:10] for facts in its if facts.get("date")})
    took = {(facts.get("date"), facts["seconds"]) for facts in its if facts.get("seconds") is not None}
    names = {"version": "highway-rl", "python": "Python", "jax": "JAX", "numpy": "NumPy"}
    shown = {
        "commit": str(its[0].get("commit", "unknown")),
        "code": str(its[0].get("code", "")),
        "device": str(its[0].get("device", "unknown")),
        "versions": ", ".join(f"{names[name]} {its[0][name]}" for name in VERSIONS if its[0].get(name)),
        "date": " to ".join(dict.fromkeys([*days[:1], *days[-1:]])),
        "took": duration(sum(seconds for _, seconds in took)) if took else "",
        "to make them again": checkout.obstacle(its[0], by_id),
    }
    return Origin(amount, shown)


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> [duration(x) for x in (4.2, 90, 7200)]
    ['4 s', '2 min', '2.0 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
