"""Trained agents as objects: which one is meant, what it answers, what it refuses."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from training import CONFIG, COUNTED, after, same

import highway_rl
from highway_rl import runs
from highway_rl.envs import make_env
from highway_rl.runs import agents as module


@pytest.fixture
def folder(whole):
    return whole[1]


@pytest.fixture
def obs():
    """Three observations of the task, the first of them at its beginning."""
    shape = runs.setup(CONFIG).env.spec.observation
    return np.random.default_rng(0).random((3, *shape.shape)).astype(shape.dtype)


def test_the_best_run_by_default(whole, folder):
    rows = [r for r in json.loads((folder / "evaluation.json").read_text())["scores"] if r["epsilon"] == 0]
    best = max(rows, key=lambda r: r["score"])
    agent = highway_rl.load(folder)
    assert (agent.label, agent.seed, agent.score) == (best["algo"], best["seed"], best["score"])
    assert agent.step == 1_200
    again = runs.best(whole[0])
    assert (again.label, again.seed) == (agent.label, agent.seed)
    same(agent.params, again.params)
    assert agent.label in repr(agent)


def test_which_run_is_meant(whole, folder):
    labels = whole[0].setup.labels
    for number, label in enumerate(labels):
        one, other = highway_rl.load(folder, run=number), highway_rl.load(folder, run=label)
        assert (one.label, one.seed) == (other.label, other.seed) == label
        same(one.params, other.params)
        mine = [p[number] for p in (module.jax.tree.leaves(whole[0].params[0]))]
        same(one.params, module.jax.tree.unflatten(module.jax.tree.structure(one.params), mine))
    assert highway_rl.load(folder, run="soft-highway-dqn").label == "soft-highway-dqn"
    for wrong, says in (
        (4, "run=4: give a whole number from 0 to 3"),
        (-1, "run=-1: give a whole number from 0 to 3"),
        (("dqn", 7), "run=('dqn', 7): give one of ('dqn', 0)"),
        ("dqm", "unknown run 'dqm': did you mean 'dqn'?"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            highway_rl.load(folder, run=wrong)


def test_a_broken_run_is_never_the_best(whole):
    scores = [float("nan"), None, -3.0, -5.0]
    assert module._number(whole[0].setup, scores, None) == 2
    assert module._number(whole[0].setup, [None] * 4, None) == 0


def test_it_acts_and_values(folder, obs):
    agent = highway_rl.load(folder)
    actions = agent.spec.num_actions
    one, batch = agent.q_values(obs[0]), agent.q_values(obs)
    assert (one.shape, batch.shape) == ((actions,), (3, actions))
    np.testing.assert_allclose(batch[0], one, rtol=1e-5)
    assert isinstance(agent.act(obs[0]), int)
    assert agent.act(obs).tolist() == np.argmax(batch, axis=-1).tolist()
    assert agent.act(obs[0]) == agent.act(obs)[0]
    many = agent.act(np.repeat(obs[:1], 2_000, axis=0), epsilon=1.0, rng=np.random.default_rng(0))
    assert np.bincount(many, minlength=actions) == pytest.approx(np.full(actions, 2_000 / actions), rel=0.15)
    shape = re.escape(str(obs[0].shape))
    for wrong in (obs[0][:-1], obs[None], np.zeros(()), obs[:, :-1]):
        with pytest.raises(ValueError, match=f"obs has shape .*: give {shape}, or that with one more axis in front"):
            agent.act(wrong)
    with pytest.raises(ValueError, match=r"epsilon=1.5"):
        agent.act(obs[0], epsilon=1.5)


def test_it_is_evaluated_as_the_run_was(whole, folder):
    """Greedy play in a task without chance has one score, whatever the seed; the two ways to it agree."""
    rows = {(r["algo"], r["seed"]): r for r in whole[0].scores if r["epsilon"] == 0}
    for label in whole[0].setup.labels:
        found = highway_rl.load(folder, run=label).evaluate(episodes=4, seed=3)
        assert found["score"] == pytest.approx(rows[label]["score"], abs=1e-6)
        assert (found["episodes"], found["length"], found["cut_off"]) == (4, rows[label]["length"], 0)
    s, params, step, broken = runs.load_all(folder)
    assert (step, broken) == (1_200, {})
    assert runs.evaluate(s, params, episodes=CONFIG.episodes) == whole[0].scores


def test_another_environment(folder):
    agent = highway_rl.load(folder)
    longer = make_env("late", length=8)
    wanted = [str(list(x.shape)) for x in (agent.spec.observation, longer.spec.observation)]
    if wanted[0] == wanted[1]:
        assert agent.evaluate(longer, episodes=2)["length"] == 8
    with pytest.raises(ValueError, match=r"has observations .* actions, the agent .*: give an environment like"):
        agent.evaluate("minatar/breakout", episodes=2)
    with pytest.raises(ValueError, match="task is a dict: give a name, module:name"):
        agent.evaluate({}, episodes=2)
    with pytest.raises(ValueError, match="episodes=0"):
        agent.evaluate(episodes=0)


def test_what_is_stopped_can_be_loaded(breaks, tmp_path):
    runs.fit(COUNTED, tmp_path, should_stop=after(5))
    agent = highway_rl.load(tmp_path, run=3)
    assert (agent.step, agent.label, agent.seed) == (500, "soft-highway-dqn", 1)


def test_train_returns_the_best_agent(tmp_path):
    settings = CONFIG.settings | {"k": 1}
    agent = highway_rl.train(
        "late",
        ("dqn", "soft-highway-dqn"),
        steps=300,
        seeds=2,  # as in `whole`, so that its program can be used again
        episodes=5,
        preset="explorer",
        env=CONFIG.env,
        out=tmp_path / "a",
        **settings,
    )
    assert agent.step == 300
    assert runs.read_config(tmp_path / "a") == dataclasses.replace(
        runs.Config("late", ("dqn", "soft-highway-dqn")),
        steps=300,
        seeds=2,
        episodes=5,
        preset="explorer",
        env=CONFIG.env,
        settings=settings,
    )
    again = highway_rl.load(tmp_path / "a")
    assert (again.label, again.seed) == (agent.label, agent.seed)
    same(again.params, agent.params)


def test_a_damaged_evaluation_leaves_the_scores_of_training(whole, tmp_path):
    shutil.copytree(whole[1], tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").write_text('{"scores": [{"algo"')
    agent = runs.load(tmp_path / "run")
    assert agent.score is not None
    assert (agent.label, agent.seed) in whole[0].setup.labels
