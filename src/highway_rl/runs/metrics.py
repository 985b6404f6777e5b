"""What a training run writes down: rows for a CSV and scalars for TensorBoard."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl.core.backup import TO_END
from highway_rl.deep.diagnostics import RATIO_DEPTHS
from highway_rl.deep.dqn import DQN
from highway_rl.records.rows import write_text
from highway_rl.runs.programs import Program


def depth_name(depth: int) -> str:
    return "end" if depth == TO_END else str(depth)


def rows_of(curves: list[Any], program: Program) -> list[dict[str, Any]]:
    """One row per run for a stretch of periods: means over episodes and periods, diagnostics of the last refresh."""
    found = []
    for i, (algo, seed) in enumerate(program.labels):
        rule = program.agent.rules[program.which(i)]
        episodes = np.array([c.episodes[i] for c in curves])
        last = curves[-1]
        row: dict[str, Any] = {
            "step": int(last.step[i]),
            "algo": algo,
            "seed": seed,
            "episodes": int(episodes.sum()),
            "score": _weighted([c.score[i] for c in curves], episodes),
            "length": _weighted([c.length[i] for c in curves], episodes),
            "loss": float(np.mean([float(c.loss[i]) for c in curves])),
            "epsilon": float(last.epsilon[i]),
        }
        row |= {name: float(getattr(last.seen, name)[i]) for name in ("value", "largest", "bias", "error", "age")}
        depths = [depth_name(n) for n in rule.backup.depths]
        row |= {f"open_{n}": float(x) for n, x in zip(depths, last.seen.open[i], strict=False)}
        row |= {f"won_{n}": float(x) for n, x in zip(["gate", *depths], last.seen.won[i], strict=False)}
        row |= {f"ratio_{k}": float(x) for k, x in zip(RATIO_DEPTHS, last.seen.ratio[i], strict=True)}
        if program.agent.chooser != "sample":
            row |= {f"noise_{n}": float(x) for n, x in zip(depths, last.seen.noise[i], strict=False)}
            row["luck"] = float(last.seen.luck[i])
        found.append(row)
    return found


def _weighted(values: list[Any], weights: np.ndarray) -> float:
    return float(np.dot(np.nan_to_num(values), weights) / weights.sum()) if weights.sum() else float("nan")


class Metrics:
    """Writes rows to `metrics.csv` and TensorBoard as they come.

    `kept` are the bytes of the file that a resumed run goes on from; None begins anew. `mark` is how many bytes there
    are now, and their checksum: a checkpoint notes it, so that rows lost later are noticed.
    """

    def __init__(self, out: Path | None, agents: Sequence[DQN], kept: int | None) -> None:
        self.file: Any = None
        self.writers: dict[tuple[str, int], Any] = {}
        self.out = out
        depths = dict.fromkeys(depth_name(n) for agent in agents for rule in agent.rules for n in rule.backup.depths)
        self.columns = ["step", "algo", "seed", "episodes", "score", "length", "loss", "epsilon"]
        self.columns += ["value", "largest", "bias", "error", "age", *(f"open_{n}" for n in depths), "won_gate"]
        self.columns += [*(f"won_{n}" for n in depths), *(f"ratio_{k}" for k in RATIO_DEPTHS)]
        if any(agent.chooser != "sample" for agent in agents):
            self.columns += [*(f"noise_{n}" for n in depths), "luck"]
        if out is None:
            return
        out.mkdir(parents=True, exist_ok=True)
        path = out / "metrics.csv"
        before = b"" if kept is None else path.read_bytes()[:kept]
        begun = before or self._text([], header=True).encode()
        write_text(path, begun.decode())
        self.size, self.sum = len(begun), hashlib.sha256(begun)
        self.file = path.open("ab")

    def follow(self, labels: list[tuple[str, int]], from_step: int | None) -> None:
        """Opens TensorBoard's files of these runs, which go on from a step or begin."""
        for writer in self.writers.values():
            writer.close()
        self.writers = {} if self.out is None else _event_writers(self.out, labels, from_step)

    @property
    def mark(self) -> dict[str, Any]:
        return {} if self.file is None else {"bytes": self.size, "sha256": self.sum.hexdigest()}

    def _text(self, rows: list[dict[str, Any]], *, header: bool = False) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n", extrasaction="ignore")
        if header:
            writer.writeheader()
        writer.writerows({k: f"{v:.7g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
        return text.getvalue()

    def write(self, rows: list[dict[str, Any]]) -> None:
        if self.file is None:
            return
        new = self._text(rows).encode()
        try:
            self.file.write(new)
            self.file.flush()
            os.fsync(self.file.fileno())
            for row in rows:
                if writer := self.writers.get((row["algo"], row["seed"])):
                    writer(row)
        except OSError as error:
            raise OSError(
                error.errno,
                f"metrics cannot be written: {error.strerror}; checkpoints are in place, resume when it is mended",
            ) from None
        self.size += len(new)
        self.sum.update(new)

    def close(self) -> None:
        """All is on disk already, or has failed to get there."""
        for file in (self.file, *self.writers.values()):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()


def lost(out: Path, mark: dict[str, Any]) -> str | None:
    """What is wrong with the rows that a checkpoint counts on, or None."""
    try:
        there = (out / "metrics.csv").read_bytes()
    except OSError:
        return "metrics.csv is not there"
    if len(there) < mark["bytes"]:
        return "metrics.csv has lost rows"
    same = hashlib.sha256(there[: mark["bytes"]]).hexdigest() == mark["sha256"]
    return None if same else "metrics.csv has other rows"


class _Events:
    """TensorBoard scalars of one run, each on its way to the disk when it is written."""

    def __init__(self, folder: Path, from_step: int | None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.summary = Event, Summary
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / f"events.out.tfevents.{time.time():017.6f}").open("wb")
        self.writer = RecordWriter(self.file)
        self.add(Event(file_version="brain.Event:2", wall_time=time.time()))
        if from_step is not None:  # what an interrupted run wrote after this step no longer holds
            self.add(Event(session_log=SessionLog(status=SessionLog.START), step=from_step + 1))

    def __call__(self, row: dict[str, Any]) -> None:
        skipped = ("step", "algo", "seed")
        values = [
            self.summary.Value(tag=_tag(name), simple_value=value)
            for name, value in row.items()
            if name not in skipped and np.isfinite(value)
        ]
        self.add(self.event(step=row["step"], wall_time=time.time(), summary=self.summary(value=values)))

    def add(self, event: Any) -> None:
        self.writer.write(event.SerializeToString())
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _tag(name: str) -> str:
    """`open_2` → gate/open_2, so that TensorBoard groups what belongs together."""
    for prefix, group in (
        ("open_", "gate"),
        ("won_", "gate"),
        ("ratio_", "retrace"),
        ("noise_", "noise"),
        ("luck", "noise"),
    ):
        if name.startswith(prefix):
            return f"{group}/{name}"
    return f"train/{name}" if name in ("score", "length", "episodes", "loss", "epsilon") else f"value/{name}"


def _event_writers(out: Path, labels: list[tuple[str, int]], from_step: int | None) -> dict[tuple[str, int], Any]:
    try:
        return {
            (algo, seed): _Events(out / "tensorboard" / f"{algo}-{seed}".replace("/", "_"), from_step)
            for algo, seed in labels
        }
    except ImportError:
        warnings.warn("tensorboard is not installed: metrics go to metrics.csv only", stacklevel=3)
        return {}
