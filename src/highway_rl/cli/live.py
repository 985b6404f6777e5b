"""What a long command shows while it works, and how it answers when somebody wants it to stop."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Live:
    """Progress on stderr: a bar in a terminal, a line every half minute elsewhere. `phase` is what is going on."""

    def __init__(self, progress: Any, task: Any, live: bool) -> None:
        self.progress, self.task, self.live = progress, task, live
        self.phase, self.last = "starting", time.monotonic()

    def report(self, news: dict[str, Any]) -> None:
        if "stopped" in news:
            from highway_rl.runs import sentence

            print(f"highway-rl: {sentence(news['stopped'])}", file=sys.stderr)
        elif "phase" in news:
            self.phase = news["phase"]
            self.progress.update(self.task, note=_expected(news))
            if not self.live and news.get("seconds", 0) > 60:
                print(f"highway-rl: {_expected(news)}", file=sys.stderr, flush=True)
        else:
            self._step(news)

    def _step(self, news: dict[str, Any]) -> None:
        scores: dict[str, list[float]] = {}
        for row in news["rows"]:
            scores.setdefault(row["algo"], []).append(row["score"])
        found = "  ".join(f"{algo} {sum(x) / len(x):.2f}" for algo, x in scores.items())
        done = news["program"] * news["of"] + news["step"]
        total = news["programs"] * news["of"]
        left = datetime.timedelta(seconds=round((total - done) / news["speed"]))
        part = f"program {news['program'] + 1}/{news['programs']}  " if news["programs"] > 1 else ""
        note = f"{part}{news['step']:,}/{news['of']:,}  {news['speed']:,.0f} steps/s  {left} left  {found}"
        self.progress.update(self.task, completed=done, total=total, note=note)
        if not self.live and time.monotonic() - self.last > 30:
            self.last = time.monotonic()
            print(note, file=sys.stderr)


def _expected(news: dict[str, Any]) -> str:
    if "memory" not in news:
        return str(news["phase"])
    from highway_rl.runs.estimate import gigabytes

    span = datetime.timedelta(seconds=round(news["seconds"]))
    return f"compiling; about {gigabytes(news['memory'])} and {span} of training"


@contextlib.contextmanager
def bar(config: Any) -> Iterator[Live]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    live = sys.stderr.isatty()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True), disable=not live) as progress:
        yield Live(progress, progress.add_task(config.task, total=None, note="starting"), live)


@contextlib.contextmanager
def signals(live: Live, out: Path) -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM while training, which then ends after its period, saved; a second one, or one in
    another phase, ends the program at once.

    Python runs handlers only between its own steps, so that a program in a compiler would not answer for minutes. The
    system's handler writes to a pipe at once, and a thread reads it.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # nobody's signals come here
        yield caught
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=_answer, args=(reading, live, out), daemon=True).start()
    pipe = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {s: signal.signal(s, lambda number, _: caught.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(pipe)
        os.close(writing)  # ends the thread


def _answer(reading: int, live: Live, out: Path) -> None:
    heard = 0
    with open(reading, "rb", buffering=0) as pipe:
        while got := pipe.read(1):
            number = got[0]
            if number not in (signal.SIGINT, signal.SIGTERM):
                continue
            heard += 1
            if heard > 1 or live.phase != "training":
                _leave(number, live, out)
            print("highway-rl: stopping after this period; once more leaves at once", file=sys.stderr, flush=True)


def _leave(number: int, live: Live, out: Path) -> None:
    if live.live:
        sys.stderr.write("\x1b[?25h\n")  # the bar had hidden the cursor
    there = (out / "config.json").exists()
    how = f"; `highway-rl resume {out}` goes on" if there else ""
    print(f"highway-rl: interrupted while {live.phase}{how}", file=sys.stderr, flush=True)
    os._exit(128 + number)


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Each warning as one line, once."""
    told: set[str] = set()

    def line(message: Any, *_: Any, **__: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            print(f"highway-rl: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = line
        yield
