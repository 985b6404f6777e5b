"""The search: it goes on where it was interrupted, prunes, writes a preset, and says whether that is better."""

import importlib
import json
import signal
import subprocess
import sys
import time
import types

import optuna
import pytest
from cells import wait_for

from highway_rl.envs import make_env
from highway_rl.runs import Config, text, tune
from highway_rl.runs.config import build
from highway_rl.runs.presets import DEFAULT, with_file

module = importlib.import_module("highway_rl.runs.tune")
FIELDS = {"steps": 1000, "episodes": 2}


@pytest.fixture
def quick(monkeypatch):
    """Training replaced by a score that is the learning rate; slow learners report as such, and are pruned."""
    seen = types.SimpleNamespace(texts=[], stop_at=None, factor=1000.0)

    def fit(config, callbacks=()):
        (algo,) = config.algos
        seen.texts.append(algo)
        if seen.stop_at == len(seen.texts):
            raise KeyboardInterrupt
        score = 1000 * text.parse(algo)[0].options["learning_rate"]
        for step in range(100, 1001, 100):
            for one in callbacks:
                one.on_report({"step": step, "rows": [{"score": score, "episodes": 3}] * config.seeds})
        return types.SimpleNamespace(scores=[{"score": score, "epsilon": 0.0}] * config.seeds)

    def sweep(task, algos, *, seeds, **options):
        assert min(seeds) >= module.FRESH
        seen.fresh = (algos, len(seeds))
        gain = {algos[0]: 0.0, algos[1]: seen.factor}
        return [{"algo": algo, "seed": s, "greedy": gain[algo] + s % 3} for algo in algos for s in seeds]

    monkeypatch.setattr(module, "fit", fit)
    monkeypatch.setattr(module, "sweep", sweep)
    return seen


def study(out):
    return optuna.load_study(study_name="tune", storage=f"sqlite:///{out / module.STUDY}")


@pytest.mark.long
def test_a_search_begins_with_the_default_prunes_and_writes_a_preset(quick, tmp_path):
    found = tune("late", out=tmp_path, trials=12, fresh=4, **FIELDS)
    first, *others = quick.texts
    assert first.startswith(f"{DEFAULT}:depths=1,2,end,alpha=0.005,k=2,learning_rate=0.0005,refresh=250")
    assert len(others) == 11
    assert {trial.state.name for trial in study(tmp_path).trials} == {"COMPLETE", "PRUNED"}
    assert found.text == max(quick.texts, key=lambda t: text.parse(t)[0].options["learning_rate"])
    assert quick.fresh == ((DEFAULT, found.text), 4)
    assert found.verdict == "better than the default"
    stored = json.loads(found.preset.read_text())
    assert (stored["algo"], stored["tuned"]["verdict"]) == (found.text, found.verdict)
    assert with_file(str(found.preset), (), {"k": 1}) == ("general", (found.text,), {"k": 1})
    assert with_file(str(found.preset), ("dqn",))[1] == ("dqn",)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.0, "not better than the default"), (-9.0, "worse than the default")]
)
def test_what_is_not_better_is_said_not_to_be(quick, tmp_path, factor, verdict):
    quick.factor = factor
    assert tune("late", out=tmp_path, trials=2, fresh=6, **FIELDS).verdict == verdict


@pytest.mark.long
def test_an_interrupted_search_goes_on(quick, tmp_path):
    quick.stop_at = 4
    with pytest.raises(KeyboardInterrupt):
        tune("late", out=tmp_path, trials=6, **FIELDS)
    lost = quick.texts[3]
    assert [trial.state.name for trial in study(tmp_path).trials].count("RUNNING") == 1
    quick.stop_at = None
    tune("late", out=tmp_path, trials=6, **FIELDS)
    assert quick.texts[4] == lost  # what was under way comes first
    ended = [trial.state.name for trial in study(tmp_path).trials]
    assert ended.count("COMPLETE") + ended.count("PRUNED") == 6
    assert len(quick.texts) == 7
    tune("late", out=tmp_path, trials=6, **FIELDS)  # nothing is left to try
    assert len(quick.texts) == 7
    with pytest.raises(ValueError, match="holds a search with steps=1000, not 2000: give another --out"):
        tune("late", out=tmp_path, trials=6, steps=2000)


def test_what_the_default_refuses_is_refused_before_the_search(quick, tmp_path):
    """It is trained at the end, for the comparison."""
    with pytest.raises(ValueError, match="steps=100: give a multiple of refresh=250"):
        tune("late", out=tmp_path, steps=100)
    assert not quick.texts


@pytest.mark.full
def test_a_signal_to_the_command_and_the_same_command_again(tmp_path):
    """The real thing, small: the search goes on with what was under way, and ends with a preset."""
    out, log = tmp_path / "tune", tmp_path / "log"
    words = [sys.executable, "-m", "highway_rl", "tune", "late", "--set", "length=4", "--steps", "250", "--trials", "2"]
    words += ["--seeds", "1", "--fresh", "1", "--episodes", "1", "--out", str(out)]
    with log.open("w") as file:
        begun = subprocess.Popen(words, stderr=file, stdout=subprocess.DEVNULL)
        wait_for(lambda: "trial 0: " in log.read_text())
        time.sleep(0.2)  # the next one is asked for; to trace its program takes longer
        begun.send_signal(signal.SIGINT)
        assert begun.wait() == 2
    assert log.read_text().endswith("highway-rl: interrupted: run the same command again to go on\n")
    first, lost = study(out).trials
    assert (first.state.name, lost.state.name) == ("COMPLETE", "RUNNING")
    said = subprocess.run(words, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[-1] == f"preset: {out / module.PRESET}"
    assert (out / module.PRESET).exists()
    before, failed, again = study(out).trials
    assert (before.number, before.value, before.datetime_complete) == (0, first.value, first.datetime_complete)
    assert (failed.state.name, again.state.name, again.params) == ("FAIL", "COMPLETE", lost.params)


def test_every_text_of_the_space_is_a_run():
    base = Config("late", steps=1000)
    for _ in range(5):
        trial = optuna.create_study(sampler=optuna.samplers.RandomSampler()).ask()
        (wanted,) = text.parse(module.suggested(trial, base))
        build(base, make_env("late"), wanted)
    with pytest.raises(ValueError, match="steps=333: give a multiple"):
        module.space(Config("late", steps=333))


def test_without_optuna_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"pip install 'highway-rl\[tune\]'"):
        tune("late", out=tmp_path)


@pytest.mark.parametrize("given", [{"trials": 0}, {"seeds": 0}, {"fresh": 0}, {"capacity": 3}])
def test_bad_input_is_refused(given, tmp_path):
    with pytest.raises(ValueError, match=r": (give|choose)"):
        tune("late", out=tmp_path, **given)
