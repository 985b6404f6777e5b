"""Training on the host: what is checked before anything is written, and who trains it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from highway_rl import checks
from highway_rl.machines import group
from highway_rl.runs import folder
from highway_rl.runs.callbacks import Callback, Told
from highway_rl.runs.config import Config, setup
from highway_rl.runs.outcome import News
from highway_rl.runs.standing import Trained
from highway_rl.runs.training import Training

Report = Callable[[News], None]
"""Hears what happens: {"phase": …} when something long begins, {"step": …, "rows": …}, {"stopped": …}."""


def fit(
    config: Config,
    out: Path | str | None = None,
    *,
    report: Report = lambda news: None,
    should_stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
    onward: Trained | None = None,
    devices: int | str = 1,
) -> Trained:
    """Trains, reporting and saving as it goes, and evaluates; nothing is written before all is checked and the first
    program compiled.

    `resume` goes on from the newest sound checkpoint in `out`, or begins again where there is none; the config must be
    the folder's own, but for the number of steps. `should_stop` is asked after every period; on yes the state is saved
    and what there is returned. A run whose loss or reward is no longer a number stops; the others go on. A callback
    that has heard enough ends the program under way. `onward` goes on from what was trained before, without a folder.
    `devices`: the runs of a program are spread over so many, or "all"; their numbers do not depend on it. "group" are
    those of all processes of a `machines.group`, of which the first one says what to train, and writes.
    """
    if devices == "group" and onward is not None:
        raise ValueError("onward goes on in one process: leave devices out")
    if devices == "group" and not group.leads():
        if (trained := follow()) is None:
            raise ValueError("the first process of the group trains nothing more: call fit in all of them")
        return trained
    if resume and out is None:
        raise ValueError("out is None: give the folder of the run to resume")
    out, told = None if out is None else Path(out), Told(report, callbacks)
    config = folder.as_begun(config, out) if resume and out is not None else config
    s = setup(config, to_train=True, devices=devices)
    to_write = out is not None and folder.check_folder(config, out, resume=resume)
    with alike(devices):
        if devices == "group":
            group.share((config, out, resume))
        told({"phase": "compiling"} | (s.need._asdict() if s.need is not None else {}))
        first = s.programs[0].compiled() if to_write else None  # what cannot be compiled leaves no folder behind
        with folder.locked(out) if out is not None else contextlib.nullcontext():
            if out is not None and folder.check_folder(config, out, resume=resume):  # again: time has passed
                folder.write_config(config, out)
            return Training(s, out, told, should_stop, resume, devices).run(first, onward)


def follow() -> Trained | None:
    """Trains with the first process of the group what that one trains, and writes nothing; None when it has said that
    nothing is left."""
    said = group.share()
    if said is None:
        return None
    config, out, resume = said
    with alike("group"):
        s = setup(config, to_train=True, devices="group")
        return Training(s, out, Told(lambda news: None, ()), lambda: False, resume, "group").run(None, None)


@contextlib.contextmanager
def led(devices: int | str) -> Iterator[bool]:
    """Whether this process says what to train: each does, but of a "group" only the first; the others have then done
    their part."""
    with group.led() if devices == "group" else contextlib.nullcontext():
        while devices == "group" and not group.leads() and follow() is not None:
            pass
        yield devices != "group" or group.leads()


@contextlib.contextmanager
def alike(devices: int | str) -> Iterator[None]:
    """In a group what fails in one process ends it: the others wait for it in the middle of a program."""
    try:
        yield
    except Exception as error:
        if devices != "group" or not group.several():
            raise
        why = f"{type(error).__name__}: {checks.one_line(error)}"
        raise SystemExit(f"highway-rl: a process of the group failed ({why}): mend it and start all again") from error
