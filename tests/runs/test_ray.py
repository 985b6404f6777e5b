"""Ray: the same rows as here, any worker and the driver may die, what fails is named. One cluster for all of it."""

import os
import subprocess
import sys

import blocks
import cells
import head
import pytest
from cells import BAD, CELLS

from highway_rl.machines import Died, workers
from highway_rl.records import ledger
from highway_rl.runs import Sweep, queue, sweep, trials
from highway_rl.solvers import highway_solve

SMALL = {"capacity": 200, "start": 100, "refresh": 100, "network": "mlp"}
SPEC = Sweep(
    ("late",), ("dqn",), "0-11", 200, "explorer", {"length": 6}, SMALL, episodes=2, most=6
)  # twelve cells in two programs
MADE = {"seconds", "date", "resumed", "devices"}
"""What tells of the making of a row and not of the row."""


@pytest.fixture(scope="module")
def address():
    """Of a cluster that listens on 127.0.0.1."""
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    begun = subprocess.Popen([sys.executable, head.__file__], stdin=-1, stdout=-1, env=path, text=True)
    yield begun.stdout.readline().strip()
    begun.communicate()
    assert begun.returncode == 0


def rows(made):
    return {row["id"]: {k: v for k, v in row.items() if k not in MADE} for row in made}


@pytest.mark.long
def test_rows_are_those_of_this_process_to_the_bit(address, tmp_path):
    here = rows(sweep(SPEC, out=tmp_path / "here"))
    made = sweep(SPEC, out=tmp_path / "ray", executor="ray", workers=2, address=address)
    assert len(here) == 12
    assert rows(made) == here
    assert len({row["training"] for row in made}) > 3


@pytest.mark.long
def test_worker_and_driver_are_killed_and_nothing_is_lost_or_repeated(address, tmp_path):
    cells.kills(tmp_path, "ray", address)


@pytest.mark.long
def test_a_cell_that_always_fails_is_named_and_stops_nothing(address, tmp_path):
    with pytest.raises(ValueError, match=r"late: dqn, seed 5.*RuntimeError: out of luck: run the same again"):
        cells.work(tmp_path, "ray", 0.0, address, bad=BAD.id)
    assert {row["id"] for row in trials.stored(tmp_path)} == {cell.id for cell in CELLS} - {BAD.id}
    (note,) = ledger.records(tmp_path / queue.FAILED)
    assert (note["id"], note["error"]) == (BAD.id, "RuntimeError: out of luck")


@pytest.mark.full
def test_workers_and_blocks_on_four_of_them_one_of_which_is_killed(address):
    with workers("ray", 4, address=address) as found:
        processes = [found.submit(i, os.getpid).result() for i in range(4)]
        assert len({*processes, os.getpid()}) == 5
        with pytest.raises(ValueError, match="invalid literal"):
            found.submit(0, int, "x").result()
        with pytest.raises(Died):
            found.submit(1, os._exit, 1).result()
        found.revive(1)
        assert found.submit(1, os.getpid).result() not in processes
        model = blocks.maze(blocks.SIDE).sparse()
        _, solution = blocks.killed((model, *model.reward.shape), found, 1e-8)
        assert found.submit(0, os.getpid).result() == processes[0]  # the others have not noticed
    blocks.agree(highway_solve(model, 1e-8), solution)
