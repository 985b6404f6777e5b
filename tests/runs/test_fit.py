"""Training: stopped, killed, resumed is the same run to the bit; broken runs end, the others go on."""

import csv
import dataclasses
import errno
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from training import CONFIG, COUNTED, after, program, rows, same, until

from highway_rl import runs
from highway_rl.deep import loop
from highway_rl.deep.evaluation import by_algo
from highway_rl.runs import checkpoint

TWO = dataclasses.replace(CONFIG, algos=("dqn", "dqn:batch_size=16"), seeds=1, steps=600, report_every=200, episodes=2)
"""Two programs."""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """An uninterrupted run of two programs."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        out = tmp_path_factory.mktemp("two") / "run"
        return runs.fit(TWO, out), out


def test_stopped_and_resumed_is_the_same_run(whole, tmp_path):
    trained, out = whole
    first = runs.fit(CONFIG, tmp_path, should_stop=after(5))
    assert first.step == 500
    assert not first.finished
    again = runs.fit(CONFIG, tmp_path, resume=True)
    same(again.last, trained.last)
    assert again.scores == trained.scores
    assert (tmp_path / "metrics.csv").read_bytes() == (out / "metrics.csv").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize(
    "periods", [pytest.param(3, marks=pytest.mark.full), 6, pytest.param(9, marks=pytest.mark.full)]
)
def test_stopped_and_resumed_across_programs(two, tmp_path, periods):
    """In the first program, at its very end, in the second: then to the end, as if nobody had stopped it."""
    trained, out = two
    first = runs.fit(TWO, tmp_path, should_stop=after(periods))
    assert not first.finished
    assert (len(first.params), first.step) == ((2, 300) if periods == 9 else (1, 100 * periods))
    again = runs.fit(TWO, tmp_path, resume=True)
    assert again.finished
    same(again.params, trained.params)
    same(again.last, trained.last)
    assert again.scores == trained.scores
    assert (tmp_path / "metrics.csv").read_bytes() == (out / "metrics.csv").read_bytes()


KILLED = """
import sys, time
from pathlib import Path
from highway_rl import runs
runs.fit(runs.read_config(Path(sys.argv[1])), Path(sys.argv[1]), resume=True,
         should_stop=lambda: bool(time.sleep(float(sys.argv[2]))))
"""


def resumed(out: Path, pause: float) -> subprocess.Popen:
    """A process that goes on with a run, and takes a breath after every period."""
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", KILLED, str(out), str(pause)])


def same_end(out: Path, whole: tuple[runs.Trained, Path]) -> None:
    """The last checkpoint and the rows are those of the run nobody disturbed."""
    path, facts = checkpoint.latest(program(out))
    assert facts["period"] == 12
    same(checkpoint.load(path, runs.setup(CONFIG).programs[0].shapes()), whole[0].last)
    assert (out / "metrics.csv").read_bytes() == (whole[1] / "metrics.csv").read_bytes()


@pytest.mark.long
def test_killed_while_it_trains(whole, tmp_path):
    """SIGKILL at some moment after the second checkpoint, then resumed: it ends as the run nobody disturbed."""
    runs.write_config(CONFIG, tmp_path)
    with resumed(tmp_path, 0.2) as process:
        deadline = time.monotonic() + 200
        while not checkpoint.steps(program(tmp_path))[1:]:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(random.random() / 2)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    runs.fit(CONFIG, tmp_path, resume=True)
    same_end(tmp_path, whole)


@pytest.mark.full
@pytest.mark.parametrize("kills", [2, 10])
def test_killed_at_random_moments(whole, tmp_path, kills):
    """SIGKILL, resume, and so on: networks, store, curve and key end as those of the run nobody disturbed.

    The moments are spread at random over ten seconds from the start of a process: while it imports, compiles, restores,
    trains or saves, before the first checkpoint or after it.
    """
    runs.write_config(CONFIG, tmp_path)
    rng = random.Random(kills)
    moments = [10 * (i + rng.random()) / kills for i in range(kills)]
    rng.shuffle(moments)
    for moment in [*moments, None]:
        with resumed(tmp_path, 0 if moment is None else 0.4) as process:
            if moment is None:
                assert process.wait(timeout=300) == 0
                break
            time.sleep(moment)
            process.kill()
            assert process.wait() in (0, -signal.SIGKILL)
    same_end(tmp_path, whole)


@pytest.mark.full
def test_killed_in_the_second_program(two, tmp_path):
    """SIGKILL between two checkpoints of the second program; rows written after the last one are made again."""
    trained, out = two
    runs.write_config(TWO, tmp_path)
    with resumed(tmp_path, 0.3) as process:
        deadline = time.monotonic() + 200
        while not checkpoint.steps(program(tmp_path, 1))[2:]:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert len(checkpoint.steps(program(tmp_path, 1))) >= 3
    assert not (tmp_path / "evaluation.json").exists()
    again = runs.fit(TWO, tmp_path, resume=True)
    same(again.params, trained.params)
    assert (tmp_path / "metrics.csv").read_bytes() == (out / "metrics.csv").read_bytes()
    assert (tmp_path / "evaluation.json").read_text() == (out / "evaluation.json").read_text()


@pytest.mark.long
def test_programs_make_the_rows_their_runs_make_alone(two, tmp_path):
    """Nothing of the second program reaches the first."""
    runs.fit(dataclasses.replace(TWO, algos=TWO.algos[:1]), tmp_path)
    alone, among = ((out / "metrics.csv").read_text().splitlines() for out in (tmp_path, two[1]))
    assert among[: len(alone)] == alone
    assert {line.split(",")[1] for line in among[len(alone) :]} == {"dqn:batch_size=16"}


@pytest.mark.full
def test_without_the_store(tmp_path):
    """A smaller checkpoint; the resumed run fills its store before it learns again."""
    config = dataclasses.replace(CONFIG, save_store=False)
    first = runs.fit(config, tmp_path, should_stop=after(5))
    kept = jax.device_get(first.last.learning.params)
    again = runs.fit(config, tmp_path, resume=True, should_stop=after(1))
    assert again.step == 600
    same(again.last.learning.params, kept)
    assert int(again.last.store.rows.real[0].sum()) == 100
    assert runs.fit(config, tmp_path, resume=True).step == 1_200


def test_what_is_written(whole):
    _, out = whole
    with (out / "metrics.csv").open() as file:
        found = list(csv.DictReader(file))
    assert len(found) == 4 * 4
    assert {(r["algo"], r["seed"]) for r in found} == {(a, s) for a in CONFIG.algos for s in ("0", "1")}
    last = [r for r in found if r["algo"] == "soft-highway-dqn"][-1]
    shares = [float(last[k]) for k in ("won_gate", "won_1", "won_2", "won_end")]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert float(last["open_1"]) == 1.0
    assert 0 <= float(last["open_end"]) <= 1
    assert float(last["ratio_1"]) <= 1
    assert runs.read_config(out) == CONFIG
    stored = json.loads((out / "config.json").read_text())["provenance"]
    assert {"commit", "date", "device", "jax", "version"} <= set(stored)


def test_evaluation(whole):
    """Greedy rows and rows at the training ε, run by run, in the file as in the result."""
    trained, out = whole
    scores = runs.evaluate(trained.setup, trained.params, episodes=7)
    assert [(r["algo"], r["seed"]) for r in scores] == [label for label in trained.setup.labels for _ in range(2)]
    assert [r["epsilon"] for r in scores] == [0.0, 0.1] * 4
    assert all(r["length"] == 6 and r["cut_off"] == 0 and 0.2 <= round(r["score"], 6) <= 1 for r in scores)
    greedy = [r for r in scores if r["epsilon"] == 0]
    assert all(r["half_width"] == 0 for r in greedy)  # nothing is left to chance
    assert by_algo(scores)["dqn"]["seeds"] == 2
    cut = runs.evaluate(trained.setup, trained.params, episodes=3, max_steps=4, broken={1: 300})
    assert all(r["cut_off"] == 3 for r in cut)
    assert [r["broken"] for r in cut] == [None, None, 300, 300, None, None, None, None]
    assert by_algo(cut)["dqn"]["broken"] == [1]
    stored = json.loads((out / "evaluation.json").read_text())
    assert stored["scores"] == trained.scores == runs.evaluate(trained.setup, trained.params, episodes=5)
    assert stored["by_algo"] == by_algo(trained.scores)
    assert stored["by_algo_training_epsilon"] == by_algo(trained.scores, greedy=False)
    assert (stored["step"], stored["of"]) == (1_200, 1_200)


def test_each_broken_run_keeps_its_checkpoint_and_ends_its_rows(breaks, tmp_path):
    breaks |= {(0, 1): 350, (1, 0): 730}
    news: list[dict] = []
    trained = runs.fit(COUNTED, tmp_path / "run", report=news.append)
    assert [(x["algo"], x["seed"], x["step"], x["checkpoint"]) for x in trained.stopped] == [
        ("dqn", 1, 350, 200),
        ("soft-highway-dqn", 0, 730, 600),
    ]
    assert "dqn seed 1 stopped at step 350" in runs.sentence(trained.stopped[0])
    assert "loss nan" in runs.sentence(trained.stopped[0])
    assert "the checkpoint of step 200 is kept" in runs.sentence(trained.stopped[0])
    assert checkpoint.steps(program(tmp_path / "run")) == [200, 600, 1_000]
    whole = {("dqn", "0"): until(1000), ("soft-highway-dqn", "1"): until(1000)}
    assert rows(tmp_path / "run") == whole | {("dqn", "1"): until(300), ("soft-highway-dqn", "0"): until(700)}
    reported = [(row["algo"], row["seed"]) for row in [x for x in news if "rows" in x][-1]["rows"]]
    assert reported == [("dqn", 0), ("soft-highway-dqn", 1)]
    assert {r["broken"] for r in trained.scores[2:4]} == {350}
    assert runs.load_all(tmp_path / "run")[3] == {1: 350, 2: 730}

    # stopped and resumed in between: nothing is announced twice, and nothing kept is lost
    runs.fit(COUNTED, tmp_path / "two", should_stop=after(5))
    news = []
    again = runs.fit(COUNTED, tmp_path / "two", report=news.append, resume=True)
    assert [x["stopped"]["step"] for x in news if "stopped" in x] == [730]
    assert repr(again.stopped) == repr(trained.stopped)
    assert checkpoint.steps(program(tmp_path / "two")) == [200, 600, 1_000]
    assert (tmp_path / "two" / "metrics.csv").read_text() == (tmp_path / "run" / "metrics.csv").read_text()


def test_a_break_before_the_first_checkpoint_saves_one(breaks, tmp_path):
    breaks[0, 1] = 50
    config = dataclasses.replace(COUNTED, checkpoint_every=500)
    trained = runs.fit(config, tmp_path / "run")
    assert trained.stopped[0]["checkpoint"] == 100
    assert checkpoint.steps(program(tmp_path / "run")) == [100, 1_000]
    assert ("dqn", "1") not in rows(tmp_path / "run")

    def killed(news):
        if news.get("step") == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.fit(config, tmp_path / "killed", report=killed)
    runs.fit(config, tmp_path / "killed", resume=True)
    assert (tmp_path / "killed" / "metrics.csv").read_text() == (tmp_path / "run" / "metrics.csv").read_text()


def test_all_broken_ends_the_program(breaks, tmp_path):
    breaks |= {(0, 0): 250, (0, 1): 250, (1, 0): 50, (1, 1): 420}
    trained = runs.fit(COUNTED, tmp_path)
    assert trained.step == 500
    again = runs.fit(COUNTED, tmp_path, resume=True)
    assert again.step == 500
    assert repr(again.stopped) == repr(sorted(trained.stopped, key=lambda x: x["run"]))


def test_all_broken_in_one_program_leaves_the_next_its_turn(breaks, tmp_path):
    """And a resumed run does not train the first one again."""
    breaks |= {(0, 0): 250, (0, 1): 250}
    config = dataclasses.replace(COUNTED, algos=("dqn", "n-step-dqn:batch_size=16,n=3", "dqn:batch_size=16"))
    breaks |= {(1, 0): 450}
    trained = runs.fit(config, tmp_path / "run")
    assert trained.finished
    assert [(x["run"], x["step"]) for x in trained.stopped] == [(0, 250), (1, 250), (2, 250), (3, 250), (4, 450)]
    runs.fit(config, tmp_path / "two", should_stop=after(6))
    again = runs.fit(config, tmp_path / "two", resume=True)
    assert repr(again.stopped) == repr(trained.stopped)
    assert (tmp_path / "two" / "metrics.csv").read_text() == (tmp_path / "run" / "metrics.csv").read_text()


def test_no_checkpoint_is_promised_that_is_not_there(breaks, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    breaks[0, 1] = 350
    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.warns(UserWarning, match="no checkpoint at step [2468]00|1000"):
        trained = runs.fit(COUNTED, tmp_path)
    assert "there is no checkpoint of it" in runs.sentence(trained.stopped[0])
    assert "there is no checkpoint of it" in runs.sentence(runs.fit(COUNTED).stopped[0])


def test_speed_leaves_compiling_out(breaks, monkeypatch):
    """A second of it, for a first hundred steps that take no time."""
    advance = loop.advance
    monkeypatch.setattr(loop, "advance", lambda *words: time.sleep(1) or advance(*words))
    news: list[dict] = []
    runs.fit(COUNTED, report=news.append)
    told = next(x for x in news if "speed" in x)
    assert told["speed"] > 2 * told["step"]


def test_phases_are_told_in_their_order(breaks):
    news: list[dict] = []
    runs.fit(dataclasses.replace(COUNTED, algos=("dqn", "dqn:k=2")), report=news.append)
    phases = [x["phase"] for x in news if "phase" in x]
    assert phases == ["compiling", "compiling", "training", "compiling", "training", "evaluating"]
    assert news[0]["memory"] > 0
    assert news[0]["seconds"] > 0
