"""Programs: runs of equal shape are one, and a run does not notice the others in it."""

import csv
import dataclasses

import numpy as np
import pytest
from training import CONFIG, COUNTED, after, program, rows, until

from highway_rl import runs
from highway_rl.core.bootstrap import Double
from highway_rl.runs import checkpoint


def programs(*algos: str, **config) -> list[list[str]]:
    """The labels of each program."""
    s = runs.setup(dataclasses.replace(COUNTED, algos=algos, seeds=1, **config))
    return [[label for label, _ in program.labels] for program in s.programs]


def test_runs_of_equal_shape_are_one_program():
    found = programs(
        "dqn",
        "n-step-dqn",
        "retrace",
        "n-step-highway-dqn:n=3",
        "soft-highway-dqn:alpha=[0,0.0005,0.005,inf]",
        "dqn:learning_rate=[0.001,0.01]",
        "dqn:discount=0.9,epsilon_end=0.01",
    )
    assert [len(labels) for labels in found] == [11]


@pytest.mark.parametrize(
    "other",
    [
        "dqn:k=2",
        "maxmin-dqn",
        "dqn:loss=squared",
        "dqn:optimizer=adam",
        "dqn:bootstrap=double",
        "double-dqn",
        "dqn:refresh=50",
        "dqn:batch_size=16",
        "dqn:network=mlp",
        "dqn:capacity=600",
    ],
)
def test_what_makes_another_program(other):
    assert programs("dqn", other, "n-step-dqn") == [["dqn", "n-step-dqn"], [other]]


def test_programs_share_what_they_can():
    found = programs("dqn:k=[1,2]", "n-step-dqn:k=[1,2]", "double-dqn", "dqn:bootstrap=double,learning_rate=0.1")
    assert found == [
        ["dqn:k=1", "n-step-dqn:k=1"],
        ["dqn:k=2", "n-step-dqn:k=2"],
        ["double-dqn", "dqn:bootstrap=double,learning_rate=0.1"],
    ]


def test_a_run_in_a_program_has_its_own_numbers():
    algos = (
        "soft-highway-dqn:alpha=[0,0.5]",
        "dqn:discount=0.9",
        "n-step-dqn:n=2,learning_rate=0.1",
        "retrace:lam=0.3",
    )
    s = runs.setup(dataclasses.replace(COUNTED, algos=algos, seeds=2))
    (program,) = s.programs
    for i, run in enumerate(s.runs):
        mine = program.one({place: values[i] for place, values in program.own.items()})
        rule = mine.rules[program.which(i)]
        assert type(rule.trace) is type(run.agent.rule.trace)
        assert rule.backup.depths == run.agent.rule.backup.depths
        for name in ("discount", "learning_rate", "epsilon_end"):
            assert float(getattr(mine, name)) == np.float32(getattr(run.agent, name))
        assert float(rule.backup.depth_alpha) == np.float32(run.agent.rule.backup.depth_alpha)
    assert [int(key) for key in np.asarray(program.keys._base_array)[:, -1]] == [0, 1] * 5


def test_only_a_rule_that_doubles_keeps_older_networks():
    s = runs.setup(dataclasses.replace(COUNTED, algos=("dqn", "double-dqn"), seeds=1))
    assert [program.shapes().learning.older is None for program in s.programs] == [True, False]
    assert isinstance(s.programs[1].agent.rules[0].bootstrap, Double)


def test_programs_train_in_turn_into_one_folder(breaks, tmp_path):
    algos = ("dqn", "dqn:k=2", "n-step-dqn", "dqn:refresh=200,start=200")
    trained = runs.fit(dataclasses.replace(COUNTED, algos=algos, report_every=200), tmp_path)
    assert trained.finished
    order = ["dqn", "n-step-dqn", "dqn:k=2", "dqn:refresh=200,start=200"]
    assert rows(tmp_path) == {(algo, seed): until(1_000)[1::2] for algo in order for seed in "01"}
    assert list(dict.fromkeys(algo for algo, _ in rows(tmp_path))) == order
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["program_0", "program_1", "program_2"]
    assert [r["algo"] for r in trained.scores[::4]] == list(algos)  # in the order they were asked for


@pytest.mark.long
def test_a_run_does_not_depend_on_the_others(whole, tmp_path):
    """soft-highway-dqn alone, and beside dqn: the same rows, but for the order in which floats are added."""
    config = dataclasses.replace(CONFIG, algos=("soft-highway-dqn",), seeds=1, steps=600)
    runs.fit(config, tmp_path)
    found = []
    for out in (tmp_path, whole[1]):
        with (out / "metrics.csv").open() as file:
            mine = [r for r in csv.DictReader(file) if (r["algo"], r["seed"]) == ("soft-highway-dqn", "0")]
        found.append([{k: float(v) for k, v in r.items() if k != "algo"} for r in mine if int(r["step"]) <= 600])
    assert len(found[0]) == len(found[1]) == 2
    for alone, among in zip(*found, strict=True):
        for name, value in alone.items():
            np.testing.assert_allclose(among[name], value, rtol=2e-3, atol=1e-5, err_msg=name)


TWO = dataclasses.replace(COUNTED, algos=("dqn", "dqn:k=2"), seeds=1)


@pytest.mark.long
def test_more_steps_go_on_with_every_program(breaks, tmp_path):
    """Stopped in the first of two that had ended, neither has lost what it had, and no row stands twice."""
    runs.fit(TWO, tmp_path)
    longer = dataclasses.replace(TWO, steps=2_000)
    stopped = runs.fit(longer, tmp_path, resume=True, should_stop=after(3))
    assert (stopped.step, stopped.finished) == (1_300, False)
    assert checkpoint.steps(program(tmp_path, 1)) == [1_000]
    assert runs.fit(longer, tmp_path, resume=True).finished
    assert rows(tmp_path) == {("dqn", "0"): until(2_000), ("dqn:k=2", "0"): until(2_000)}


def test_what_came_after_rows_that_are_made_again_is_made_again(breaks, tmp_path):
    runs.fit(dataclasses.replace(TWO, keep=3), tmp_path)
    before = (tmp_path / "metrics.csv").read_text()
    newest = sorted(program(tmp_path, 0).iterdir())[-1]
    (newest / "manifest.json").write_text("{}")
    with pytest.warns(UserWarning, match="made again"), pytest.warns(UserWarning, match="damaged"):
        assert runs.fit(dataclasses.replace(TWO, keep=3), tmp_path, resume=True).finished
    assert (tmp_path / "metrics.csv").read_text() == before


def test_nothing_is_left_to_do_after_a_program_that_broke(breaks, tmp_path):
    breaks[0, 0] = 350
    runs.fit(dataclasses.replace(TWO, algos=("dqn", "dqn:k=2"), seed=0), tmp_path)
    kept = {number: checkpoint.steps(program(tmp_path, number)) for number in (0, 1)}
    before = (tmp_path / "metrics.csv").read_text()
    runs.fit(TWO, tmp_path, resume=True)
    assert {number: checkpoint.steps(program(tmp_path, number)) for number in (0, 1)} == kept
    assert (tmp_path / "metrics.csv").read_text() == before
