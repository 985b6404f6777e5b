"""Several processes that train one program together: the rows of one process, written once, by the first."""

import os
import socket
import subprocess
import sys

import psutil
import pytest
from cells import wait_for

from highway_rl.machines import group
from highway_rl.records import ledger
from highway_rl.runs import Sweep, sweep, trials
from highway_rl.runs.programs import _spread_over

SMALL = {"capacity": 200, "start": 100, "refresh": 100, "network": "mlp"}
SPEC = Sweep("late", "dqn", "0-2", 200, "explorer", {"length": 6}, SMALL, episodes=2, most=2)  # two runs, and one
MADE = {"seconds", "date", "resumed", "devices"}
"""What tells of the making of a row and not of the row."""
WORDS = ["late", "--algo", "dqn", "--seeds", "0-2", "--steps", "200", "--preset", "explorer", "--set", "length=6"]
WORDS += [word for name, value in SMALL.items() for word in ("--setting", f"{name}={value}")]
WORDS += ["--episodes", "2", "--most", "2", "--devices", "group"]


def begin(number, port, out):
    """The command as the number-th of two processes."""
    variables = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": f"{number}",
    }
    words = [sys.executable, "-m", "highway_rl", "sweep", *WORDS, "--out", str(out)]
    given = {"env": os.environ | variables, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, **given)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def listens(process):
    found = psutil.Process(process.pid).net_connections()
    return {c.laddr.ip.removeprefix("::ffff:") for c in found if c.status == "LISTEN"}


def test_two_processes_make_the_rows_of_one_and_the_first_writes_them(tmp_path):
    port, out = free_port(), tmp_path / "group"
    both = [begin(i, port, out) for i in range(2)]
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
