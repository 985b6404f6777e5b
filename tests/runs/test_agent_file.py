"""Agents as files: what comes back, in another process too; damage of every kind; what is refused, and how."""

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import same

import highway_rl
from highway_rl import registry, runs
from highway_rl.core.targets import highway
from highway_rl.deep import dqn
from highway_rl.deep.algorithms import ALGORITHMS, register_algorithm
from highway_rl.deep.networks import NETWORKS, register_network
from highway_rl.envs import register_env
from highway_rl.envs.registry import ENVS
from highway_rl.runs import agent_file, spec_json
from highway_rl.runs.agent_file import KEY, ZEROS
from highway_rl.types import Env, Spec

BIT = jax.ShapeDtypeStruct((3,), np.dtype(bool))


def fresh(task="late", algo="dqn", spec=None, **settings):
    """An agent that learned nothing."""
    s = runs.setup(runs.Config(task, (algo,), settings={"network": "mlp", **settings}))
    run, spec = s.runs[0], spec or s.env.spec
    params = jax.jit(lambda: dqn.start(run.agent, spec, jax.random.key(3)).params)()
    return runs.TrainedAgent(s.config, spec, run.agent, params, run.label, 0, 0, None)


def tiny(spec, key):
    return eqx.nn.MLP(spec.observation.shape[0], spec.num_actions, 2, 1, key=key)


@pytest.fixture
def registered():
    """Names that a test may add, gone after it."""
    kinds = (ALGORITHMS, NETWORKS, ENVS)
    before = [(dict(kind.known), dict(kind.added)) for kind in kinds]
    yield
    for kind, (known, added) in zip(kinds, before, strict=True):
        kind.known, kind.added = known, added


@pytest.fixture(scope="module")
def small():
    """The bytes of an agent of few numbers, and the agent."""
    register_network("tiny-of-files", tiny)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield fresh(network="tiny-of-files")
    del NETWORKS.known["tiny-of-files"], NETWORKS.added["tiny-of-files"]


def header(content):
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def forged(content, change):
    """The file with other facts, under a checksum that holds."""
    found, rest = header(content)
    facts = json.loads(found["__metadata__"][KEY])
    facts = change(facts) or facts
    found["__metadata__"][KEY] = json.dumps({"sha256": ZEROS.decode()} | facts | {"sha256": ZEROS.decode()})
    return sealed(found, rest)


def sealed(found, rest):
    text = json.dumps(found, separators=(",", ":")).encode()
    whole = len(text).to_bytes(8, "little") + text + rest
    return whole.replace(ZEROS, hashlib.sha256(whole).hexdigest().encode(), 1)


def test_what_is_saved_comes_back(whole, tmp_path):
    for label in whole[0].setup.labels:
        agent = highway_rl.load(whole[1], run=label)
        path = agent.save(tmp_path / "made" / "agent.safetensors")
        again = highway_rl.load(path)
        same(again.params, agent.params)
        assert jax.tree.structure(again.params) == jax.tree.structure(agent.params)
        for name in ("spec", "label", "seed", "step", "score", "metrics"):
            assert getattr(again, name) == getattr(agent, name), name
        assert again.config == dataclasses.replace(agent.config, preset="explorer")
        assert repr(again) == repr(agent)
        obs = np.random.default_rng(0).random((5, *agent.spec.observation.shape)).astype(agent.spec.observation.dtype)
        np.testing.assert_array_equal(again.q_values(obs), agent.q_values(obs))
        assert again.evaluate(episodes=3) == agent.evaluate(episodes=3)
        other = again.save(tmp_path / "again.safetensors")
        assert other.read_bytes() == path.read_bytes()  # the same agent, the same bytes
    assert sorted(x.name for x in (tmp_path / "made").iterdir()) == ["agent.safetensors"]


def test_it_tells_how_the_run_did(whole, tmp_path):
    """What was measured in training goes along, whether the agent comes from memory or from a folder."""
    mine, kept = runs.best(whole[0]), highway_rl.load(whole[1])
    assert [test["epsilon"] for test in mine.metrics["tests"]] == pytest.approx([0.0, 0.1])
    assert mine.metrics["tests"] == kept.metrics["tests"]
    assert mine.metrics["tests"][0]["score"] == mine.score
    assert (kept.metrics["training"]["step"], sorted(kept.metrics)) == (1_200, ["tests", "training"])
    again = highway_rl.load(kept.save(tmp_path / "a"))
    assert again.metrics == kept.metrics


NEW_PROCESS = """
import sys, json
import numpy as np
import highway_rl
agent = highway_rl.load(sys.argv[1])
obs = np.load(sys.argv[2])
np.save(sys.argv[3], agent.q_values(obs))
assert "highway_rl.integrations" not in sys.modules
print(json.dumps([agent.act(one) for one in obs]))
"""


def test_a_new_process_acts_the_same(whole, tmp_path):
    agent = highway_rl.load(whole[1], run="soft-highway-dqn")
    obs = np.random.default_rng(0).random((50, *agent.spec.observation.shape)).astype(agent.spec.observation.dtype)
    np.save(tmp_path / "obs.npy", obs)
    words = [agent.save(tmp_path / "agent"), tmp_path / "obs.npy", tmp_path / "q.npy"]
    done = subprocess.run(
        [sys.executable, "-c", NEW_PROCESS, *map(str, words)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(highway_rl.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [agent.act(one) for one in obs]
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), agent.q_values(obs))


def test_one_at_a_time_is_as_many_at_once(whole):
    agent = highway_rl.load(whole[1])
    obs = np.random.default_rng(1).random((40, *agent.spec.observation.shape)).astype(agent.spec.observation.dtype)
    assert [agent.act(one) for one in obs] == agent.act(obs).tolist() == agent.q_values(obs).argmax(axis=1).tolist()
    assert agent.act(obs[0].tolist()) == agent.act(jnp.asarray(obs[0])) == agent.act(obs[0].astype(np.float64))
    assert agent.act(obs[0], epsilon=0) == agent.act(obs[0])


class Pair(NamedTuple):
    left: object
    right: object


def test_observations_of_every_form(tmp_path):
    nature = jax.ShapeDtypeStruct((2, 2), np.dtype(np.uint8))
    real = jax.ShapeDtypeStruct((), jnp.bfloat16)
    delayed = runs.setup(runs.Config("late", env={"delay": "end"})).env.spec.observation
    trees = [BIT, {"b": BIT, "a": {"c": nature, "d": ()}}, (BIT, [nature, real]), {3: BIT, 1: BIT}, Pair(BIT, delayed)]
    for tree in trees:
        again = spec_json.tree_from_json(json.loads(json.dumps(spec_json.tree_to_json(tree))))
        assert again == tree
        assert jax.tree.structure(again) == jax.tree.structure(tree)
        agent = fresh(spec=Spec("odd", tree, 3, None, 7))
        back = highway_rl.load(agent.save(tmp_path / "agent"))
        assert back.spec == agent.spec
        same(back.params, agent.params)
    obs = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), tree)
    np.testing.assert_array_equal(back.q_values(obs), agent.q_values(obs))
    with pytest.raises(ValueError, match=r"observation holds a \w+: give a tree of dicts"):
        fresh(spec=Spec("odd", {"a": BIT, "b": None}, 3)).save(tmp_path / "agent")


def test_classes_that_are_not_here(small, tmp_path):
    path = small.save(tmp_path / "agent")
    for kind in (
        "no.such:Pair",
        "subprocess:Popen",
        "highway_rl.types:Env",
        "highway_rl.types:nothing",
        "builtins:exec",
    ):
        spec = {"class": kind, "fields": {"left": spec_json.tree_to_json(BIT)}}
        path.write_bytes(forged(path.read_bytes(), lambda f, spec=spec: f["spec"].update(observation=spec)))
        with pytest.raises(ValueError, match=r": (call `import|give a name it has|give one of a module of yours)"):
            highway_rl.load(path)


def test_the_environment_may_be_gone(registered, tmp_path, monkeypatch):
    """Its name, and even the module that registered it; the algorithm and the network have to be there."""
    (tmp_path / "worlds_of_mine.py").write_text(
        "from highway_rl import make, register_env\nregister_env('my-world', lambda: make('late', length=6))\n"
    )
    (tmp_path / "nets_of_mine.py").write_text(
        "import highway_rl\nfrom highway_rl.deep.networks import mlp\n"
        "highway_rl.register_network('my-net', mlp)\n"
        "highway_rl.register_algorithm('my-rule', lambda n=3: highway_rl.highway(n))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = ("worlds_of_mine", "nets_of_mine")
    for module in modules:
        highway_rl.registry.bring(module)
    agent = fresh("my-world", "my-rule:n=4", network="my-net")
    path = agent.save("agent")
    found, _ = header(path.read_bytes())
    assert set(json.loads(found["__metadata__"][KEY])["config"]["imports"]) == set(modules)

    def forget(*which):
        for module in which:
            sys.modules.pop(module, None)
        for kind in (ALGORITHMS, NETWORKS, ENVS):
            for name in [n for n, module in kind.added.items() if module in which]:
                del kind.known[name], kind.added[name]

    forget(*modules)
    (tmp_path / "worlds_of_mine.py").unlink()
    registry._named.clear()  # as in a new process
    with pytest.raises(ValueError, match=r"names code .*, worlds_of_mine, nets_of_mine: .*--import nets_of_mine"):
        highway_rl.load(path)
    assert "nets_of_mine" not in sys.modules
    again = highway_rl.load(path, imports=["nets_of_mine"])
    obs = np.ones(agent.spec.observation.shape, agent.spec.observation.dtype)
    np.testing.assert_array_equal(again.q_values(obs), agent.q_values(obs))
    assert again.evaluate(highway_rl.make("late", length=6), episodes=2)["length"] == 6
    with pytest.raises(ValueError, match="unknown environment 'my-world'"):
        again.evaluate(episodes=2)
    forget("nets_of_mine")
    (tmp_path / "nets_of_mine.py").unlink()
    with pytest.raises(ValueError, match=r"module '\w+_of_mine' cannot be imported .*: run this where it can be found"):
        highway_rl.load(path, imports=modules)


def test_a_file_runs_no_code_that_its_reader_did_not_name(small, tmp_path, monkeypatch):
    """Neither by importing a module, nor by calling a name of one that is there already."""
    (tmp_path / "traps_of_mine.py").write_text(
        "open('sprung', 'w').close()\ndef net(*_): open('sprung', 'w').close()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    content = small.save(tmp_path / "agent").read_bytes()

    def network(facts):
        facts["config"]["settings"]["network"] = "traps_of_mine:net"

    def algorithm(facts):
        facts.update(label="traps_of_mine:net")

    def module(facts):
        facts["config"]["imports"] = ["traps_of_mine"]

    for change in (network, algorithm):
        (tmp_path / "agent").write_bytes(forged(content, change))
        with pytest.raises(ValueError, match=r"names code .*, traps_of_mine: give imports=.* if you trust it"):
            highway_rl.load("agent")
    (tmp_path / "agent").write_bytes(forged(content, module))
    assert highway_rl.load("agent").label == small.label  # not needed, so not imported
    (tmp_path / "agent").write_bytes(forged(content, lambda f: f["config"]["settings"].update(network="numpy:ones")))
    with pytest.raises(ValueError, match=r"names code .*, numpy: give"):
        highway_rl.load("agent")
    assert not (tmp_path / "sprung").exists()
    assert "traps_of_mine" not in sys.modules


def test_what_only_a_script_has(registered, tmp_path):
    """A name that no module brings back is asked for."""
    register_algorithm("of-a-script", highway(3))
    ALGORITHMS.added["of-a-script"] = "__main__"
    path = fresh(algo="of-a-script").save(tmp_path / "agent")
    assert highway_rl.load(path).label == "of-a-script"
    del ALGORITHMS.known["of-a-script"]
    with pytest.raises(ValueError, match=r"unknown algorithm 'of-a-script'.*import the module that registers it first"):
        highway_rl.load(path)


def test_an_environment_that_came_as_an_object(registered, tmp_path):
    made = highway_rl.make("late", length=6)
    env = Env(dataclasses.replace(made.spec, name="an-object"), made.reset, made.step)
    agent = fresh(register_env("an-object", env) and env)
    again = highway_rl.load(agent.save(tmp_path / "agent"))
    assert again.evaluate(env, episodes=2) == agent.evaluate(env, episodes=2)


def test_refused_in_one_line(small, tmp_path):
    path = small.save(tmp_path / "agent")
    content = path.read_bytes()
    found, rest = header(content)
    other = {k: v for k, v in found.items() if k != "__metadata__"}
    text = json.dumps(other).encode()
    cases = [
        (forged(content, lambda f: {**f, "format": 3}), r"agent has format 3: install a newer highway-rl"),
        (content[:-1], r"agent is damaged, its checksum does not hold: give a sound copy, or save the agent again"),
        (content + b"0", r"agent is damaged, its checksum does not hold"),
        (content[:300], r"agent is no agent, or a damaged one: give a file that agent\.save wrote"),
        (b"", r"agent is no agent, or a damaged one"),
        (b"hello", r"agent is no agent, or a damaged one"),
        (len(text).to_bytes(8, "little") + text + rest, r"agent is no agent, or a damaged one"),
        (
            forged(content, lambda f: f.pop("spec") and None),
            r"agent is no agent that version .* \(KeyError: 'spec'\): give a file",
        ),
        (forged(content, lambda f: {**f, "label": "dqn:k=3"}), r"holds networks .* its algorithm makes .*: use the"),
        (forged(content, lambda f: {**f, "step": -1}), r"step=-1: give a whole number >= 0"),
        (forged(content, lambda f: {**f, "label": "dqm"}), r"unknown algorithm 'dqm': did you mean 'dqn'"),
    ]
    for bad, says in cases:
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=says) as caught:
            highway_rl.load(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(
        ValueError, match=r"nowhere is not there: give a file that agent\.save wrote, or a training folder"
    ):
        highway_rl.load(tmp_path / "nowhere")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run='dqn': give None: .* holds one agent"):
        highway_rl.load(path, run="dqn")
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))} is a folder: give a file, such as"):
        small.save(tmp_path)
    with pytest.raises(ValueError, match=r"has observations bool.* actions, the agent .*: give an environment like"):
        highway_rl.load(path).evaluate("minatar/breakout", episodes=2)


def mutants(content, rng, count):
    """Files that were cut, flipped, swapped, and whose metadata were edited."""
    size = len(content)
    text = int.from_bytes(content[:8], "little")
    for i in range(count):
        bad = bytearray(content)
        at, other = (
            int(x) for x in rng.integers(size if i % 2 else text + 8, size=2)
        )  # the header as often as the rest
        kind = i % 5
        if kind == 0:
            bad = bad[:at]
        elif kind == 1:
            bad[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            width = int(rng.integers(1, 9))
            bad[at : at + width] = rng.bytes(width)
        elif kind == 3:
            width = int(rng.integers(1, 64))
            bad[at : at + width], bad[other : other + width] = bad[other : other + width], bad[at : at + width]
        else:
            digits = [j for j in range(8, 8 + text) if chr(bad[j]).isalnum()]
            bad[digits[int(rng.integers(len(digits)))]] = ord("7")
        yield bytes(bad)


def loads_equal_or_refuses(path, content, agent):
    """What a file was refused with, or None."""
    path.write_bytes(content)
    try:
        again = highway_rl.load(path)
    except ValueError as error:
        return str(error)
    same(again.params, agent.params)
    return None


def test_a_thousand_damaged_files(small, tmp_path, monkeypatch):
    """Each is refused, or was not damaged at all; nothing that is in a damaged file is imported or built."""
    path = small.save(tmp_path / "agent")
    content = path.read_bytes()
    touched = []
    monkeypatch.setattr(agent_file, "_kept", lambda path, facts, tensors: touched.append(facts))
    bad = [one for one in mutants(content, np.random.default_rng(0), 1_100) if one != content][:1_000]
    assert len(bad) == 1_000
    refused = sum(loads_refused(path, one) for one in bad)
    assert (refused, touched) == (1_000, [])


def loads_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is (no agent|damaged).*: give|has format \d+: install") as caught:
        highway_rl.load(path)
    return "\n" not in str(caught.value)


ODD = (None, True, -1, 0, 7, 2**70, 1.5, float("nan"), "", "x", "dqn:k=[1,2]", "os:system", [], [1], {}, {"a": 1}, [[]])


def test_forged_files(small, tmp_path, monkeypatch):
    """Facts of a wrong kind under a checksum that holds: refused too, or the networks are the same. No name in a file
    is called that is not an algorithm or a network."""
    monkeypatch.setattr(os, "system", lambda *_: pytest.fail("called"))
    path = small.save(tmp_path / "agent")
    content = path.read_bytes()
    facts = json.loads(header(content)[0]["__metadata__"][KEY])
    places = [(key,) for key in facts] + [(k, inner) for k in ("config", "spec") for inner in facts[k]]
    places += [("config", "settings", "network"), ("spec", "observation", "shape"), ("spec", "observation", "dtype")]
    rng = np.random.default_rng(1)

    def put(facts, place, value):
        for key in place[:-1]:
            facts = facts[key]
        facts[place[-1]] = value

    trials = [(place, ODD[i]) for place in places for i in rng.choice(len(ODD), 5, replace=False)]
    trials += [(("config", "settings", "network"), "os:system"), (("label",), "os:system")]
    refused = [
        loads_equal_or_refuses(path, forged(content, lambda f, p=p, v=v: put(f, p, v)), small) for p, v in trials
    ]
    told = [text for text in refused if text is not None]
    assert 0.3 < len(told) / len(trials) < 0.95
    assert all(": " in text and "\n" not in text for text in told)
    found, rest = header(content)
    for name, change in (
        ("small", {"dtype": "F64"}),
        ("small", {"shape": [2]}),
        ("small", {"data_offsets": [0, 9**9]}),
    ):
        worse = {**found, name: {**found[name], **change}}
        worse["__metadata__"] = {KEY: json.dumps({**facts, "sha256": ZEROS.decode()})}
        assert loads_equal_or_refuses(path, sealed(worse, rest), small)


def test_a_write_that_fails_leaves_what_was_there(small, tmp_path, monkeypatch):
    path = small.save(tmp_path / "agent")
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fresh().save(path)
    assert path.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == ["agent"]


def test_a_file_from_before_values_had_units(tmp_path):
    """Its networks have neither unit nor floor; it acts as it did."""
    agent = fresh(rescale=False)
    path = agent.save(tmp_path / "agent.safetensors")

    def older(facts):
        del facts["config"]["settings"]["rescale"]
        return {**facts, "format": 1}

    path.write_bytes(forged(path.read_bytes(), older))
    like = jax.tree.leaves(agent.spec.observation)[0]
    obs = np.ones((3, *like.shape), like.dtype)
    np.testing.assert_array_equal(runs.load(path).q_values(obs), agent.q_values(obs))
