"""What a training run writes down: the text of a run is its name everywhere."""

import csv
import dataclasses
import json
import os

import numpy as np
import pytest
from training import COUNTED

from highway_rl import runs
from highway_rl.deep.evaluation import by_algo, half_width


def test_means_and_intervals():
    """By hand: t(0.975; 2) = 4.303; a mean of nothing is none."""
    score = lambda algo, seed, value, broken: {"algo": algo, "seed": seed, "score": value, "broken": broken}  # noqa: E731
    found = by_algo([*(score("a", i, x, None) for i, x in enumerate([1.0, 2.0, 6.0])), score("b", 0, 5.0, 10)])
    assert found["a"]["score"] == 3
    assert found["a"]["half_width"] == pytest.approx(4.30265 * np.sqrt(7 / 3), rel=1e-5)
    assert found["b"] == {"score": None, "half_width": None, "seeds": 0, "broken": [0]}
    assert half_width([1.0]) is None


def test_tensorboard_events(whole):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, out = whole
    found = EventAccumulator(str(out / "tensorboard" / "dqn-1"))
    found.Reload()
    assert {"train/score", "train/loss", "value/bias", "gate/open_1"} <= set(found.Tags()["scalars"])
    assert [e.step for e in found.Scalars("train/loss")] == list(range(300, 1_300, 300))


def test_the_text_of_a_run_is_its_label(breaks, tmp_path):
    """In metrics.csv, TensorBoard's folders and evaluation.json."""
    algos = ("dqn", "n-step-highway-dqn:n=[3,end]", "soft-highway-dqn:depths=1,2,end,alpha=inf,learning_rate=1e-3")
    runs.fit(dataclasses.replace(COUNTED, algos=algos), tmp_path)
    labels = ["dqn", "n-step-highway-dqn:n=3", "n-step-highway-dqn:n=end", algos[2]]
    with (tmp_path / "metrics.csv").open() as file:
        found = [(r["algo"], int(r["seed"])) for r in csv.DictReader(file)]
    assert list(dict.fromkeys(found)) == [(label, seed) for label in labels for seed in (0, 1)]
    stored = json.loads((tmp_path / "evaluation.json").read_text())
    assert list(stored["by_algo"]) == labels
    assert list(dict.fromkeys(r["algo"] for r in stored["scores"])) == labels
    pytest.importorskip("tensorboard")
    assert set(os.listdir(tmp_path / "tensorboard")) == {f"{label}-{seed}" for label in labels for seed in (0, 1)}
