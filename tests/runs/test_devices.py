"""Runs spread over several devices are the same runs: to the bit, and each device holds its share."""

import json
import os
import subprocess
import sys

import devices
import pytest

from highway_rl import runs
from highway_rl.runs.config import setup


def found(*words):
    said = subprocess.run([sys.executable, devices.__file__, *words], env=os.environ, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout.splitlines()[-1])


def check(seen):
    assert seen["devices"] == [1, 2, 4, 8]  # of 16 runs each device has as many
    assert (seen["same"], seen["gap"], seen["scores"]) == (True, 0.0, True)
    (whole,), shares = seen["held"]
    assert len(shares) == 8
    assert set(shares) == {whole // 8}


@pytest.mark.long
def test_sixteen_runs_on_eight_devices_are_the_same_to_the_bit():
    check(found())


@pytest.mark.full
def test_the_same_with_what_the_program_sets_aside_and_on_other_devices_after_a_stop():
    seen = found("full")
    check(seen)
    one, eight = seen["temporary"]
    assert eight < one / 6
    assert seen["moved"]


@pytest.mark.parametrize("given", [0, 99, "some", 1.5])
def test_devices_that_are_not_there(given):
    config = runs.Config("late", settings={"network": "mlp"})
    with pytest.raises(ValueError, match=r"devices=.*: give"):
        setup(config, devices=given)


def test_environments_outside_jax_have_one_device(monkeypatch):
    monkeypatch.setattr("jax.local_device_count", lambda: 4)
    with pytest.raises(ValueError, match="devices=2: give 1: CartPole-v1 steps outside JAX"):
        setup(runs.Config("CartPole-v1"), devices=2)
    assert setup(runs.Config("CartPole-v1"), devices="all").programs[0].devices == 1
