"""train, resume, evaluate as a person meets them: what they print, write and refuse."""

import csv
import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
from training import WORDS, program, rows, strictly, until

import highway_rl
from highway_rl.cli.app import main
from highway_rl.runs import checkpoint
from highway_rl.runs.metrics import Metrics

SMALL = ["--setting", "capacity=20", "--setting", "refresh=10", "--setting", "start=10"]
BAD = [
    (["train", "late", "--algo", "fqn"], "did you mean 'dqn'"),
    (["train", "late", "--algo", "n-step-dqn:n=0"], "depth"),
    (["train", "late", "--algo", "retrace:lam=1.5"], "lam=1.5: give a number in [0, 1]"),
    (["train", "late", "--algo", "maxmin-dqn:k=0"], "num_networks=0"),
    (["train", "late", "--algo", "dqn:n=3"], "dqn has no option 'n'"),
    (["train", "late", "--preset", "explorer", "--setting", "capacity=500"], "capacity=500: give at least the steps"),
    (["train", "late", *SMALL], "at least the batch, batch_size=64"),
    (["train", "late", "--algo", "retrace:lam=abc"], "lam='abc': give a number in [0, 1]"),
    (["train", "late", "--algo", "retrace:lam=0.1,0.2"], "lam=(0.1, 0.2): give one"),
    (["train", "late", "--algo", "n-step-dqn:n=abc"], "n='abc': give whole numbers >= 1, or end"),
    (["train", "late", "--algo", "soft-highway-dqn:alpha=abc"], "alpha='abc': give a number in [0, inf]"),
    (["train", "late", "--algo", "soft-highway-dqn:alpha=nan"], "alpha=nan: give a number in [0, inf]"),
    (["train", "late", "--setting", "learning_rate=abc"], "learning_rate='abc': give a number > 0"),
    (["train", "late", "--setting", "learning_rate=nan"], "learning_rate=nan: give a number > 0"),
    (["train", "late", "--setting", "learning_rate=inf"], "learning_rate=inf: give a number > 0 and < inf"),
    (["train", "late", "--setting", "epsilon_end=abc"], "epsilon_end='abc': give a number in [0, 1]"),
    (["train", "late", "--setting", "updates_per_step=abc"], "updates_per_step='abc': give a number > 0"),
    (["train", "late", "--setting", "updates_per_step=inf"], "updates_per_step=inf: give a number > 0 and < inf"),
    (["train", "late", "--setting", "k=1", "--setting", "k=2"], "k is given twice"),
    (["train", "late", "--setting", "k"], "k: write it as name=value"),
    (["train", "late", "--setting", "capacity=1000000000000"], "capacity=1000000000000: give a whole number from 1 to"),
    (["train", "late", "--setting", "capacity=2000000000"], "GB of memory"),
    (["train", "late", "--setting", "capacity=2e9"], "GB of memory"),
    (["train", "late", "--steps", "inf"], "steps=inf: give a whole number >= 1"),
    (["train", "late", "--steps", "nan"], "steps=nan: give a whole number >= 1"),
    (["train", "late", "--steps", "100"], "steps=100: give a multiple of refresh=250, such as 250"),
    (["train", "late", "--steps", "100"], "--setting refresh="),
    (["train", "late", "--seed", "-1"], "seed=-1: give a whole number >= 0"),
    (["train", "late", "--seed", "4294967296"], "is below 2**32"),
    (["train", "late", "--seeds", "100000"], "GB of memory"),
    (["train", "late", "--algo", "dqn", "--algo", "dqn"], "dqn is given 2 times"),
    (["train", "late", "--algo", "double-dqn:bootstrap=epsilon-greedy"], "double-dqn has a bootstrap of its own"),
    (["train", "late", "--setting", "network=minatar"], "shows 0 boards: give a network of your own, or mlp"),
    (["train", "minatar/breakout", "--setting", "network=nature"], "too small for windows of"),
    (["train", "late", "--setting", "batch_size=0"], "batch_size=0: give a whole number >= 1"),
    (["train", "late", "--setting", "discount=1.5"], "discount=1.5: give a number in [0, 1]"),
    (["train", "late", "--setting", "depth=3"], "no option 'depth'"),
    (["train", "late", "--preset", "papr"], "did you mean 'paper'"),
    (["train", "late", "--seeds", "0"], "seeds=0"),
    (["train", "late", "--preset", "explorer", "--steps", "1500"], "steps=1500: give a multiple of refresh=1000"),
    (["train", "late", "--setting", "network=resnet"], "unknown network 'resnet'"),
    (["train", "late", "--import", "no.such"], "module 'no.such' cannot be imported"),
    (["train", "no.such:env"], "module 'no.such' cannot be imported"),
    (["train", "latte"], "did you mean 'late'"),
    (["train", "taxi"], "model to solve"),
    (["train", "Pendulum-v1"], "Pendulum-v1 has actions Box(-2.0, 2.0, (1,), float32)"),
    (["train", "CartPole-v1", "--set", "wind=3"], "CartPole-v1 cannot be made, TypeError says"),
    (["train", "late", "--set", "length=1"], "length=1: give a whole number"),
    (["train", "late", "--set", "colour=red"], "no option 'colour'"),
    (["train", "late", "--set", "trap=maybe"], "trap='maybe': give True or False"),
    (["train", "minatar/breakout", "--delay", "soon"], "delay='soon': give 'end', a number of steps or a range"),
    (["train", "late", "--algo", "retrace:num_policies=2"], "num_policies=2"),
    (["train", "late", "--out", __file__], "is a file: give --out a folder"),
    (["resume", "nowhere"], "no training folder"),
    (["evaluate", "nowhere"], "no training folder"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda x: " ".join(x[1:]) if isinstance(x, list) else "")
def test_bad_input_is_one_line(words, says, capsys, tmp_path, monkeypatch):
    """Said before anything is compiled, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("highway_rl.runs.programs.Program.advance", lambda self: pytest.fail("it compiles"))
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error
    assert not list(Path(tmp_path).iterdir())


@pytest.mark.long
def test_too_much_is_refused_within_seconds():
    """In a process of its own, as a person would wait for it."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "highway_rl", "train", "minatar/breakout", "--seeds", "100000"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "GB of memory" in done.stderr
    assert time.monotonic() - begun < 90


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_place_that_cannot_be_written_is_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "minatar/breakout", "--out", "/proc/x"])
    error = capsys.readouterr().err
    assert (stop.value.code, error.count("\n")) == (2, 1)
    assert "cannot be written" in error


def test_command_line_from_train_to_evaluate(tmp_path, capsys):
    out = str(tmp_path / "run")
    words = ["late", "--algo", "dqn", "--steps", "400", "--out", out, "--episodes", "3", "--json", "--set", "length=5"]
    for pair in ("capacity=300", "start=100", "refresh=100", "network=mlp", "k=1"):
        words += ["--setting", pair]
    main(["train", *words])
    trained = json.loads(capsys.readouterr().out)
    assert trained["step"] == 400
    assert [(r["algo"], r["epsilon"]) for r in trained["scores"]] == [("dqn", 0.0), ("dqn", 0.05)]
    assert {"config.json", "metrics.csv", "checkpoints", "curves.png", "evaluation.json"} <= set(os.listdir(out))
    with pytest.raises(SystemExit):
        main(["train", *words])
    assert "holds a run already" in capsys.readouterr().err
    main(["evaluate", out, "--episodes", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["scores"][0]["episodes"] == 4
    assert found["step"] == 400
    assert set(found["by_algo_training_epsilon"]) == {"dqn"}
    file = tmp_path / "agent.safetensors"
    highway_rl.load(out).save(file)
    main(["evaluate", str(file), "--episodes", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [(r["algo"], r["epsilon"], r["episodes"]) for r in found["scores"]] == [("dqn", 0.0, 4)]
    assert (found["step"], set(found["by_algo"])) == (400, {"dqn"})
    main(["resume", out, "--steps", "500", "--json"])
    assert json.loads(capsys.readouterr().out)["step"] == 500
    main(["plot", out])
    assert "figure: " in capsys.readouterr().out


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
        assert [row["broken"] for row in found["scores"]] == [None, None, 350, 350, None, None, None, None]
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
                self.file = open("/dev/full", "ab")  # noqa: SIM115
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
    assert checkpoint.latest(program(out))[1]["period"] == 4
    monkeypatch.setattr(Metrics, "write", write)
    main(["resume", str(out), "--json"])
    assert rows(out)["soft-highway-dqn", "1"] == until(1_000)


def test_lost_rows_are_one_line(breaks, tmp_path, capsys):
    out = tmp_path / "run"
    main(["train", *WORDS, "--out", str(out)])
    with (out / "metrics.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 40
    (out / "metrics.csv").unlink()
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["resume", str(out)])
    assert stop.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "metrics.csv is not there" in last
    assert "put " in last


def test_module_is_the_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["highway-rl", "evaluate", "nowhere"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("highway_rl", run_name="__main__")
    assert stop.value.code == 2
    assert "no training folder" in capsys.readouterr().err
