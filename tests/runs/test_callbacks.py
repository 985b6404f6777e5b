"""Those who listen while agents train: they hear everything, and may have heard enough."""

import sys
import types

import jax
import numpy as np
import pytest
from training import SMALL

import highway_rl
from highway_rl import runs
from highway_rl.runs.callbacks import Pruning, TargetScore, WeightsAndBiases

SETTINGS = SMALL | {"k": 1}


def rows(*scores, episodes=50):
    return [{"algo": "dqn", "seed": i, "score": s, "episodes": episodes, "step": 10} for i, s in enumerate(scores)]


def test_a_target_is_reached_by_the_last_episodes_of_every_run():
    target = TargetScore(10, episodes=100)
    said = [
        target.on_report({"phase": "training"}),
        target.on_report({"rows": rows(20, 20)}),  # too few episodes
        target.on_report({"rows": rows(20, 2)}),
        target.on_report({"rows": rows(20, 9)}),  # the first ones of the second run are forgotten
        target.on_report({"rows": rows(0, 20)}),
        target.on_report({"rows": rows(0, 20, episodes=0)}),
    ]
    assert said == [False, False, True, False, True, True]


class Enough:
    def __init__(self, at):
        self.at, self.heard = at, []

    def on_report(self, news):
        self.heard.append(news)
        return news.get("step", 0) >= self.at


@pytest.fixture(autouse=True)
def _single():
    with jax.enable_x64(False):
        yield


@pytest.mark.long
def test_enough_ends_the_training_and_it_is_evaluated(tmp_path):
    listener = Enough(200)
    config = runs.Config("late", ("dqn",), steps=400, settings=SETTINGS, episodes=2, report_every=100)
    trained = runs.fit(config, tmp_path / "run", callbacks=[listener])
    assert trained.step == 200
    assert trained.scores
    assert [news["phase"] for news in listener.heard if "phase" in news] == ["compiling", "training", "evaluating"]
    assert highway_rl.load(tmp_path / "run").step == 200
    assert runs.fit(config, tmp_path / "run", resume=True).step == 400


@pytest.mark.long
def test_an_agent_learns_on_as_if_it_had_not_stopped(tmp_path):
    """In memory and from a folder: the same networks as those of one long run."""
    options = {"algo": "dqn", "episodes": 2, **SETTINGS}
    whole = highway_rl.train("late", steps=400, **options)
    part = highway_rl.train("late", steps=200, **options)
    assert part.learn(200) is part
    highway_rl.train("late", steps=200, out=tmp_path / "run", **options)
    loaded = highway_rl.load(tmp_path / "run").learn(200)
    for other in (part, loaded):
        assert other.step == 400
        for x, y in zip(jax.tree.leaves(whole.params), jax.tree.leaves(other.params), strict=True):
            np.testing.assert_array_equal(x, y)
    part.save(tmp_path / "one.agent")
    with pytest.raises(ValueError, match=r"came without its store: train it with out=FOLDER"):
        highway_rl.load(tmp_path / "one.agent").learn(100)


def test_what_cannot_listen_is_refused():
    with pytest.raises(ValueError, match=r"callbacks=.*: give objects with a method on_report"):
        highway_rl.train("late", "dqn", steps=200, callbacks=[print], **SETTINGS)


def test_other_peoples_tools_hear_the_numbers(monkeypatch):
    logged = []
    run = types.SimpleNamespace(log=lambda numbers, step: logged.append((step, numbers)))
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **options: run))
    WeightsAndBiases(project="mine").on_report({"rows": rows(3.0)})
    assert logged == [(10, {"dqn seed 0/score": 3.0, "dqn seed 0/episodes": 50})]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"install it with `pip install 'highway-rl\[wandb\]'`"):
        WeightsAndBiases()

    class Pruned(Exception):
        pass

    monkeypatch.setitem(sys.modules, "optuna", types.SimpleNamespace(TrialPruned=Pruned))
    told = []
    trial = types.SimpleNamespace(
        report=lambda score, step: told.append((score, step)), should_prune=lambda: len(told) > 1
    )
    pruning = Pruning(trial)
    pruning.on_report({"step": 100, "rows": rows(1.0, 2.0)})
    pruning.on_report({"phase": "evaluating"})
    with pytest.raises(Pruned):
        pruning.on_report({"step": 200, "rows": rows(1.0)})
    assert told == [(1.5, 100), (1.0, 200)]
