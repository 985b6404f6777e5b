"""A run on the host: the loop around the compiled one, its folder, resuming.

config.json      what was asked for, and what made it (code, device, versions, date)
metrics.csv      a row per report and run
events…          the same for TensorBoard, where that is installed
checkpoints/     the newest few states
evaluation.json  greedy episodes with the final networks
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.deep import loop as train
from highway_rl.runs import checkpoint
from highway_rl.runs.config import Config, Setup, check_folder, read_config, setup, write_config
from highway_rl.runs.metrics import Metrics, rows_of

__all__ = ["Config", "Loaded", "Setup", "Trained", "fit", "load", "read_config", "sentence", "setup", "write_config"]

Report = Callable[[dict[str, Any]], None]


class Trained(NamedTuple):
    """What training leaves: the final state of all runs (first axis), who is who, and what went wrong."""

    run: train.Run
    setup: Setup
    step: int
    stopped: list[dict[str, Any]]
    folder: Path | None

    @property
    def broken(self) -> list[int | None]:
        """Per run the step at which its numbers broke, or None."""
        return _broken_at(self.run)


class _Standing(NamedTuple):
    """How far the runs have come: periods done, the period to learn from, periods not yet reported, broken runs."""

    period: int
    learn_from: int
    run: train.Run
    pending: list[train.Curve]
    stopped: list[dict[str, Any]]


def fit(
    config: Config,
    out: Path | None = None,
    *,
    report: Report = lambda row: None,
    should_stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
) -> Trained:
    """Trains, reporting and saving as it goes; nothing is written before all is checked and the program compiled.

    `resume` goes on from the newest sound checkpoint in `out`, or begins again where there is none; the config must be
    the folder's own, but for the number of steps. `should_stop` is asked after every period; on yes the state is saved
    and what there is returned. A run whose loss or reward is no longer a number stops; the others go on.
    """
    if resume and out is None:
        raise ValueError("resuming needs the folder of the run")
    s = setup(config)
    to_write = out is not None and check_folder(config, out, resume=resume)
    start = s.start()

    def more(which: Any, run: train.Run, first: Any, learn_from: Any) -> tuple[train.Run, train.Curve]:
        return train.advance(s.env, s.one(which), s.schedule, run, first, 1, learn_from)

    program = jax.jit(jax.vmap(more, in_axes=(0, 0, None, None)), donate_argnums=1)
    go = program.lower(s.which, jax.eval_shape(start), jnp.int32(0), jnp.int32(0)).compile()
    if out is not None and to_write:
        write_config(config, out)
    standing = _restore(config, s, start, out) if resume and out else None
    period, learn_from, run, pending, stopped = standing or _Standing(0, 0, start(), [], [])
    step = first_step = period * s.schedule.refresh
    metrics = Metrics(out, s.labels, s.agent, from_step=step if resume else None)
    tried = period

    def save() -> None:
        nonlocal tried
        if out is not None and period > tried:
            _save(config, s, out, run, period, pending, stopped)
            tried = period

    begun = time.perf_counter()
    try:
        while period < s.schedule.periods and len(stopped) < len(s.labels):
            run, curve = go(s.which, run, jnp.int32(period), jnp.int32(learn_from))
            curve = jax.tree.map(lambda x: np.asarray(x)[:, 0], jax.device_get(curve))
            period += 1
            step = period * s.schedule.refresh
            pending.append(curve)
            if step % config.report_every < s.schedule.refresh or period == s.schedule.periods:
                speed = (step - first_step) / (time.perf_counter() - begun)
                rows = rows_of(pending, s.labels, s.agent, s.which)
                rows = [row for row, broken in zip(rows, curve.broken, strict=True) if row["step"] <= broken]
                metrics.write(rows)
                report({"step": step, "of": s.schedule.steps, "speed": speed, "rows": rows})
                pending = []
            if new := _newly_broken(curve, s, {x["run"] for x in stopped}):
                stopped += new
                if out is not None and not checkpoint.steps(out / "checkpoints"):
                    save()
                for one in new:
                    one["checkpoint"] = _witness(out, one["step"])
                    report({"stopped": one})
            if step % config.checkpoint_every < s.schedule.refresh:
                save()
            if should_stop():
                break
        save()
    finally:
        metrics.close()
    return Trained(run, s, step, stopped, out)


def _newly_broken(curve: train.Curve, s: Setup, known: set[int]) -> list[dict[str, Any]]:
    """Runs whose loss or reward stopped being a number in this period."""
    found = [int(i) for i in np.flatnonzero(curve.broken != train.NEVER) if int(i) not in known]
    last = {i: {k: float(getattr(curve.seen, k)[i]) for k in ("value", "largest", "error", "bias")} for i in found}
    return [_stop(s, i, curve.broken[i], {"loss": float(curve.loss[i]), **last[i]}) for i in found]


def _stop(s: Setup, i: int, step: Any, diagnostics: dict[str, float]) -> dict[str, Any]:
    algo, seed = s.labels[i]
    return {"run": i, "algo": algo, "seed": seed, "step": int(step), "diagnostics": diagnostics}


def _broken_at(run: train.Run) -> list[int | None]:
    return [None if step == train.NEVER else int(step) for step in np.asarray(run.broken)]


def _witness(out: Path | None, step: int) -> int | None:
    """The checkpoint that stays for a run that broke at `step`: the last one before, else the first one after."""
    found = checkpoint.steps(out / "checkpoints") if out is not None else []
    before = [x for x in found if x <= step]
    return before[-1] if before else found[0] if found else None


def _saved(config: Config, run: train.Run) -> Any:
    return run if config.save_store else (*run[:2], *run[3:])


def _save(
    config: Config,
    s: Setup,
    out: Path,
    run: train.Run,
    period: int,
    pending: list[train.Curve],
    stopped: list[dict[str, Any]],
) -> None:
    step = period * s.schedule.refresh
    facts = {"period": period, "pending": [[x.tolist() for x in c[:5]] for c in pending], "stopped": stopped}
    pinned = {_witness(out, x["step"]) for x in stopped}
    try:
        checkpoint.save(out / "checkpoints", step, _saved(config, run), facts, keep=config.keep, pinned=pinned)
    except OSError as error:
        warnings.warn(f"no checkpoint at step {step}: {error}; the ones before are in place", stacklevel=2)


def _restore(config: Config, s: Setup, start: Any, out: Path) -> _Standing | None:
    """Where the newest sound checkpoint stands. Who is broken the state says, and with what diagnostics the facts."""
    try:
        path, facts = checkpoint.latest(out / "checkpoints")
    except checkpoint.Missing as error:
        warnings.warn(f"{error}; beginning again at step 0, which makes the same run", stacklevel=3)
        return None
    empty = jax.eval_shape(start)
    loaded = checkpoint.load(path, _saved(config, empty))
    period = int(facts["period"])
    pending = [train.Curve._make([*map(np.asarray, c), None, None, None]) for c in facts["pending"]]
    run = loaded if config.save_store else train.Run._make((*loaded[:2], None, *loaded[2:]))
    told = {x["run"]: x["diagnostics"] for x in facts.get("stopped", [])}
    stopped = [_stop(s, i, b, told.get(i, {})) for i, b in enumerate(_broken_at(run)) if b is not None]
    stopped = [x | {"checkpoint": _witness(out, x["step"])} for x in stopped]
    if config.save_store:
        return _Standing(period, 0, run, pending, stopped)
    store = jax.vmap(lambda obs: train.new_store(s.env, s.schedule, obs))(run.env.obs)
    learn_from = period + math.ceil(s.schedule.start / s.schedule.refresh)
    return _Standing(period, learn_from, run._replace(store=store), pending, stopped)


def sentence(stopped: dict[str, Any]) -> str:
    """A run that broke, in words."""
    last = ", ".join(f"{k} {v:.4g}" for k, v in stopped["diagnostics"].items())
    kept = stopped["checkpoint"]
    return (
        f"{stopped['algo']} seed {stopped['seed']} stopped at step {stopped['step']:,}: its loss or reward is no longer"
        f" a number ({last}); "
        + ("there is no checkpoint of it" if kept is None else f"the checkpoint of step {kept:,} is kept")
    )


class Loaded(NamedTuple):
    """The newest sound networks in a training folder, what they belong to, how far they have come, who broke when."""

    config: Config
    params: Any
    setup: Setup
    step: int
    broken: list[int | None]


def load(out: Path) -> Loaded:
    config = read_config(out)
    s = setup(config)
    path, facts = checkpoint.latest(out / "checkpoints")
    loaded = checkpoint.load(path, _saved(config, jax.eval_shape(s.start())))
    run = loaded if config.save_store else train.Run._make((*loaded[:2], None, *loaded[2:]))
    return Loaded(config, run.learning.params, s, int(facts["period"]) * s.schedule.refresh, _broken_at(run))
