"""The sweep command as a person meets it: a table at the end, lines in a log, status from elsewhere, refusals."""

import sys
import time

import cells
import pytest

from highway_rl.cli import sweep as command
from highway_rl.cli.app import main
from highway_rl.runs import status, trials

WORDS = ["late", "--algo", "dqn:k=[1,2]", "--seeds", "0-2", "--steps", "100", "--setting", "refresh=50", "--most", "1"]


@pytest.fixture
def quick(monkeypatch):
    def train(batch, out, facts, *, should_stop):
        return cells.train(batch, out, {"seconds": 0.0}, should_stop=should_stop)

    monkeypatch.setattr(trials, "train", train)


def test_a_sweep_and_its_status(quick, tmp_path, capsys):
    out = tmp_path / "sweep"
    main(["sweep", *WORDS, "--out", str(out)])
    said = capsys.readouterr()
    assert "6 of 6" in said.out
    assert said.err.count("begins") == said.err.count("done") == 6
    assert status(out).done == 6
    main(["sweep", "status", str(out)])
    assert "6 of 6" in capsys.readouterr().out
    for again in (WORDS, ["--spec", str(out / "sweep.json")]):  # runs nothing
        main(["sweep", *again, "--out", str(out)])
        assert "begins" not in capsys.readouterr().err
    main(["report", "--results", str(out), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "6 of 6 cells are done" in page
    assert "dqn:k=2</td><td>0.3333" in page
    assert "claim" not in page.split("</style>")[1]


def test_a_log_file_gets_a_line_now_and_then(quick, tmp_path, capsys):
    main(["sweep", *WORDS, "--out", str(tmp_path)])
    with command.live(tmp_path, every=0.01) as say:
        say("something happened")
        time.sleep(0.3)
    said = capsys.readouterr().err
    assert "something happened" in said
    assert "sweep: cells done 6 of 6, failed 0" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "a sweep needs tasks: give"),
        (["status"], "status stands alone: give"),
        (["status", "nowhere"], "is no sweep"),
        (["late", "--spec", "x.toml"], "write it there, and leave tasks out"),
        (["--spec", "x.toml", "--seeds", "0-7", "--import", "x"], "and leave --seeds, --import out"),
        (["late", "--devices", "99"], "devices=99: give all, or a number up to"),
        (["late", "--out", __file__], "is a file: give --out a folder"),
        (["--spec", "x.toml"], "x.toml is not there: give"),
        (["late", "--seeds", "x"], "seeds='x': give a range"),
        (["late", "--workers", "0"], "workers=0: give"),
        (["late", "--address", "host:1"], "address='host:1': give it with executor ray"),
        (["late", "--preset", "none.json"], "preset none.json cannot be read"),
        (["late", "--devices", "grup"], "--devices grup: give all, group, or a whole number"),
    ],
)
def test_bad_input_is_one_line(words, says, capsys, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        main(["sweep", "--out", str(tmp_path / "out"), *words])
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_without_ray_it_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit, match="2"):
        main(["sweep", "late", "--executor", "ray", "--out", str(tmp_path / "out")])
    assert "pip install 'highway-rl[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_after_failures_the_table_still_comes(tmp_path, capsys, monkeypatch):
    def train(*given, **more):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(trials, "train", train)
    with pytest.raises(SystemExit, match="2"):
        main(["sweep", *WORDS, "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert "0 of 6" in said.out
    assert "failed: late dqn:k=1 seed 0: RuntimeError: out of luck" in said.out
    assert "some cells failed" in said.err
