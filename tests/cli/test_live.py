"""Signals: while it trains a run stops once and saved, at any other time the command leaves within seconds."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from training import WORDS, program, rows, strictly, until

from highway_rl.cli.app import main
from highway_rl.runs import checkpoint
from highway_rl.runs.metrics import Metrics

LONG = [
    "train",
    "minatar/seaquest",
    "--setting",
    "capacity=2000",
    "--setting",
    "refresh=1000",
    "--setting",
    "start=1000",
]
for name in ("dqn", "n-step-dqn", "lambda-dqn", "watkins-dqn", "tree-backup-dqn", "retrace", "soft-highway-dqn"):
    LONG += ["--algo", name]


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
        main(["train", *WORDS, "--out", str(out), "--checkpoint-every", "1000"])
    assert stop.value.code == 128 + number
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1
    printed = capsys.readouterr()
    assert f"stopped at step 300; `highway-rl resume {out}` goes on" in printed.err
    assert strictly(printed.out)["step"] == 300
    assert checkpoint.steps(program(out)) == [300]
    main(["resume", str(out), "--json"])
    assert strictly(capsys.readouterr().out)["step"] == 1_000
    assert rows(out)["dqn", "0"] == until(1_000)


def started(words: list[str]) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "highway_rl", *words], stdout=-1, stderr=-1, text=True)


def ended(process: subprocess.Popen, number: int) -> float:
    """Sends a signal; returns the seconds until the process was gone."""
    begun = time.monotonic()
    process.send_signal(number)
    process.wait(timeout=60)
    return time.monotonic() - begun


COMPILING = """
import sys, time
import jax
from highway_rl.cli.app import main
from highway_rl.runs import programs
from pathlib import Path
inner = programs.Program.advance
def advance(self):
    Path(sys.argv[1]).write_text("now")
    return inner(self)
programs.Program.advance = advance
main(sys.argv[2:])
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_leaves_while_compiling(tmp_path, monkeypatch, number):
    """The compiler does not listen to Python's handlers; nothing is left behind."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")  # so that it has to compile
    flag = tmp_path / "flag"
    command = [sys.executable, "-c", COMPILING, str(flag), *LONG, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        deadline = time.monotonic() + 120
        while not flag.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2)  # into tracing and compiling, which take much longer than this
        assert process.poll() is None
        took = ended(process, number)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 128 + number
    assert took < 3
    lines = said.splitlines()
    assert lines[-1] == "highway-rl: interrupted while compiling"
    assert all("compiling; about" in line for line in lines[:-1])  # what it will take, where that is long
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_stopped_while_training(tmp_path):
    """Ctrl-C once: one line, a checkpoint, 130; resumed, it comes to its end. Ctrl-C twice: it leaves at once."""
    words = ["late", "--algo", "dqn", "--steps", "20000000", "--json", "--episodes", "2", "--set", "length=5"]
    for pair in ("capacity=300", "start=100", "refresh=100", "network=mlp", "k=1"):
        words += ["--setting", pair]
    out = tmp_path / "run"
    words += ["--out", str(out), "--report-every", "100", "--checkpoint-every", "20000000"]
    with started(["train", *words]) as process:
        wait_for_rows(process, out)
        took = ended(process, signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 130
    assert took < 10
    said = "".join(line for line in said.splitlines(keepends=True) if "compiling; about" not in line)
    assert said.count("\n") == 2
    assert "stopping after this period; once more leaves at once" in said
    assert f"`highway-rl resume {out}` goes on" in said
    (saved,) = checkpoint.steps(program(out))
    assert rows(out)["dqn", "0"][-1] == saved
    with started(["resume", str(out), "--json"]) as process:
        wait_for_rows(process, out, saved)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert process.returncode in (130, 143)
    assert rows(out)["dqn", "0"][0] == 100
    assert all(b - a == 100 for a, b in zip(rows(out)["dqn", "0"], rows(out)["dqn", "0"][1:], strict=False))


def wait_for_rows(process: subprocess.Popen, out: Path, beyond: int = 0) -> None:
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
        if (out / "metrics.csv").exists():
            found = (out / "metrics.csv").read_text().splitlines()[1:-1]
            if found and int(found[-1].split(",")[0]) > beyond:
                return


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "--out", "missing"], "missing is not there"),
        (["plot", "missing/folder"], "missing/folder is not there"),
        (["plot", "."], "metrics.csv"),
        (["solve", "taxi", "--save", "missing/x.npz"], "missing is not there: make that folder first"),
    ],
)
def test_missing_folders_are_told_first(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("highway_rl.cli.planning.compare", lambda *_: pytest.fail("it solves"))
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert says in error
