"""Sweeps as data, and as rows that do not depend on who ran them."""

import itertools
import os
import time

import cells
import pytest

from highway_rl.runs import Sweep, status, sweep, trials, write_config
from highway_rl.runs.folder import InUse, claimed, locked
from highway_rl.runs.sweep import Plan, read_spec, seeds_of, write_spec

SMALL = {"capacity": 500, "start": 100, "refresh": 100, "network": "mlp"}


def test_cells_are_grouped_by_the_shape_of_their_program(tmp_path):
    spec = Sweep("late", ["dqn:k=[1,2]", "n-step-dqn:n=3,k=1", "dqn:batch_size=16"], 3, 300, "explorer", {}, SMALL)
    found = Plan(spec, tmp_path).pending([], [])
    assert {batch.algos for batch in found} == {("dqn:k=1", "n-step-dqn:n=3,k=1"), ("dqn:k=2",), ("dqn:batch_size=16",)}
    assert sorted(t.id for batch in found for t in batch.trials) == sorted(t.id for t in spec.trials())


def test_no_program_has_more_than_most_and_the_dearest_comes_first(tmp_path):
    spec = Sweep("late", "dqn", "0-9", 300, "explorer", {}, SMALL, most=4)
    plan = Plan(spec, tmp_path)
    assert [batch.seeds for batch in plan.pending([], [])] == [4, 4, 2]
    two = Sweep(["late", "harvest"], "dqn", 1, 300, "explorer", {}, SMALL)
    plan = Plan(two, tmp_path)
    for slow, fast in itertools.permutations(two.tasks):
        costs = {slow: 2.0, fast: 1.0}
        plan.cost = lambda batch, measured, costs=costs: costs[batch.like.task]
        assert [batch.like.task for batch in plan.pending([], [])] == [slow, fast]


def test_what_is_stored_says_what_cells_cost(tmp_path):
    spec = Sweep("late", "dqn", 2, 300, "explorer", {}, SMALL)
    plan = Plan(spec, tmp_path)
    (batch,) = plan.pending([], [])
    assert plan.cost(batch, {}) > 0
    assert plan.cost(batch, {"late": 0.5}) == 0.5 * 2 * 300


@pytest.mark.parametrize(
    ("given", "found"),
    [("0-2", (0, 1, 2)), ("3", (0, 1, 2)), (2, (0, 1)), ("7,1-2", (1, 2, 7)), (range(5, 7), (5, 6)), ([4, 4], (4,))],
)
def test_seeds(given, found):
    assert seeds_of(given) == found


@pytest.mark.parametrize("given", ["", "a", "3-1", "1-2-3", "-1", [], [-1], 0, True, 2**33])
def test_seeds_that_cannot_be(given):
    with pytest.raises(ValueError, match=r"seeds=.*: give"):
        seeds_of(given)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"algos": "fqn"}, "did you mean 'dqn'"),
        ({"tasks": ()}, "give at least one"),
        ({"tasks": "latte"}, "did you mean 'late'"),
        ({"tasks": [print]}, "find things by name"),
        ({"settings": {"depth": 3}}, "no option 'depth'"),
        ({"most": 0}, "most=0: give"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"steps": 150}, "give a multiple of refresh=100"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(change, says, tmp_path):
    fields = {"tasks": "late", "algos": "dqn", "steps": 300, "preset": "explorer", "settings": SMALL} | change
    with pytest.raises(ValueError, match=says):
        sweep(**fields, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_spec_from_a_file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text('tasks = ["late"]\nalgos = ["dqn:k=[1,2]"]\nseeds = "0-4"\n[settings]\nrefresh = 100\n')
    spec = read_spec(path)
    assert spec == Sweep("late", "dqn:k=[1,2]", range(5), settings={"refresh": 100})
    assert len(spec.trials()) == 10
    for text, says in (("tasks = 3 4", "no TOML"), ("algos = []", "names no tasks"), ('task = ["late"]', "no option")):
        path.write_text(text)
        with pytest.raises(ValueError, match=says):
            read_spec(path)
    with pytest.raises(ValueError, match="is not there"):
        read_spec(tmp_path / "none.toml")


def test_a_preset_file_brings_its_algorithm(tmp_path):
    path = tmp_path / "preset.json"
    path.write_text('{"preset": "explorer", "algo": "dqn:k=2", "settings": {"refresh": 50}}')
    found = Sweep("late", preset=str(path), settings={"start": 100})
    assert (found.preset, found.algos, found.settings) == ("explorer", ("dqn:k=2",), {"refresh": 50, "start": 100})
    assert Sweep("late", "retrace", preset=str(path)).algos == ("retrace",)
    assert Sweep("late").algos == ("soft-highway-dqn",)
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no preset: give a file"):
        Sweep("late", preset=str(path))


@pytest.mark.parametrize(
    "line",
    [
        "tasks = 3",
        'tasks = ["late"]\nsettings = 3',
        'tasks = ["late"]\nsteps = "many"',
        'tasks = ["late"]\nseeds = 1.5',
    ],
)
def test_what_cannot_be_in_a_file_is_said(line, tmp_path):
    (tmp_path / "spec.toml").write_text(line)
    with pytest.raises(ValueError, match=r"(tasks|settings|steps|seeds)=.*: give "):
        read_spec(tmp_path / "spec.toml")


def test_cells_that_another_batch_trains_are_left_to_it(tmp_path):
    """Two sweeps in one folder, of which one has more seeds: claims are of batches, and cells are not trained twice."""
    few, many = (Sweep("late", "dqn", seeds, 100, "explorer", {}, SMALL) for seeds in (2, 4))
    ((one,), (other,)) = (Plan(spec, tmp_path).pending([], []) for spec in (few, many))
    claim = trials.unfinished(tmp_path, f"{one.id}.claim")
    write_spec(few, tmp_path, 1)
    with claimed(claim, {trial.id for trial in one.trials}, one.name):
        assert list(status(tmp_path).running) == [f"{one.name} (compiling)"]
    with claimed(claim, {trial.id for trial in one.trials}), pytest.raises(InUse, match="these cells under way"):
        trials.train(other, tmp_path, {})
    assert sorted(path.name for path in claim.parent.iterdir()) == [".lock", claim.name]
    with claimed(claim.with_name("x.claim"), {trial.id for trial in other.trials}):  # that one has ended
        pass
    cells.train(one, tmp_path, {"seconds": 0.0}, should_stop=lambda: False)  # and is stored
    with pytest.raises(InUse, match="stored in part by now"):
        trials.train(other, tmp_path, {})


def test_status_from_the_folder_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "train", lambda *given, **more: cells.train(*given, **more))
    fields = {"steps": 100, "preset": "general", "settings": {"refresh": 50}}
    bad = Sweep("late", "dqn", 4, most=1, **fields).trials()[2]
    monkeypatch.setattr(cells, "train", _failing(cells.train, bad.id))
    with pytest.raises(ValueError, match="out of luck"):
        sweep("late", "dqn", seeds=4, most=1, out=tmp_path, **fields)
    found = status(tmp_path)
    assert (found.cells, found.done, found.left, found.seconds_left) == (4, 3, 0, 0.0)
    assert found.failed == {"late dqn seed 2": "RuntimeError: out of luck"}
    assert found.best == [("late", "dqn", pytest.approx(4 / 9, rel=1e-4), 3)]
    with locked(trials.unfinished(tmp_path, "abc.claim")):
        assert status(tmp_path).running == {"abc (compiling)": 0}
    assert status(tmp_path).running == {}
    with pytest.raises(ValueError, match="is no sweep"):
        status(tmp_path / "nowhere")


def test_status_of_programs_under_way(tmp_path):
    """Before anything is stored: what is done of them says how long the rest takes."""
    spec = Sweep("late", ["dqn", "retrace"], "0-5", 1000, "explorer", {}, SMALL, most=6)
    write_spec(spec, tmp_path, 1)
    one, _ = Plan(spec, tmp_path).pending([], [])
    work = trials.unfinished(tmp_path, one.id)
    with locked(work.with_name(f"{one.id}.claim")):
        os.utime(work.with_name(f"{one.id}.claim") / ".lock", (time.time() - 100,) * 2)  # it was begun a while ago
        write_config(one.config(), work)
        (work / "metrics.csv").write_text("step,algo,seed\n100,dqn,0\n250,dqn,0\n")
        found = status(tmp_path)
    names = f"{one.algos[0]} and 1 more" if len(one.algos) > 1 else one.algos[0]
    assert found.running == {f"late {names} seeds 0-{one.seeds - 1}": 250}
    runs = len(one.trials)
    assert found.seconds_left == pytest.approx(100 / (250 * runs) * (12 * 1000 - 250 * runs), rel=0.2)
    assert status(tmp_path).seconds_left is None  # nobody trains it


def _failing(train, name):
    def tried(batch, out, facts, *, should_stop):
        return train(batch, out, {"seconds": 0.0, "bad": name}, should_stop=should_stop)

    return tried
