"""The loop around the compiled one: advance, report, save, stop, resume; then evaluate."""

from __future__ import annotations

import math
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.deep import host, loop
from highway_rl.envs.registry import ENVS
from highway_rl.machines import group
from highway_rl.runs import checkpoint, folder
from highway_rl.runs.callbacks import Told
from highway_rl.runs.config import MAIN, Setup
from highway_rl.runs.estimate import warn_short
from highway_rl.runs.evaluate import evaluate, write_result
from highway_rl.runs.metrics import Metrics, lost, rows_of
from highway_rl.runs.outcome import News, broken_at, check_origin, saved, stopped_run
from highway_rl.runs.programs import Program
from highway_rl.runs.standing import Standing, Trained, onward_from
from highway_rl.types import NEVER


class Training:
    """One call of `fit`: the programs in turn, into one folder."""

    def __init__(
        self,
        s: Setup,
        out: Path | None,
        report: Told,
        should_stop: Callable[[], bool],
        resume: bool,
        devices: int | str,
    ) -> None:
        self.s, self.out, self.report, self.should_stop, self.resume = s, out, report, should_stop, resume
        self.stopped: list[News] = []
        self.ended_at = [0] * len(s.programs)  # the period at which each program ended; 0 before it has
        self.asked = False  # to stop
        self.seen: list[dict[str, float]] = []  # of each run of the program under way, at its last report
        self.together = devices == "group" and group.several()
        self.follows = self.together and not group.leads()

    def run(self, first: Any, onward: Trained | None) -> Trained:
        """Trains every program to its end, or until somebody stops it."""
        begun = self._begun() if self.resume and not self.follows else []
        begun = group.share(begun) if self.together else begun
        kept = max((facts["metrics"]["bytes"] for _, facts in begun), default=None)
        self.metrics = Metrics(None if self.follows else self.out, [program.agent for program in self.s.programs], kept)
        params, step, last = [], 0, None
        try:
            for i, program in enumerate(self.s.programs):
                ended = True
                if program.processes > 1 or not self.follows:
                    standing = self._standing(i, *begun[i]) if i < len(begun) else onward_from(onward, program)
                    last, step = self._program(i, standing, first if i == 0 else None)
                    params.append(jax.device_get(program.left(last)))
                    ended = step >= program.schedule.steps or self._all_broken(program) or self.report.enough
                self.report.enough = False
                ended, self.asked = self._agreed(ended, self.asked)
                if not ended or (self.asked and program is not self.s.programs[-1]):
                    return Trained(self.s, params, step, False, self.stopped, [], last, self.out)
        finally:
            self.metrics.close()
        if self.follows:
            return Trained(self.s, params, step, True, self.stopped, [], last, self.out)
        self.report({"phase": "evaluating"})
        broken = {x["run"]: x["step"] for x in self.stopped}
        rows = evaluate(self.s, params, episodes=self.s.config.episodes, broken=broken)
        if self.out is not None:
            write_result(self.out, self.s, step, self.stopped, rows)
        return Trained(self.s, params, step, True, self.stopped, rows, last, self.out)

    def _agreed(self, *said: bool) -> tuple[bool, ...]:
        """What the first process of the group says, if there is one."""
        found: tuple[bool, ...] = group.share(said) if self.together else said
        return found

    def _begun(self) -> list[tuple[Path, dict[str, Any]]]:
        """The checkpoint to go on from, and its facts, of each program that has begun.

        A program begins when the one before has ended, and its rows stand after the other's. Where that one has to go
        back behind its end, its rows are made again, and so is all that came after.
        """
        found: list[tuple[Path, dict[str, Any]]] = []
        for number in range(len(self.s.programs)):
            checkpoint_and_facts = self._newest(number)
            if checkpoint_and_facts is None:
                break
            found.append(checkpoint_and_facts)
            self.ended_at[number] = int(checkpoint_and_facts[1]["ended_at"])
            if not 0 < self.ended_at[number] <= int(checkpoint_and_facts[1]["period"]):
                break
        for number in range(len(found), len(self.s.programs)):
            if checkpoint.steps(self._checkpoints(number)):
                warnings.warn(
                    f"{self._checkpoints(number)} came after rows that are made again: so is it", stacklevel=5
                )
                shutil.rmtree(self._checkpoints(number), ignore_errors=True)
        return found

    def _all_broken(self, program: Program) -> bool:
        return {x["run"] for x in self.stopped} >= set(program.numbers)

    def _program(self, number: int, standing: Standing | None, go: Any) -> tuple[loop.Run, int]:
        """One program, from where it stands, to its end or a stop; returns its state and step."""
        s, program = self.s, self.s.programs[number]
        periods, refresh = program.schedule.periods, program.schedule.refresh
        nothing: list[dict[str, float]] = [{} for _ in program.labels]
        period, learn_from, run, pending, stopped, self.seen = standing or Standing(
            0, 0, program.start()(), [], [], nothing
        )
        self.stopped += stopped
        step = first_step = period * refresh
        if period >= periods or self._all_broken(program):
            return run, step
        warn_short(program.schedule)
        if go is None:
            self.report({"phase": "compiling", "program": number, "of": len(s.programs)})
            go = program.compiled()
        self.metrics.follow(program.labels, step if self.resume else None)
        self.report({"phase": "training", "program": number, "programs": len(s.programs)})
        tried = period

        def save() -> None:
            nonlocal tried
            if self.out is not None and period > tried:
                self._save(number, run, period, pending)
                tried = period

        begun = time.perf_counter()
        while period < periods and not self._all_broken(program):
            reported = (period + 1) * refresh % s.report_every < refresh or period + 1 == periods
            try:
                run, curve = go(run, jnp.int32(period), jnp.int32(learn_from), jnp.bool_(reported))
            except host.Interrupted as stop:
                self._interrupted(number, stop, period, pending)
            curve = jax.tree.map(lambda x: np.asarray(x)[:, 0], jax.device_get(curve))
            period += 1
            step = period * refresh
            pending.append(curve)
            if reported:
                shown = ("value", "largest", "error", "bias")
                self.seen = [{k: float(getattr(curve.seen, k)[i]) for k in shown} for i in range(len(program.labels))]
                speed = (step - first_step) / (time.perf_counter() - begun)
                rows = rows_of(pending, program)
                rows = [row for row, broken in zip(rows, curve.broken, strict=True) if row["step"] <= broken]
                self.metrics.write(rows)
                news = {"step": step, "of": s.steps, "speed": speed, "rows": rows}
                self.report({**news, "program": number, "programs": len(s.programs)})
                pending = []
            if new := self._newly_broken(curve, program):
                self.stopped += new
                if self.out is not None and not self.together and not checkpoint.steps(self._checkpoints(number)):
                    save()
                for one in new:
                    one["checkpoint"] = self._witness(number, one["step"])
                    self.report({"stopped": one})
            if step % s.checkpoint_every < refresh:
                save()
            if self.should_stop():
                self.asked = True
            if program.processes > 1:
                self.asked, self.report.enough = self._agreed(self.asked, self.report.enough)
            if self.asked or self.report.enough:
                break
        save()
        if isinstance(go, host.HostLoop):
            go.close()
        return run, step

    def _interrupted(self, number: int, stop: host.Interrupted, period: int, pending: list[loop.Curve]) -> NoReturn:
        """An environment failed: saves all there is, and says how to go on."""
        if self.out is None:
            raise stop
        self._save(number, stop.run, period, pending)
        here = ENVS.module(self.s.config.task) == MAIN  # no other process knows it
        onward = f"highway_rl.train(…, out={str(self.out)!r}, resume=True)" if here else f"highway-rl resume {self.out}"
        kept = f"what was collected is kept; mend it and go on with `{onward}`"
        raise host.Interrupted(f"{stop}: {kept}") from stop.__cause__

    def _checkpoints(self, number: int) -> Path:
        assert self.out is not None
        return self.out / "checkpoints" / f"program_{number}"

    def _newly_broken(self, curve: loop.Curve, program: Program) -> list[News]:
        """Runs whose loss or reward stopped being a number in this period."""
        known = {x["run"] for x in self.stopped}
        found = [int(i) for i in np.flatnonzero(curve.broken != NEVER) if program.numbers[int(i)] not in known]
        return [stopped_run(program, i, curve.broken[i], {"loss": float(curve.loss[i]), **self.seen[i]}) for i in found]

    def _witness(self, number: int, step: int) -> int | None:
        """The checkpoint that stays for a run that broke at `step`: the last one before, else the first one after."""
        found = checkpoint.steps(self._checkpoints(number)) if self.out is not None else []
        before = [x for x in found if x <= step]
        return before[-1] if before else found[0] if found else None

    def _save(self, number: int, run: loop.Run, period: int, pending: list[loop.Curve]) -> None:
        program, config = self.s.programs[number], self.s.config
        step = period * program.schedule.refresh
        mine = [x for x in self.stopped if x["run"] in program.numbers]
        if period == program.schedule.periods or self._all_broken(program):
            self.ended_at[number] = period
        facts = {
            "period": period,
            "ended_at": self.ended_at[number],
            "pending": [[x.tolist() for x in c[:5]] for c in pending],
            "stopped": mine,
            "seen": self.seen,
            "format": folder.FORMAT,
            "config": folder.plain(config),
            "metrics": self.metrics.mark,
        }
        pinned = {self._witness(number, x["step"]) for x in mine}
        where, state = self._checkpoints(number), saved(config, program.whole(run))
        if self.follows:
            return
        try:
            checkpoint.save(where, step, state, facts, keep=config.keep, pinned=pinned)
        except OSError as error:
            warnings.warn(f"no checkpoint at step {step}: {error}; the ones before are in place", stacklevel=2)

    def _newest(self, number: int) -> tuple[Path, dict[str, Any]] | None:
        """The newest sound checkpoint of a program whose rows are all there, and its facts; None if it has to begin."""
        assert self.out is not None
        out, where = self.out, self._checkpoints(number)
        if number and not checkpoint.steps(where):
            return None  # its turn has not come yet
        try:
            path, facts = checkpoint.latest(where, lambda facts: lost(out, facts["metrics"]))
        except checkpoint.Missing as error:
            if error.unfit:
                raise ValueError(
                    f"{error.unfit}, which every checkpoint counts on: put {out / 'metrics.csv'} back, or train again"
                    " into another --out"
                ) from None
            warnings.warn(f"{error}; beginning again at step 0, which makes the same run", stacklevel=6)
            return None
        check_origin(facts, self.s.config, out)
        return path, facts

    def _standing(self, number: int, path: Path, facts: dict[str, Any]) -> Standing:
        """Where a checkpoint stands. Who is broken the state says, and with what diagnostics the facts."""
        program, config = self.s.programs[number], self.s.config
        run: loop.Run = checkpoint.load(path, saved(config, program.shapes()))
        period = int(facts["period"])
        pending = [loop.Curve._make([*map(np.asarray, c), None, None, None]) for c in facts["pending"]]
        told = {x["run"]: x["diagnostics"] for x in facts["stopped"]}
        broken = [(i, b) for i, b in enumerate(broken_at(run)) if b is not None]
        stopped = [stopped_run(program, i, b, told.get(program.numbers[i], {})) for i, b in broken]
        stopped = [x | {"checkpoint": self._witness(number, x["step"])} for x in stopped]
        seen = facts.get("seen") or [{} for _ in program.labels]  # not in checkpoints of older versions
        if config.save_store:
            return Standing(period, 0, run, pending, stopped, seen)
        store = jax.vmap(lambda obs: loop.new_store(self.s.env.spec, program.schedule, obs))(run.env.obs)
        learn_from = period + math.ceil(program.schedule.start / program.schedule.refresh)
        return Standing(period, learn_from, run._replace(store=store), pending, stopped, seen)
