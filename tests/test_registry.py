"""Things of a user's own: registered by a module or named as module:name, they are there again in a new process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from highway_rl import TargetRule, highway, register_algorithm, register_env, register_network, register_optimizer
from highway_rl.deep.algorithms import ALGORITHMS
from highway_rl.registry import Registry

MINE = """
import functools
import equinox as eqx
import jax
import optax
import highway_rl
from highway_rl.envs import make_env

def env(length=4):
    return make_env("late", length=length)

def rule(n=2):
    return highway_rl.highway((1, n))

def network(spec, key):
    shape = spec.observation.shape
    return eqx.nn.MLP(shape[0], spec.num_actions, 8, 1, key=key)

def register():
    highway_rl.register_env("my-env", env())
    highway_rl.register_algorithm("my-rule", rule)
    highway_rl.register_network("my-network", network)
    highway_rl.register_optimizer("my-optimizer", functools.partial(optax.sgd, 1.0))
"""
SETTINGS = ("capacity=200", "start=100", "refresh=100", "k=1")


def command(where: Path, *words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, in a folder, with another one to find modules in."""
    env = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONPATH": str(path or where)}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *words], cwd=where, env=env, capture_output=True, text=True, timeout=300
    )


def trained(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    pairs = [word for pair in SETTINGS for word in ("--setting", pair)]
    small = ["--steps", "200", "--episodes", "2", "--json", "--out", "run"]
    return command(where, "-m", "highway_rl", "train", *words, *pairs, *small)


LOAD = """
import numpy as np
import highway_rl
agent = highway_rl.load("run")
print(agent.label, agent.act(np.zeros(agent.spec.observation.shape)))
"""
COMMANDS = """
import sys
from highway_rl.cli.app import main
from highway_rl.deep.algorithms import ALGORITHMS
from highway_rl.deep.networks import NETWORKS
from highway_rl.deep.optimizers import OPTIMIZERS
from highway_rl.envs.registry import ENVS

def forget():
    sys.modules.pop("mymodule", None)
    for known in (ENVS, ALGORITHMS, NETWORKS, OPTIMIZERS):
        while known.added:
            del known.known[known.added.popitem()[0]]

for words in sys.argv[1:]:
    forget()
    try:
        main(words.split())
    except SystemExit as stop:
        print("exit", stop.code)
forget()
"""
"""Several commands in one process, each of them with nothing registered, as in a process of its own."""


@pytest.mark.long
def test_registered_things_survive_the_process(tmp_path):
    """config.json alone tells what to import: to resume, evaluate, draw and load; without it, one line says so."""
    (tmp_path / "mymodule.py").write_text(MINE + "\nregister()\n")
    algo = "my-rule:n=3,network=my-network,optimizer=my-optimizer"
    done = trained(tmp_path, "my-env", "--algo", algo, "--import", "mymodule")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["task"], config["algos"], config["imports"]) == ("my-env", [algo], ["mymodule"])
    words = ("resume run --steps 300 --json", "evaluate run --episodes 2", "plot run")
    done = command(tmp_path, "-c", COMMANDS + LOAD, *words)
    assert done.returncode == 0, done.stderr
    assert "exit" not in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1].startswith(algo)

    (tmp_path / "mymodule.py").unlink()
    done = command(tmp_path, "-c", COMMANDS, "resume run", "evaluate run", "plot run")
    assert (done.returncode, done.stderr.count("\n")) == (0, 2), done.stderr
    assert done.stderr.count("module 'mymodule' cannot be imported") == 2
    assert done.stdout.count("exit 2\n") == done.stdout.count("exit") == 2
    assert "figure: " in done.stdout.split("exit 2\n")[-1]  # needs no module


@pytest.mark.full
def test_module_and_name(tmp_path):
    """Nothing is registered: the names themselves say where things are."""
    (tmp_path / "mymodule.py").write_text(MINE)
    algo = "mymodule:rule:n=3,network=mymodule:network"
    done = trained(tmp_path, "mymodule:env", "--algo", algo, "--set", "length=5")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scores"][0]["algo"] == algo
    done = command(tmp_path, "-c", LOAD)
    assert done.stdout.startswith(algo), done.stderr


ENTRY = """
import importlib.metadata
import highway_rl
from highway_rl import runs
from highway_rl.envs import learnable
assert "their-env" in learnable()
s = runs.setup(runs.Config("their-env", ("their-rule:n=3",), settings={"network": "their-network"}))
assert s.runs[0].agent.rule.backup.depths == (1, 3)
print(runs.config.modules(s.config))
"""
LISTED = """
from highway_rl.cli.app import main
main(["list"])
"""


@pytest.mark.long
def test_entry_points(tmp_path):
    """What an installed package offers is found by name, and refused by name where it is not installed."""
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (tmp_path / "mymodule.py").write_text(MINE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    groups = {"envs": "their-env = mymodule:env", "algorithms": "their-rule = mymodule:rule"}
    groups["networks"] = "their-network = mymodule:network"
    (info / "entry_points.txt").write_text("".join(f"[highway_rl.{g}]\n{line}\n" for g, line in groups.items()))
    done = command(tmp_path, "-c", LISTED + ENTRY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("('mymodule',)\n")
    assert "their-rule" in done.stdout
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    refused = command(elsewhere, "-m", "highway_rl", "train", "their-env")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "unknown environment 'their-env'" in refused.stderr


def test_names_are_words_of_their_own():
    known: Registry[int] = Registry("thing", "things", {"one": 1})
    assert known.add("two", 2) == known.find("two") == 2
    assert known.add("two", 3) == known.find("two") == 3  # a module may be run again
    assert (known.module("one"), known.module("two")) == (None, __name__)
    assert ([*known], known.names(), "two" in known) == (["one", "two"], ["one", "two"], True)
    with pytest.raises(ValueError, match="thing 'one' is built in: give yours another name"):
        known.add("one", 7)
    for bad in ("", "a:b", "a=b", "a,b"):
        with pytest.raises(ValueError, match="give a word without"):
            known.add(bad, 1)
    with pytest.raises(ValueError, match=r"unknown thing 'twoo': did you mean 'two'\?.*module:name"):
        known.find("twoo")
    for name, says in (
        (":x", "give module:name"),
        ("math:", "give module:name"),
        ("math:e.x", "not of Python.s own"),
        ("numpy:e.x", "has no .x."),
    ):
        with pytest.raises(ValueError, match=says):
            known.find(name)


def test_what_is_registered_is_what_it_should_be():
    for register, says in (
        (register_env, "give an Env, a gymnasium.Env class, or a function"),
        (register_algorithm, "give a TargetRule, or a function"),
    ):
        with pytest.raises(ValueError, match=says):
            register("mine", 3)
    for register in (register_network, register_optimizer):
        with pytest.raises(ValueError, match="give a function"):
            register("mine", 3)


def test_a_rule_is_remembered_by_the_module_that_registers_it():
    """Not by the one that made it."""
    register_algorithm("test-rule", highway((1, 4)))
    assert isinstance(ALGORITHMS.find("test-rule")(), TargetRule)
    assert ALGORITHMS.module("test-rule") == __name__
