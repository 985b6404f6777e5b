"""A training folder cannot be fooled: changed configs, lost rows, two writers, places that cannot be written."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from training import COUNTED, after, program, rows, same, until

from highway_rl import runs
from highway_rl.cli.app import main
from highway_rl.runs import checkpoint, folder

RESULTS = Path(__file__).parents[2] / "results"


def test_a_folder_belongs_to_one_config(breaks, tmp_path):
    out = tmp_path / "run"
    short = dataclasses.replace(COUNTED, steps=500)
    runs.fit(short, out)
    assert runs.read_config(out) == short
    with pytest.raises(ValueError, match=r"holds a run already.*`highway-rl resume"):
        runs.fit(short, out)
    for change, says in (
        ({"seeds": 3}, "seeds=2, not 3"),
        ({"settings": short.settings | {"discount": 0.9}}, "settings.discount=None, not 0.9"),
        ({"settings": short.settings | {"capacity": 600}}, "settings.capacity=500, not 600"),
        ({"algos": ("dqn",)}, "algos="),
        ({"preset": "paper"}, "preset='explorer', not 'paper'"),
    ):
        with pytest.raises(ValueError, match=says):
            runs.fit(dataclasses.replace(short, **change), out, resume=True)
    assert runs.read_config(out) == short
    longer = runs.fit(COUNTED, out, resume=True)
    assert longer.step == 1_000
    assert runs.read_config(out) == COUNTED
    np.testing.assert_array_equal(longer.last.learning.params, runs.fit(COUNTED).last.learning.params)
    with pytest.raises(ValueError, match="no training folder"):
        runs.fit(COUNTED, tmp_path / "other", resume=True)


def test_resumed_without_a_sound_checkpoint_begins_again(breaks, tmp_path):
    trained = runs.fit(COUNTED, tmp_path / "whole")
    (tmp_path / "early").mkdir()
    shutil.copy(tmp_path / "whole" / "config.json", tmp_path / "early")
    with pytest.warns(UserWarning, match="holds no sound checkpoint; beginning again at step 0"):
        early = runs.fit(COUNTED, tmp_path / "early", resume=True)
    shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    (program(tmp_path / "damaged") / "step_000000001000" / "manifest.json").write_text("{")
    with pytest.warns(UserWarning, match="damaged") as told:
        runs.fit(COUNTED, tmp_path / "damaged", resume=True, should_stop=after(3))
    assert "step_000000001000 is damaged (unreadable manifest" in str(told[0].message)
    assert "no sound checkpoint: none of 1 can be used; beginning again at step 0" in str(told[1].message)
    assert checkpoint.steps(program(tmp_path / "damaged")) == [300]
    damaged = runs.fit(COUNTED, tmp_path / "damaged", resume=True)
    for again, name in ((early, "early"), (damaged, "damaged")):
        np.testing.assert_array_equal(again.last.learning.params, trained.last.learning.params)
        assert (tmp_path / name / "metrics.csv").read_text() == (tmp_path / "whole" / "metrics.csv").read_text()


@pytest.fixture
def halfway(breaks, tmp_path):
    """A run stopped at step 500, with the checkpoints of 200, 400 and 500."""
    config = dataclasses.replace(COUNTED, keep=3)
    runs.fit(config, tmp_path / "run", should_stop=after(5))
    assert checkpoint.steps(program(tmp_path / "run")) == [200, 400, 500]
    return config, tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "value"), [("seeds", 3), ("steps", 2_000), ("seed", 7), ("preset", "paper"), ("algos", ["dqn"])]
)
def test_an_edited_config_is_refused(halfway, name, value):
    config, out = halfway
    text = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(text | {name: value}))
    for use in (runs.read_config, runs.load, lambda where: runs.fit(config, where, resume=True)):
        with pytest.raises(ValueError, match=r"config\.json was changed after it was written: put the old one back"):
            use(out)


def test_the_config_of_another_run_is_refused(halfway, tmp_path):
    """It is sound in itself, but the checkpoints say whose they are."""
    config, out = halfway
    other = dataclasses.replace(config, seed=7)
    runs.fit(other, tmp_path / "other", should_stop=after(1))
    shutil.copy(tmp_path / "other" / "config.json", out / "config.json")
    says = r"config\.json says seed=7, but its checkpoints were made with 0: put the old config\.json back"
    with pytest.raises(ValueError, match=says):
        runs.fit(other, out, resume=True)
    with pytest.raises(ValueError, match=says):
        runs.load(out)


def test_no_config_at_all(tmp_path):
    for text, says in (("", "no training config"), ("[1]", "no training config"), ("{}", "no training config")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=says):
            runs.read_config(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 5}')
    with pytest.raises(ValueError, match=r"has format 5: .* a newer highway-rl"):
        runs.read_config(tmp_path)


def test_lost_rows_are_noticed(halfway):
    """Cut to two thirds: the newest checkpoint whose rows are all there is used, and the rest is made again."""
    config, out = halfway
    path = out / "metrics.csv"
    sound = path.read_bytes()
    path.write_bytes(sound[: 2 * len(sound) // 3])
    with pytest.warns(UserWarning, match="metrics.csv has lost rows") as told:
        runs.fit(config, out, resume=True)
    assert [str(w.message).split("step_")[1][:12] for w in told] == ["000000000500", "000000000400"]
    assert path.read_bytes()[: len(sound)] == sound
    assert rows(out) == {(a, s): until(1_000) for a in config.algos for s in "01"}


@pytest.mark.parametrize("harm", ["gone", "short", "other"])
def test_rows_that_no_checkpoint_fits_are_an_error(halfway, harm):
    config, out = halfway
    path = out / "metrics.csv"
    sound = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(sound[:300] if harm == "short" else sound.replace(b",0.1,", b",0.7,", 1))
    says = {"gone": "metrics.csv is not there", "short": "metrics.csv has lost rows", "other": "metrics.csv has other"}
    with (
        pytest.warns(UserWarning, match="cannot be used"),
        pytest.raises(ValueError, match=f"{says[harm]}.*which every checkpoint counts on: put .* back, or train again"),
    ):
        runs.fit(config, out, resume=True)
    assert checkpoint.steps(program(out)) == [200, 400, 500]
    path.write_bytes(sound)
    runs.fit(config, out, resume=True)
    assert rows(out)["dqn", "0"] == until(1_000)


HOLD = """
import sys
from pathlib import Path
from highway_rl.runs import folder
with folder.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
def test_one_writer_at_a_time(breaks, tmp_path):
    """The second one ends with a line that names the first; a lock ends with its process, however that ends."""
    config = dataclasses.replace(COUNTED, steps=200)
    out = tmp_path / "run"
    runs.fit(config, out, should_stop=after(1))
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".lock"}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(out)], stdin=-1, stdout=-1, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match=rf"is in use by another training \(process {first.pid}\)"):
            runs.fit(config, out, resume=True)
        assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".lock"} == before
        first.kill()
    assert runs.fit(config, out, resume=True).finished


BUSY = """
import sys, time
from pathlib import Path
from highway_rl import runs
runs.fit(runs.read_config(Path(sys.argv[1])), Path(sys.argv[1]), resume=True,
         should_stop=lambda: bool(time.sleep(0.4)))
"""


@pytest.mark.full
def test_two_processes_into_one_folder(whole, tmp_path, capsys):
    """The first is unharmed: it ends as the run nobody disturbed."""
    config, out = runs.read_config(whole[1]), tmp_path / "run"
    runs.write_config(config, out)
    command = [sys.executable, "-W", "ignore", "-c", BUSY, str(out)]
    with subprocess.Popen(command) as first:
        deadline = time.monotonic() + 200
        while not checkpoint.steps(program(out)):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for words in (["resume", str(out)], ["train", "late", "--out", str(out)]):
            with pytest.raises(SystemExit) as stop:
                main(words)
            error = capsys.readouterr().err
            assert (stop.value.code, error.count("\n")) == (2, 1)
            assert ("is in use by another" if words[0] == "resume" else "holds a run already") in error
        assert first.wait(timeout=200) == 0
    assert (out / "metrics.csv").read_bytes() == (whole[1] / "metrics.csv").read_bytes()
    assert (out / "evaluation.json").read_text() == (whole[1] / "evaluation.json").read_text()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_places_that_cannot_be_written_are_told_before_anything_is_compiled(tmp_path):
    news: list[dict] = []
    (tmp_path / "afile").write_text("")
    for out, says in (
        (tmp_path / "afile", "afile is a file: give --out a folder"),
        (tmp_path / "afile" / "deeper", "afile is a file: give --out a folder"),
        (Path("/proc/x"), r"/proc cannot be written \(.*\): give --out a folder that can"),
    ):
        with pytest.raises(ValueError, match=says):
            runs.fit(COUNTED, out, report=news.append)
    assert news == []


def test_a_read_only_place(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "none", str(tmp_path)]
    if os.name != "posix" or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(ValueError, match="cannot be written"):
            folder.check_folder(COUNTED, tmp_path / "run", resume=False)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


OLD = [path.parent for path in sorted(RESULTS.glob("*/config.json")) if '"format"' not in path.read_text()]


@pytest.mark.parametrize("stored", OLD, ids=lambda path: path.name)
def test_results_of_before_keep_loading(stored, tmp_path):
    """As the same runs: the settings of then, whatever the defaults are now."""
    config = runs.read_config(stored)
    then = json.loads((stored / "config.json").read_text())
    s = runs.setup(dataclasses.replace(config, settings=config.settings | {"capacity": 10_000}))  # to fit in memory
    assert [run.label for run in s.runs] == [algo for algo in then["algos"] for _ in range(then["seeds"])]
    assert s.runs[0].schedule.steps == then["schedule"]["steps"]
    assert (s.runs[0].agent.num_networks, len(s.programs)) == (1, 1)
    assert s.runs[0].agent.discount == (0.996 if then["env"].get("delay") else 0.99)
    assert type(s.runs[0].agent.rule.bootstrap).__name__ == "Greedy"


def test_results_of_before_are_not_written_over(breaks, tmp_path):
    """They came without checkpoints: to resume them would begin again in their place."""
    assert OLD
    out = tmp_path / "copy"
    shutil.copytree(OLD[0], out)
    before = (out / "metrics.csv").read_bytes()
    with pytest.raises(ValueError, match="holds results without checkpoints"):
        runs.fit(runs.read_config(out), out, resume=True)
    checkpoint.save(out / "checkpoints", 100, {"x": np.ones(1)}, {})
    with pytest.raises(ValueError, match="checkpoints of an older version"):
        runs.fit(runs.read_config(out), out, resume=True)
    assert (out / "metrics.csv").read_bytes() == before


def test_results_of_before_are_drawn(tmp_path, capsys):
    shutil.copytree(OLD[0], tmp_path / "copy")
    (tmp_path / "copy" / "curves.png").unlink()
    main(["plot", str(tmp_path / "copy")])
    assert (tmp_path / "copy" / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert "figure: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "then"), [(2, {"rescale": False, "average": 0, "hold": 1}), (3, {"average": 0, "hold": 1}), (4, {})]
)
def test_what_was_trained_by_an_older_preset_goes_on_so(tmp_path, version, then):
    config = runs.Config("late", ("dqn",), settings={"k": 1})
    folder.write_config(config, tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    del found["sha256"]
    (tmp_path / "config.json").write_text(json.dumps(found | {"format": version}))
    assert folder.read_config(tmp_path).settings == then | {"k": 1}
    games = runs.Config("minatar/breakout", ("dqn",))
    assert folder.as_then(games, version) == games


@pytest.mark.long
def test_a_folder_of_an_older_preset_is_resumed_and_loaded(tmp_path):
    """As one is that format 3 wrote: neither config.json nor the checkpoints know of what the preset does since."""
    small = {"capacity": 500, "start": 250, "refresh": 250, "k": 1, "network": "mlp", "batch_size": 8}
    then = {"average": 0, "hold": 1}
    config = runs.Config("late", ("dqn",), steps=1_000, episodes=2, settings=then | small)
    whole = runs.fit(config)
    out = tmp_path / "run"
    runs.fit(config, out, should_stop=after(2))

    def older(found):
        return found | {"settings": {k: v for k, v in found["settings"].items() if k not in then}}

    found = older(json.loads((out / "config.json").read_text()))
    del found["sha256"]
    (out / "config.json").write_text(json.dumps(found | {"format": 3}))
    for path in (out / "checkpoints").rglob(checkpoint.MANIFEST):
        manifest = json.loads(path.read_text())
        del manifest["itself"], manifest["facts"]["format"]
        manifest["facts"]["config"] = older(manifest["facts"]["config"])
        path.write_text(json.dumps({**manifest, "itself": checkpoint._checksum(manifest)}))
    assert runs.load(out).step == 500
    plain = runs.Config("late", ("dqn",), steps=1_000, episodes=2, settings=small)  # as the call was then
    same(runs.fit(plain, out, resume=True).params, whole.params)
    with pytest.raises(ValueError, match=r"was trained with settings.hold=1, not 3"):
        runs.fit(dataclasses.replace(plain, settings=small | {"hold": 3}), out, resume=True)
