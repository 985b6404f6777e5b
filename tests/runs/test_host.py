"""What the host does around the compiled program, which here is a fake that only counts: folders, breaks, signals."""

import csv
import dataclasses
import errno
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl import checks
from highway_rl.cli.app import main
from highway_rl.deep import evaluation
from highway_rl.deep import loop as train
from highway_rl.deep.diagnostics import Seen
from highway_rl.deep.dqn import Learning
from highway_rl.deep.evaluation import by_algo, half_width
from highway_rl.deep.settings import check_run
from highway_rl.runs import checkpoint
from highway_rl.runs import fit as runs
from highway_rl.runs.metrics import Metrics

CONFIG = runs.Config(
    "late",
    algos=("dqn", "soft-highway-dqn"),
    seeds=2,
    schedule={"steps": 1_000, "capacity": 500, "start": 100, "refresh": 100},
    report_every=100,
    checkpoint_every=200,
    keep=1,
)
WORDS = ["late", "--algo", "dqn", "--algo", "soft-highway-dqn", "--seeds", "2", "--steps", "1000", "--json"]
WORDS += ["--schedule", "capacity=500", "--schedule", "start=100", "--schedule", "refresh=100", "--report-every", "100"]


@pytest.fixture
def breaks(monkeypatch):
    """Training that only counts the periods; the runs named here, by algorithm and seed, break at these steps."""
    steps: dict[tuple[int, int], int] = {}

    def init(env, agent, schedule, key):
        zero = jnp.zeros(1)
        return train.Run(Learning(zero, None), None, zero, zero, key, zero, zero, zero, jnp.int32(train.NEVER))

    def advance(env, agent, schedule, run, first, periods, learn_from=0):
        at = np.full((2, 2), train.NEVER)
        for place, step in steps.items():
            at[place] = step
        end = (first + 1) * schedule.refresh
        mine = jnp.asarray(at, jnp.int32)[agent.which, jax.random.key_data(run.key)[-1]]
        broken = jnp.where(mine < end, mine, train.NEVER)
        fine = broken == train.NEVER
        loss = jnp.where(fine, end / 1000, jnp.nan)
        curve = train.Curve(end, jnp.int32(1), loss, loss, loss, loss, broken, Seen.nothing(agent))
        learning = Learning(run.learning.params + fine, None)
        return run._replace(learning=learning, broken=broken), jax.tree.map(lambda x: jnp.asarray(x)[None], curve)

    def play(env, agent, params, key, *, episodes, max_steps):
        score = jnp.arange(episodes) + params[0]
        return score, score, score > 0

    monkeypatch.setattr(train, "init", init)
    monkeypatch.setattr(train, "advance", advance)
    monkeypatch.setattr(evaluation, "play", play)
    return steps


def rows(out: Path) -> dict[tuple[str, str], list[int]]:
    """The steps of the rows of each run."""
    found: dict[tuple[str, str], list[int]] = {}
    with (out / "metrics.csv").open() as file:
        for row in csv.DictReader(file):
            found.setdefault((row["algo"], row["seed"]), []).append(int(row["step"]))
    return found


def until(step: int) -> list[int]:
    return list(range(100, step + 1, 100))


def strictly(text: str):
    """JSON as the standard has it: no NaN."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_each_broken_run_keeps_its_checkpoint_and_ends_its_rows(breaks, tmp_path):
    breaks |= {(0, 1): 350, (1, 0): 730}
    news: list[dict] = []
    trained = runs.fit(CONFIG, tmp_path / "run", report=news.append)
    assert [(x["algo"], x["seed"], x["step"], x["checkpoint"]) for x in trained.stopped] == [
        ("dqn", 1, 350, 200),
        ("soft-highway-dqn", 0, 730, 600),
    ]
    assert "dqn seed 1 stopped at step 350" in runs.sentence(trained.stopped[0])
    assert "loss nan" in runs.sentence(trained.stopped[0])
    assert "the checkpoint of step 200 is kept" in runs.sentence(trained.stopped[0])
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [200, 600, 1_000]
    whole = {("dqn", "0"): until(1000), ("soft-highway-dqn", "1"): until(1000)}
    assert rows(tmp_path / "run") == whole | {("dqn", "1"): until(300), ("soft-highway-dqn", "0"): until(700)}
    reported = [(row["algo"], row["seed"]) for row in news[-1]["rows"]]
    assert reported == [("dqn", 0), ("soft-highway-dqn", 1)]
    assert trained.broken == [None, 350, 730, None]
    assert runs.load(tmp_path / "run").broken == trained.broken

    # stopped and resumed in between: nothing is announced twice, and nothing kept is lost
    stops = iter([False] * 4 + [True])
    runs.fit(CONFIG, tmp_path / "two", should_stop=lambda: next(stops))
    news = []
    again = runs.fit(CONFIG, tmp_path / "two", report=news.append, resume=True)
    assert [x["stopped"]["step"] for x in news if "stopped" in x] == [730]
    assert repr(again.stopped) == repr(trained.stopped)
    assert checkpoint.steps(tmp_path / "two" / "checkpoints") == [200, 600, 1_000]
    assert (tmp_path / "two" / "metrics.csv").read_text() == (tmp_path / "run" / "metrics.csv").read_text()


def test_a_break_before_the_first_checkpoint_saves_one(breaks, tmp_path):
    breaks[0, 1] = 50
    config = dataclasses.replace(CONFIG, checkpoint_every=500)
    trained = runs.fit(config, tmp_path / "run")
    assert trained.stopped[0]["checkpoint"] == 100
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [100, 1_000]
    assert ("dqn", "1") not in rows(tmp_path / "run")

    def killed(news):
        if news.get("step") == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.fit(config, tmp_path / "killed", report=killed)
    runs.fit(config, tmp_path / "killed", resume=True)
    assert (tmp_path / "killed" / "metrics.csv").read_text() == (tmp_path / "run" / "metrics.csv").read_text()


def test_all_broken_ends_the_program(breaks, tmp_path):
    breaks |= {(0, 0): 250, (0, 1): 250, (1, 0): 50, (1, 1): 420}
    trained = runs.fit(CONFIG, tmp_path)
    assert trained.step == 500
    again = runs.fit(CONFIG, tmp_path, resume=True)
    assert again.step == 500
    assert repr(again.stopped) == repr(sorted(trained.stopped, key=lambda x: x["run"]))


def test_no_checkpoint_is_promised_that_is_not_there(breaks, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    breaks[0, 1] = 350
    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.warns(UserWarning, match="no checkpoint at step [2468]00|1000"):
        trained = runs.fit(CONFIG, tmp_path)
    assert "there is no checkpoint of it" in runs.sentence(trained.stopped[0])
    assert "there is no checkpoint of it" in runs.sentence(runs.fit(CONFIG).stopped[0])


def test_broken_runs_in_the_results(breaks, tmp_path, capsys):
    """Named in the JSON, which stays JSON, and left out of the means."""
    breaks[0, 1] = 350
    out = tmp_path / "run"
    with pytest.raises(SystemExit) as stop:
        main(["train", *WORDS, "--out", str(out)])
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert printed.err.count("dqn seed 1 stopped at step 350") == 2  # when it happens, and at the end
    for found in (strictly(printed.out), strictly((out / "evaluation.json").read_text())):
        assert found["stopped"][0]["diagnostics"]["loss"] is None
        assert [row["broken"] for row in found["scores"]] == [None, 350, None, None]
        assert found["by_algo"]["dqn"]["seeds"] == 1
        assert found["by_algo"]["dqn"]["broken"] == [1]
        assert found["by_algo"]["dqn"]["score"] == found["scores"][0]["score"]
    main(["evaluate", str(out), "--json"])
    assert strictly(capsys.readouterr().out)["by_algo"] == found["by_algo"]
    main(["evaluate", str(out)])
    assert "without seed 1" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["evaluate", str(out), "--max-steps", "0"])
    assert "max_steps=0: give a whole number >= 1" in capsys.readouterr().err


def test_means_and_intervals():
    """By hand: t(0.975; 2) = 4.303; a mean of nothing is none."""
    score = lambda algo, seed, value, broken: {"algo": algo, "seed": seed, "score": value, "broken": broken}  # noqa: E731
    found = by_algo([*(score("a", i, x, None) for i, x in enumerate([1.0, 2.0, 6.0])), score("b", 0, 5.0, 10)])
    assert found["a"]["score"] == 3
    assert found["a"]["half_width"] == pytest.approx(4.30265 * np.sqrt(7 / 3), rel=1e-5)
    assert found["b"] == {"score": None, "half_width": None, "seeds": 0, "broken": [0]}
    assert half_width([1.0]) is None


def test_speed_leaves_compiling_out(breaks, monkeypatch):
    """A second of it, for a first hundred steps that take no time."""
    advance = train.advance
    monkeypatch.setattr(train, "advance", lambda *words: time.sleep(1) or advance(*words))
    news: list[dict] = []
    runs.fit(CONFIG, report=news.append)
    assert news[0]["speed"] > 2 * news[0]["step"]


def test_a_folder_belongs_to_one_config(breaks, tmp_path):
    out = tmp_path / "run"
    short = dataclasses.replace(CONFIG, schedule=CONFIG.schedule | {"steps": 500})
    runs.fit(short, out)
    assert runs.read_config(out) == short
    with pytest.raises(ValueError, match="holds a run already: `highway-rl resume"):
        runs.fit(short, out)
    for change, says in (
        ({"seeds": 3}, "seeds=2, not 3"),
        ({"agent": {"discount": 0.9}}, "agent.discount='default', not 0.9"),
        ({"schedule": short.schedule | {"capacity": 600}}, "schedule.capacity=500, not 600"),
    ):
        with pytest.raises(ValueError, match=says):
            runs.fit(dataclasses.replace(short, **change), out, resume=True)
    assert runs.read_config(out) == short
    longer = runs.fit(CONFIG, out, resume=True)
    assert longer.step == 1_000
    assert runs.read_config(out) == CONFIG
    np.testing.assert_array_equal(longer.run.learning.params, runs.fit(CONFIG).run.learning.params)
    with pytest.raises(ValueError, match="no training folder"):
        runs.fit(CONFIG, tmp_path / "other", resume=True)


def test_resumed_without_a_sound_checkpoint_begins_again(breaks, tmp_path):
    trained = runs.fit(CONFIG, tmp_path / "whole")
    (tmp_path / "early").mkdir()
    shutil.copy(tmp_path / "whole" / "config.json", tmp_path / "early")
    with pytest.warns(UserWarning, match="holds no sound checkpoint; beginning again at step 0"):
        early = runs.fit(CONFIG, tmp_path / "early", resume=True)
    shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    (tmp_path / "damaged" / "checkpoints" / "step_000000001000" / "manifest.json").write_text("{")
    stops = iter([False] * 2 + [True])
    with pytest.warns(UserWarning, match="damaged") as told:
        runs.fit(CONFIG, tmp_path / "damaged", resume=True, should_stop=lambda: next(stops))
    assert "step_000000001000 is damaged (unreadable manifest" in str(told[0].message)
    assert "no sound checkpoint: all 1 are damaged; beginning again at step 0" in str(told[1].message)
    assert checkpoint.steps(tmp_path / "damaged" / "checkpoints") == [300]
    damaged = runs.fit(CONFIG, tmp_path / "damaged", resume=True)
    for again, folder in ((early, "early"), (damaged, "damaged")):
        np.testing.assert_array_equal(again.run.learning.params, trained.run.learning.params)
        assert (tmp_path / folder / "metrics.csv").read_text() == (tmp_path / "whole" / "metrics.csv").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_leave(breaks, tmp_path, capsys, monkeypatch, number):
    out, write = tmp_path / "run", Metrics.write

    def interrupted(self, rows):
        write(self, rows)
        if rows[0]["step"] == 300:
            signal.raise_signal(number)

    monkeypatch.setattr(Metrics, "write", interrupted)
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as stop:
        main(["train", *WORDS, "--out", str(out)])
    assert stop.value.code == 128 + number
    assert signal.getsignal(number) is before
    printed = capsys.readouterr()
    assert f"stopped at step 300; `highway-rl resume {out}` goes on" in printed.err
    assert strictly(printed.out)["step"] == 300
    assert checkpoint.steps(out / "checkpoints") == [300]
    main(["resume", str(out), "--json"])
    assert strictly(capsys.readouterr().out)["step"] == 1_000
    assert rows(out)["dqn", "0"] == until(1_000)


RAISED = [
    OSError(errno.ENOSPC, "No space left on device"),
    ValueError('RESOURCE_EXHAUSTED: Error writing "0000/.zarray": No space left on device [os_error_code=28]'),
]


@pytest.mark.parametrize("error", RAISED, ids=["OSError", "ValueError"])
def test_a_full_disk_is_a_warning(breaks, tmp_path, monkeypatch, error):
    """However Orbax says it: training goes on, and the last good checkpoint is in place."""
    import orbax.checkpoint as ocp

    save = ocp.StandardCheckpointer.save

    def full_after_400(self, path, *rest, **more):
        if int(path.parent.name[-12:]) > 400:
            raise error
        save(self, path, *rest, **more)

    monkeypatch.setattr(ocp.StandardCheckpointer, "save", full_after_400)
    with pytest.warns(UserWarning, match="no checkpoint at step") as told:
        assert runs.fit(CONFIG, tmp_path).step == 1_000
    says = "no checkpoint at step {}: [Errno 28] No space left on device; the ones before are in place"
    assert [str(w.message) for w in told] == [says.format(step) for step in (600, 800, 1_000)]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step_000000000400"]
    assert checkpoint.latest(tmp_path / "checkpoints")[1]["period"] == 4


def test_a_really_full_disk(tmp_path, capfd):
    """On a disk of 200 kB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(tmp_path)]
    if os.name != "posix" or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        folder = tmp_path / "checkpoints"
        checkpoint.save(folder, 1, {"x": jnp.arange(4.0)}, {"period": 1})
        with pytest.raises(OSError, match="No space left on device"):
            checkpoint.save(folder, 2, {"x": np.random.default_rng(0).random(100_000)}, {"period": 2})
        with pytest.raises(OSError, match="No space left on device"):
            (tmp_path / "rest").write_bytes(bytes(1_000_000))
        with pytest.raises(OSError, match="No space left on device"):
            checkpoint.save(folder, 3, {"x": jnp.arange(4.0)}, {"period": 3})
        assert [p.name for p in folder.iterdir()] == ["step_000000000001"]
        assert checkpoint.damage(folder / "step_000000000001") is None
        assert "Traceback" not in capfd.readouterr().err
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("what", ["metrics.csv", "tensorboard"])
def test_no_room_for_metrics_is_one_line(breaks, tmp_path, capsys, monkeypatch, what):
    out, write = tmp_path / "run", Metrics.write
    if what == "tensorboard":
        pytest.importorskip("tensorboard")

    def full(self, rows):
        if rows[0]["step"] == 500:
            if what == "metrics.csv":
                self.file.close()
                self.file = open("/dev/full", "a")  # noqa: SIM115
                self.csv = csv.DictWriter(self.file, self.columns, extrasaction="ignore")
            else:
                events = self.writers["dqn", 0]
                events.file.close()
                events.file = events.writer._writer = open("/dev/full", "wb")  # noqa: SIM115
        write(self, rows)

    monkeypatch.setattr(Metrics, "write", full)
    with pytest.raises(SystemExit) as stop:
        main(["train", *WORDS, "--out", str(out), "--checkpoint-every", "200"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "metrics cannot be written: No space left on device" in error
    assert checkpoint.latest(out / "checkpoints")[1]["period"] == 4
    monkeypatch.setattr(Metrics, "write", write)
    main(["resume", str(out), "--json"])
    assert rows(out)["soft-highway-dqn", "1"] == until(1_000)


def test_checks_let_arrays_and_tracers_pass():
    checks.unit_interval("lam", jnp.array([0.0, 0.5]))
    checks.unit_interval("lam", np.float32(1))
    checks.unit_interval("lam", jnp.bfloat16(0.5))
    jax.jit(jax.vmap(lambda x: checks.unit_interval("lam", x)))(jnp.array([-1.0, 2.0]))
    with pytest.raises(ValueError, match=r"lam=.*: give a number in \[0, 1\]"):
        checks.unit_interval("lam", jnp.array([0.5, jnp.nan]))
    made = runs.setup(CONFIG)
    check_run(made.agent, made.schedule)
    with pytest.raises(ValueError, match="capacity=500: it must be at least the batch, 501"):
        check_run(dataclasses.replace(made.agent, batch_size=501), made.schedule)


def test_module_is_the_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["highway-rl", "evaluate", "nowhere"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("highway_rl", run_name="__main__")
    assert stop.value.code == 2
    assert "no training folder" in capsys.readouterr().err
