"""The queue of training runs: nothing runs twice, nothing is lost, and the most wanted comes first."""

import contextlib
import time
from pathlib import Path

import pytest

from highway_rl.cli import main as main_command
from highway_rl.experiments import base, main, queue
from highway_rl.runs import again, trials
from highway_rl.runs.folder import locked
from highway_rl.runs.trials import Batch, Trial

RESULTS = Path(__file__).parents[2] / "results"
T = Trial("harvest", "", "dqn", 1, 1_500, 0, "general", 3)


def experiment(name, *stages):
    found = [base.Stage(order, wanted) for order, wanted in stages]
    return base.Experiment(name, "none", "none", lambda rows, out: [], {}, stages=lambda scale, seed, rows: found)


def row(trial, **more):
    return {**trial._asdict(), "id": trial.id, "scale": "smoke", "first_seed": 0, **more}


def test_batches_hold_every_trial_once_and_only_what_one_program_can():
    wanted = [
        T._replace(algo=algo, seed=seed, k=k)
        for k in (1, 2)
        for algo, seeds in (("dqn", (0, 1, 5)), ("retrace", (0, 1)))
        for seed in seeds
    ]
    found = trials.batches(wanted)
    assert sorted(t for batch in found for t in batch.trials) == sorted(wanted)
    assert {(b.like.k, b.algos, b.like.seed, b.seeds) for b in found} == {
        (k, *rest) for k in (1, 2) for rest in ((("dqn", "retrace"), 0, 2), (("dqn",), 5, 1))
    }


def test_no_program_has_too_many_runs():
    found = trials.batches(T._replace(algo=f"n-step-dqn:n={n}", seed=s) for n in range(1, 31) for s in range(5))
    assert sum(len(b.trials) for b in found) == 150
    assert max(len(b.trials) for b in found) <= trials.MOST


def test_names_tell_trials_apart_and_stay():
    others = [
        T._replace(**{name: value}) for name, value in {"seed": 1, "k": 2, "algo": "retrace", "env": "a=1"}.items()
    ]
    assert len({t.id for t in (T, *others)}) == 5
    rows = trials.stored(RESULTS)
    assert rows
    assert all(Trial(*(row[name] for name in Trial._fields)).id == row["id"] for row in rows)


def test_the_most_wanted_comes_first_and_what_is_stored_not_at_all():
    late, soon = T._replace(algo="retrace"), T._replace(algo="n-step-dqn:n=3")
    both = [experiment("one", (5, [late, T]), (1, [soon])), experiment("two", (3, [late]))]
    assert [b.trials for b in queue.pending(both, "smoke", 0, [])] == [[soon], [late], [T]]
    assert [b.trials for b in queue.pending(both, "smoke", 0, [row(soon), row(T)])] == [[late]]
    under_way = [Batch(soon, (soon.algo,), 1)]
    assert [b.trials for b in queue.pending(both, "smoke", 0, [], under_way)] == [[late], [T]]


def done(monkeypatch, fail=(), slow=0.0):
    """Training replaced by a note of what was asked for."""
    ran = []

    def train(batch, out, facts, *, should_stop):
        ran.append(batch.trials)
        time.sleep(slow)
        if batch.like.task in fail:
            raise RuntimeError("out of luck")
        runs = [{"id": t.id, "algo": t.algo, "seed": t.seed} for t in batch.trials]
        t = batch.like
        config = {"task": t.task, "steps": t.steps, "episodes": t.episodes}
        shared = {"config": config, "env": t.env, "k": t.k, "preset": t.preset, "provenance": facts, "step": []}
        trials.ledger.append(trials.ledger_of(out, t), {**shared, "runs": runs})
        return True

    monkeypatch.setattr(trials, "train", train)
    return ran


def test_what_failed_is_named_and_stops_nothing(tmp_path, monkeypatch):
    ran = done(monkeypatch, fail={"lock"})
    bad, good = T._replace(task="lock"), T
    with pytest.raises(ValueError, match=r"lock.*RuntimeError: out of luck.*run the same again"):
        queue.work([experiment("one", (1, [bad]), (2, [good]))], "smoke", 0, tmp_path)
    assert ran == [[bad], [good]]
    assert [r["id"] for r in trials.stored(tmp_path)] == [good.id]


def test_little_time_begins_nothing(tmp_path, monkeypatch):
    ran = done(monkeypatch)
    assert not queue.work([experiment("one", (1, [T]))], "smoke", 0, tmp_path, minutes=1 + 1e-6)
    assert ran == []


@pytest.mark.parametrize("minutes", [-1, 0, 0.5, 1])
def test_a_limit_that_nothing_can_keep_is_refused(tmp_path, minutes):
    with pytest.raises(ValueError, match="minutes"):
        queue.work([experiment("one", (1, [T]))], "smoke", 0, tmp_path, minutes=minutes)


def test_what_another_process_trains_is_left_to_it(tmp_path):
    batch = Batch(T, ("dqn",), 1)
    folder = tmp_path / trials.FOLDER / "unfinished" / batch.id
    said = []
    with locked(folder), contextlib.suppress(ValueError):
        assert not queue.work([experiment("one", (1, [T]))], "smoke", 0, tmp_path, say=said.append)
    assert any("elsewhere" in text for text in said)


def test_the_second_stage_follows_from_the_first():
    """The main comparison: the screen chooses, and what it chose is trained."""
    size = main.SIZES["quick"]
    (first,) = main.stages("quick", 0, [])
    assert len(first.trials) == len(size.ks) * 8
    rows = [row(t, training=float(i), broken=None) for i, t in enumerate(first.trials)]
    finals = {t for stage in main.stages("quick", 0, rows)[1:] for t in stage.trials}
    assert {t.seed for t in finals} == {0, 1, 2}
    assert len(finals) == 18
    assert main.chosen(rows, size, main.INN, 0)[main.LATE]["n-step DQN"] == ("n-step-dqn:n=end", 2)
    assert main.stages("quick", 0, rows[:-1]) == [first]  # an incomplete screen chooses nothing


def test_an_ablation_alone_has_the_screen_made_first():
    gate, size = base.find("gate"), main.SIZES["quick"]
    screen = main.screen(size, main.LATE, main.INN, 0)
    first = [t for batch in queue.pending([gate], "quick", 0, []) for t in batch.trials]
    assert set(first) == set(screen)
    rows = [row(t, training=float(t.k), broken=None) for t in screen]
    then = [t for batch in queue.pending([gate], "quick", 0, rows) for t in batch.trials]
    assert {(t.k, t.steps) for t in then} == {(2, 8_000)}
    assert len(then) == 15


def test_the_screen_chooses_the_best_and_one_for_all():
    size = main.SIZES["paper"]

    def score(t):
        best = {"minatar/asterix": 2, "minatar/breakout": 4}.get(t.task, 1)
        return 10.0 * (t.k == best) + (t.k == 2) + 0.1 * (t.algo == "n-step-dqn:n=8")

    rows = [row(t, training=score(t)) for task in size.tasks for t in main.screen(size, task, main.DELAYED, 0)]
    found = main.chosen(rows, size, main.DELAYED, 0)
    assert [found[f"minatar/{g}"]["Soft Highway DQN"].k for g in main.GAMES] == [2, 4, 1, 1, 1]
    assert found["minatar/freeway"]["n-step DQN"] == ("n-step-dqn:n=8", 1)
    assert main.for_all(rows, size, main.DELAYED, 0)["DQN"].k == 1
    assert main.for_all(rows[:-1], size, main.DELAYED, 0) is None
    seeds = {t.seed for stage in main.stages("paper", 0, rows)[5:] for t in stage.trials if t.steps == 5_000_000}
    assert seeds == set(range(10))
    assert not seeds & {t.seed for t in main.screen(size, "x", "", 0)}


@pytest.mark.full
def test_a_trial_made_again_is_the_same(tmp_path):
    one = experiment("one", (1, [T, T._replace(algo="retrace")]))
    assert queue.work([one], "smoke", 0, tmp_path)
    assert not (tmp_path / trials.FOLDER / "unfinished").exists() or not any(
        (tmp_path / trials.FOLDER / "unfinished").iterdir()
    )
    before, now = again.rerun(tmp_path, T.id)
    for name in ("greedy", "exploring", "training", "score", "bias", "value"):
        assert before[name] == now[name]
    with pytest.raises(ValueError, match="no stored run"):
        again.rerun(tmp_path, "nothing")


@pytest.mark.parametrize(
    ("change", "says"), [({}, "all numbers are the same"), ({"greedy": -1.0}, "other numbers: greedy")]
)
def test_the_command_that_makes_a_run_again(monkeypatch, capsys, change, says):
    """It says first what that takes, and where numbers may be others; it fails where they are."""
    monkeypatch.setenv("HIGHWAY_RL_COMMIT", "here")
    row = next(row for row in trials.stored(RESULTS) if row["id"] == "22740ce6")
    monkeypatch.setattr(again, "rerun", lambda out, name, report: (row, row | change))
    with pytest.raises(SystemExit) if change else contextlib.nullcontext():
        main_command(["run", "main", "--cell", "22740ce6", "--out", str(RESULTS)])
    told = capsys.readouterr().out
    code = f"git worktree add ../highway-rl-{row['commit']} {row['commit']}"
    for words in (says, "of 20 that a program trained", row["task"], code, f"run main --cell 22740ce6 --out {RESULTS}"):
        assert words in told


@pytest.mark.parametrize(
    ("name", "cell", "of"),
    [("gate", "22740ce6", "main, retrace-weights, chooser, deep"), ("main", "19169e07", "gate, depth, deep")],
)
def test_a_run_of_another_experiment_is_refused(monkeypatch, capsys, name, cell, of):
    monkeypatch.setattr(again, "rerun", lambda out, name, report: pytest.fail("it is trained"))
    with pytest.raises(SystemExit):
        main_command(["run", name, "--cell", cell, "--out", str(RESULTS)])
    assert f"cell '{cell}' is none of {name}'s: give one of {of} as EXPERIMENT" in capsys.readouterr().err


def test_every_stored_run_is_of_an_experiment():
    """And of each that has it in its tables."""
    every = queue.every_row(RESULTS)
    by_name = {e.name: {row["id"] for row in queue.rows_of(e, RESULTS)} for e in queue.deep()}
    assert {row["id"] for row in every} == set().union(*by_name.values())
    for name in ("19169e07", "22740ce6", "ac977038"):
        assert queue.of_which(RESULTS, name) == [of for of, ids in by_name.items() if name in ids]


@pytest.mark.full
def test_what_time_cut_off_goes_on_and_is_the_same(tmp_path):
    batch, calls = Batch(T, ("dqn",), 1), iter([False, True])
    assert trials.train(batch, tmp_path / "whole", {})
    assert not trials.train(batch, tmp_path / "cut", {}, should_stop=lambda: next(calls))
    assert trials.stored(tmp_path / "cut") == []
    assert trials.train(batch, tmp_path / "cut", {})
    drop = {"seconds", "date", "resumed"}
    (whole,), (cut,) = (trials.stored(tmp_path / name) for name in ("whole", "cut"))
    assert {k: v for k, v in whole.items() if k not in drop} == {k: v for k, v in cut.items() if k not in drop}
    assert (whole["resumed"], cut["resumed"]) == (False, True)
