"""Several processes that train one program together: the rows of one process, written once, by the first."""

import json
import os
import socket
import subprocess
import sys

import psutil
import pytest
from cells import wait_for

from highway_rl.cli.app import main
from highway_rl.machines import group
from highway_rl.records import ledger
from highway_rl.runs import Sweep, sweep, trials
from highway_rl.runs.programs import _spread_over

SMALL = {"capacity": 200, "start": 100, "refresh": 100, "network": "mlp"}
SPEC = Sweep("late", "dqn", "0-2", 200, "explorer", {"length": 6}, SMALL, episodes=2, most=2)  # two runs, and one
MADE = {"seconds", "date", "resumed", "devices"}
"""What tells of the making of a row and not of the row."""
WORDS = ["late", "--algo", "dqn", "--steps", "200", "--preset", "explorer", "--set", "length=6", "--episodes", "2"]
WORDS += [word for name, value in SMALL.items() for word in ("--setting", f"{name}={value}")]
SWEEP = ["sweep", *WORDS, "--seeds", "0-2", "--most", "2", "--devices", "group"]
TRAIN = ["train", *WORDS, "--seeds", "2", "--json"]


def begin(number, port, words):
    """The command as the number-th of two processes."""
    variables = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": f"{number}",
    }
    words = [sys.executable, "-m", "highway_rl", *words]
    given = {"env": os.environ | variables, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, **given)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def listens(process):
    found = psutil.Process(process.pid).net_connections()
    return {c.laddr.ip.removeprefix("::ffff:") for c in found if c.status == "LISTEN"}


@pytest.mark.long
def test_two_processes_make_the_rows_of_one_and_the_first_writes_them(tmp_path):
    port, out = free_port(), tmp_path / "group"
    both = [begin(i, port, [*SWEEP, "--out", str(out)]) for i in range(2)]
    assert wait_for(lambda: listens(both[0])) == {"127.0.0.1"}
    said = [one.communicate() for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert "3 of 3" in said[0][0]
    assert "cells" not in said[1][0]
    records = [record for path in (out / "deep").glob("*.jsonl") for record in ledger.records(path)]
    assert [len(record["runs"]) for record in records] == [2, 1]
    alone = sweep(SPEC, out=tmp_path / "alone")
    one, other = (
        {r["id"]: {k: v for k, v in r.items() if k not in MADE} for r in x} for x in (alone, trials.stored(out))
    )
    assert one == other


@pytest.mark.full
def test_one_command_in_two_processes_trains_and_goes_on(tmp_path, capsys):
    """Of which the first one writes and shows; what it refuses ends both."""

    def both(*words):
        port = free_port()
        each = [begin(i, port, [*words, "--devices", "group"]) for i in range(2)]
        said = [one.communicate() for one in each]
        return [one.returncode for one in each], [out for out, _ in said], [err for _, err in said]

    out = str(tmp_path / "group")
    codes, shown, why = both(*TRAIN, "--out", out)
    assert codes == [0, 0], why
    assert shown[1] == ""
    main([*TRAIN, "--out", str(tmp_path / "alone")])
    assert json.loads(shown[0])["scores"] == json.loads(capsys.readouterr().out)["scores"]
    codes, shown, why = both("resume", out, "--steps", "300", "--json")
    assert codes == [0, 0], why
    assert json.loads(shown[0])["step"] == 300
    codes, _, why = both(*TRAIN, "--out", out)
    assert codes == [2, 0], why
    assert "holds a run" in why[0]


def test_runs_are_spread_evenly_or_stay_with_the_first():
    spread = {runs: _spread_over(runs, devices=4, processes=2) for runs in (16, 12, 6, 2, 3, 1)}
    assert spread == {16: (8, 2), 12: (6, 2), 6: (6, 2), 2: (2, 2), 3: (3, 1), 1: (1, 1)}


def test_without_a_group_a_process_leads_itself():
    assert group.leads()
    assert not group.several()
    assert group.share(("a", 1)) == ("a", 1)


def test_no_group_is_said_to_be_none(monkeypatch, tmp_path):
    for name in group.VARIABLES.values():
        monkeypatch.setenv(name, "x")
    with pytest.raises(ValueError, match=r"no group of processes is found \(.*\): run the command with srun"):
        sweep(SPEC, out=tmp_path, devices="group")
    monkeypatch.setattr(group, "join", lambda: 1)
    with pytest.raises(ValueError, match="its own executor: leave executor and workers out"):
        sweep(SPEC, out=tmp_path, devices="group", workers=2)
    assert not list(tmp_path.iterdir())
