"""Training folders: resuming to the bit, damaged checkpoints, what is written, bad input."""

import csv
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from highway_rl.cli.app import main
from highway_rl.deep.evaluation import by_algo, evaluate
from highway_rl.runs import checkpoint
from highway_rl.runs import fit as runs

CONFIG = runs.Config(
    "late",
    algos=("dqn", "soft-highway-dqn"),
    seeds=2,
    env={"length": 6},
    schedule={"steps": 1_200, "capacity": 500, "start": 100, "refresh": 100},
    network="mlp",
    report_every=300,  # neither checkpoints nor stops fall on reports
    checkpoint_every=100,
    episodes=5,
)


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One uninterrupted run."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        out = tmp_path_factory.mktemp("whole")
        return runs.fit(CONFIG, out), out


def test_stopped_and_resumed_is_the_same_run(whole, tmp_path):
    trained, out = whole
    stops = iter([False] * 4 + [True])
    first = runs.fit(CONFIG, tmp_path, should_stop=lambda: next(stops))
    assert first.step == 500
    again = runs.fit(CONFIG, tmp_path, resume=True)
    same(again.run, trained.run)
    assert (tmp_path / "metrics.csv").read_text() == (out / "metrics.csv").read_text()


KILLED = """
import sys, time
from pathlib import Path
from highway_rl import runs
runs.fit(runs.read_config(Path(sys.argv[1])), Path(sys.argv[1]), resume=True,
         should_stop=lambda: bool(time.sleep(float(sys.argv[2]))))
"""


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.full)])
def test_killed_at_random_moments(whole, tmp_path, kills):
    """SIGKILL, resume, and so on: networks, store, curve and key end as those of the run nobody disturbed.

    The moments are spread at random over ten seconds from the start of a process: while it imports, compiles, restores,
    trains or saves, before the first checkpoint or after it.
    """
    trained, out = whole
    runs.write_config(CONFIG, tmp_path)
    rng = random.Random(kills)
    moments = [10 * (i + rng.random()) / kills for i in range(kills)]
    rng.shuffle(moments)
    for moment in [*moments, None]:
        command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), "0" if moment is None else "0.4"]
        with subprocess.Popen(command) as process:
            if moment is None:
                assert process.wait(timeout=300) == 0
                break
            time.sleep(moment)
            process.kill()
            assert process.wait() in (0, -signal.SIGKILL)
    s = runs.setup(CONFIG)
    path, facts = checkpoint.latest(tmp_path / "checkpoints")
    assert facts["period"] == 12
    same(checkpoint.load(path, jax.eval_shape(s.start())), trained.run)
    assert (tmp_path / "metrics.csv").read_text() == (out / "metrics.csv").read_text()


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "manifest"])
def test_damaged_newest_checkpoint(whole, tmp_path, harm):
    """The one before is used, with a warning that names the damaged one; the end is the same."""
    trained, out = whole
    shutil.copytree(out, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    newest = folder / sorted(os.listdir(folder))[-1]
    victim = max(
        (p for p in newest.rglob("*") if p.is_file() and "manifest" not in p.name), key=lambda p: p.stat().st_size
    )
    if harm == "truncate":
        victim.write_bytes(victim.read_bytes()[:-7])
    elif harm == "flip":
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(bytes(data))
    elif harm == "remove":
        victim.unlink()
    else:
        (newest / "manifest.json").write_text('{"step": 12')
    with pytest.warns(UserWarning, match=newest.name):
        again = runs.fit(CONFIG, tmp_path / "run", resume=True)
    same(again.run, trained.run)


def test_no_sound_checkpoint_is_an_error(tmp_path):
    with pytest.raises(checkpoint.Missing, match=r"no sound checkpoint$"):
        checkpoint.latest(tmp_path)


def test_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    tree = {"x": jax.numpy.arange(4.0)}
    checkpoint.save(tmp_path, 1, tree, {"period": 1})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, 2, tree, {"period": 2})
    assert checkpoint.steps(tmp_path) == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["step_000000000001"]
    assert checkpoint.latest(tmp_path)[1] == {"period": 1}


def test_training_goes_on_without_room_for_checkpoints(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    config = dataclasses.replace(CONFIG, schedule=CONFIG.schedule | {"steps": 200})
    with pytest.warns(UserWarning, match="no checkpoint at step"):
        assert runs.fit(config, tmp_path).step == 200


def test_only_the_newest_are_kept_and_a_pinned_one(tmp_path):
    for step in range(1, 7):
        checkpoint.save(tmp_path, step, {"x": jax.numpy.ones(2)}, {"period": step}, keep=2, pinned={1, 3})
    assert checkpoint.steps(tmp_path) == [1, 3, 5, 6]
    checkpoint.save(tmp_path, 4, {"x": jax.numpy.ones(2)}, {"period": 4}, keep=2)  # back again, after damage
    assert checkpoint.steps(tmp_path) == [3, 4]


def test_without_the_store(tmp_path):
    """A smaller checkpoint; the resumed run fills its store before it learns again."""
    config = dataclasses.replace(CONFIG, save_store=False)
    stops = iter([False] * 4 + [True])
    first = runs.fit(config, tmp_path, should_stop=lambda: next(stops))
    kept = jax.device_get(first.run.learning.params)
    stops = iter([True])
    again = runs.fit(config, tmp_path, resume=True, should_stop=lambda: next(stops))
    assert again.step == 600
    same(again.run.learning.params, kept)
    assert int(again.run.store.rows.real[0].sum()) == 100
    assert runs.fit(config, tmp_path, resume=True).step == 1_200


def test_what_is_written(whole):
    _, out = whole
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 4
    assert {(r["algo"], r["seed"]) for r in rows} == {(a, s) for a in CONFIG.algos for s in ("0", "1")}
    last = [r for r in rows if r["algo"] == "soft-highway-dqn"][-1]
    shares = [float(last[k]) for k in ("won_gate", "won_1", "won_2", "won_end")]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert float(last["open_1"]) == 1.0
    assert 0 <= float(last["open_end"]) <= 1
    assert float(last["ratio_1"]) <= 1
    assert runs.read_config(out) == CONFIG
    stored = json.loads((out / "config.json").read_text())["provenance"]
    assert {"commit", "date", "device", "jax", "version"} <= set(stored)


def test_evaluation(whole):
    trained, _ = whole
    scores = evaluate(trained.setup, trained.run.learning.params, episodes=7)
    assert [(r["algo"], r["seed"]) for r in scores] == trained.setup.labels
    assert all(r["length"] == 6 and r["cut_off"] == 0 and 0.2 <= round(r["score"], 6) <= 1 for r in scores)
    assert by_algo(scores)["dqn"]["seeds"] == 2
    cut = evaluate(trained.setup, trained.run.learning.params, episodes=3, max_steps=4, broken=[None, 300, None, None])
    assert all(r["cut_off"] == 3 for r in cut)
    assert [r["broken"] for r in cut] == [None, 300, None, None]
    assert by_algo(cut)["dqn"]["broken"] == [1]


def test_tensorboard_events(whole):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, out = whole
    found = EventAccumulator(str(out / "tensorboard" / "dqn-1"))
    found.Reload()
    assert {"train/score", "train/loss", "value/bias", "gate/open_1"} <= set(found.Tags()["scalars"])
    assert [e.step for e in found.Scalars("train/loss")] == list(range(300, 1_300, 300))


BAD = [
    (["train", "late", "--algo", "fqn"], "did you mean 'dqn'"),
    (["train", "late", "--algo", "n-step-dqn", "--rule", "n=0"], "depth 0"),
    (["train", "late", "--algo", "retrace", "--rule", "lam=1.5"], "lam=1.5: give a number in [0, 1]"),
    (["train", "late", "--algo", "maxmin-dqn", "--rule", "k=0"], "num_networks=0"),
    (["train", "late", "--algo", "dqn", "--rule", "n=3"], "dqn has no option 'n'"),
    (["train", "late", "--schedule", "capacity=500"], "capacity=500: the store must hold at least one refresh period"),
    (
        ["train", "late", "--schedule", "capacity=20", "--schedule", "refresh=10", "--schedule", "start=10"],
        "at least the batch, 32",
    ),
    (["train", "late", "--algo", "retrace", "--rule", "lam=abc"], "lam='abc': give a number in [0, 1]"),
    (["train", "late", "--algo", "retrace", "--rule", "lam=0.1,0.2"], "lam=(0.1, 0.2): give one value"),
    (["train", "late", "--algo", "n-step-dqn", "--rule", "n=abc"], "n='abc': give whole numbers >= 1, or end"),
    (["train", "late", "--rule", "alpha=abc"], "alpha='abc': give a number in [0, inf]"),
    (["train", "late", "--rule", "alpha=nan"], "alpha=nan: give a number in [0, inf]"),
    (["train", "late", "--agent", "learning_rate=abc"], "learning_rate='abc': give a number > 0"),
    (["train", "late", "--agent", "learning_rate=nan"], "learning_rate=nan: give a number > 0"),
    (["train", "late", "--agent", "learning_rate=inf"], "learning_rate=inf: give a number > 0 and < inf"),
    (["train", "late", "--agent", "epsilon_end=abc"], "epsilon_end='abc': give a number in [0, 1]"),
    (["train", "late", "--schedule", "updates_per_step=abc"], "updates_per_step='abc': give a number > 0"),
    (["train", "late", "--schedule", "updates_per_step=inf"], "updates_per_step=inf: give a number > 0 and < inf"),
    (["train", "late", "--steps", "inf"], "steps=inf: give a whole number >= 1"),
    (["train", "late", "--steps", "nan"], "steps=nan: give a whole number >= 1"),
    (["train", "late", "--seed", "-1"], "seed=-1: give a whole number >= 0"),
    (["train", "late", "--seed", "4294967296"], "the last seed must be below 2**32"),
    (["train", "late", "--algo", "dqn", "--algo", "dqn"], "dqn is given 2 times"),
    (
        ["train", "late", "--algo", "dqn", "--algo", "double-dqn"],
        "double-dqn bootstrap='double', but the algorithms of",
    ),
    (["train", "late", "--network", "minatar"], "this network needs one board"),
    (["train", "minatar/breakout", "--network", "nature"], "is too small for windows of"),
    (["train", "late", "--agent", "batch_size=0"], "batch_size=0: give a whole number >= 1"),
    (["train", "late", "--agent", "discount=1.5"], "discount=1.5: give a number in [0, 1]"),
    (["train", "late", "--agent", "depth=3"], "no setting 'depth'"),
    (["train", "late", "--schedule", "batch=3"], "no setting 'batch'"),
    (["train", "late", "--seeds", "0"], "seeds=0"),
    (["train", "late", "--steps", "1500"], "steps=1500: it must be a multiple of refresh=1000"),
    (["train", "late", "--network", "resnet"], "unknown network 'resnet'"),
    (["train", "latte"], "did you mean 'late'"),
    (["train", "taxi"], "model to solve"),
    (
        ["train", "Pendulum-v1"],
        "Pendulum-v1 has actions Box(-2.0, 2.0, (1,), float32): a value network needs a Discrete",
    ),
    (["train", "CartPole-v1"], "CartPole-v1 steps outside JAX"),
    (["train", "late", "--set", "length=1"], "length is 1; allowed: an integer from 2"),
    (["train", "late", "--set", "colour=red"], "no option 'colour'"),
    (["train", "late", "--set", "trap=maybe"], "trap is 'maybe'; allowed: True or False"),
    (["train", "minatar/breakout", "--delay", "soon"], "--delay soon: give end, a number of steps, or a range"),
    (["train", "late", "--algo", "retrace", "--agent", "num_policies=2"], "num_policies=2"),
    (["resume", "nowhere"], "no training folder"),
    (["evaluate", "nowhere"], "no training folder"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda x: " ".join(x[1:]) if isinstance(x, list) else "")
def test_bad_input_is_one_line(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error
    assert not list(Path(tmp_path).iterdir())


def test_command_line_from_train_to_evaluate(tmp_path, capsys):
    out = str(tmp_path / "run")
    words = ["late", "--algo", "dqn", "--steps", "400", "--out", out, "--episodes", "3", "--json", "--set", "length=5"]
    for pair in ("capacity=300", "start=100", "refresh=100"):
        words += ["--schedule", pair]
    main(["train", *words])
    trained = json.loads(capsys.readouterr().out)
    assert trained["step"] == 400
    assert trained["scores"][0]["algo"] == "dqn"
    assert {"config.json", "metrics.csv", "checkpoints", "curves.png", "evaluation.json"} <= set(os.listdir(out))
    with pytest.raises(SystemExit):
        main(["train", *words])
    assert "holds a run already" in capsys.readouterr().err
    main(["evaluate", out, "--episodes", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["scores"][0]["episodes"] == 4
    assert found["step"] == 400
