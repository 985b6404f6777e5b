"""Checkpoints: damage is noticed, a full disk leaves the last good one, only the newest and the pinned are kept."""

import dataclasses
import errno
import json
import os
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import CONFIG, COUNTED, program, same

from highway_rl import runs
from highway_rl.runs import checkpoint


@pytest.mark.parametrize(
    "harm",
    ["truncate", *(pytest.param(harm, marks=pytest.mark.full) for harm in ("flip", "remove", "manifest")), "bit"],
)
def test_damaged_newest_checkpoint(whole, tmp_path, harm):
    """The one before is used, with a warning that names the damaged one; the end is the same."""
    trained, out = whole
    shutil.copytree(out, tmp_path / "run")
    folder = program(tmp_path / "run")
    newest = folder / sorted(os.listdir(folder))[-1]
    victim = max(
        (p for p in newest.rglob("*") if p.is_file() and "manifest" not in p.name), key=lambda p: p.stat().st_size
    )
    if harm == "truncate":
        victim.write_bytes(victim.read_bytes()[:-7])
    elif harm == "flip":
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(bytes(data))
    elif harm == "remove":
        victim.unlink()
    elif harm == "bit":  # 12 periods become 13: the run would end a period early, and say nothing
        text = (newest / "manifest.json").read_text()
        assert text.count('"period": 12') == 1
        (newest / "manifest.json").write_text(text.replace('"period": 12', '"period": 13'))
    else:
        (newest / "manifest.json").write_text('{"step": 12')
    with pytest.warns(UserWarning, match=newest.name):
        again = runs.fit(CONFIG, tmp_path / "run", resume=True)
    same(again.last, trained.last)
    assert (tmp_path / "run" / "metrics.csv").read_text() == (out / "metrics.csv").read_text()


def test_one_bit_of_a_manifest(tmp_path):
    """Every bit of the file counts, and so does the folder's name."""
    path = checkpoint.save(tmp_path, 3800, {"x": jnp.arange(4.0)}, {"period": 38, "pending": [], "stopped": []})
    assert checkpoint.damage(path) is None
    manifest = path / "manifest.json"
    sound = manifest.read_bytes()
    one_bit = sound.replace(b'"period": 38', b'"period": 18')
    assert one_bit != sound
    manifest.write_bytes(one_bit)
    assert "does not match its checksum" in (checkpoint.damage(path) or "")
    rng = np.random.default_rng(0)
    for place in rng.choice(len(sound), 60, replace=False):
        harmed = bytearray(sound)
        harmed[place] ^= 1 << int(rng.integers(7))
        manifest.write_bytes(bytes(harmed))
        try:
            unharmed = json.loads(bytes(harmed)) == json.loads(sound)  # a space that became another one
        except ValueError:
            unharmed = False
        assert unharmed or checkpoint.damage(path) is not None, (place, bytes(harmed))
    manifest.write_bytes(sound)
    path.rename(tmp_path / "step_000000003900")
    assert checkpoint.damage(tmp_path / "step_000000003900") is not None


def test_no_sound_checkpoint_is_an_error(tmp_path):
    with pytest.raises(checkpoint.Missing, match=r"no sound checkpoint$"):
        checkpoint.latest(tmp_path)


def test_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    tree = {"x": jax.numpy.arange(4.0)}
    checkpoint.save(tmp_path, 1, tree, {"period": 1})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, 2, tree, {"period": 2})
    assert checkpoint.steps(tmp_path) == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["step_000000000001"]
    assert checkpoint.latest(tmp_path)[1] == {"period": 1}


def test_training_goes_on_without_room_for_checkpoints(breaks, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.warns(UserWarning, match="no checkpoint at step"):
        assert runs.fit(dataclasses.replace(COUNTED, steps=200), tmp_path).step == 200


def test_only_the_newest_are_kept_and_a_pinned_one(tmp_path):
    for step in range(1, 7):
        checkpoint.save(tmp_path, step, {"x": jax.numpy.ones(2)}, {"period": step}, keep=2, pinned={1, 3})
    assert checkpoint.steps(tmp_path) == [1, 3, 5, 6]
    checkpoint.save(tmp_path, 4, {"x": jax.numpy.ones(2)}, {"period": 4}, keep=2)  # back again, after damage
    assert checkpoint.steps(tmp_path) == [3, 4]


RAISED = [
    OSError(errno.ENOSPC, "No space left on device"),
    ValueError('RESOURCE_EXHAUSTED: Error writing "0000/.zarray": No space left on device [os_error_code=28]'),
]


@pytest.mark.parametrize("error", RAISED, ids=["OSError", "ValueError"])
def test_a_full_disk_is_a_warning(breaks, tmp_path, monkeypatch, error):
    """However Orbax says it: training goes on, and the last good checkpoint is in place."""
    import orbax.checkpoint as ocp

    save = ocp.StandardCheckpointer.save

    def full_after_400(self, path, *rest, **more):
        if int(path.parent.name[-12:]) > 400:
            raise error
        save(self, path, *rest, **more)

    monkeypatch.setattr(ocp.StandardCheckpointer, "save", full_after_400)
    with pytest.warns(UserWarning, match="no checkpoint at step") as told:
        assert runs.fit(COUNTED, tmp_path).step == 1_000
    says = "no checkpoint at step {}: [Errno 28] No space left on device; the ones before are in place"
    assert [str(w.message) for w in told] == [says.format(step) for step in (600, 800, 1_000)]
    assert [p.name for p in program(tmp_path).iterdir()] == ["step_000000000400"]
    assert checkpoint.latest(program(tmp_path))[1]["period"] == 4


def test_a_really_full_disk(tmp_path, capfd):
    """On a disk of 200 kB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(tmp_path)]
    if os.name != "posix" or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        folder = tmp_path / "checkpoints"
        checkpoint.save(folder, 1, {"x": jnp.arange(4.0)}, {"period": 1})
        with pytest.raises(OSError, match="No space left on device"):
            checkpoint.save(folder, 2, {"x": np.random.default_rng(0).random(100_000)}, {"period": 2})
        with pytest.raises(OSError, match="No space left on device"):
            (tmp_path / "rest").write_bytes(bytes(1_000_000))
        with pytest.raises(OSError, match="No space left on device"):
            checkpoint.save(folder, 3, {"x": jnp.arange(4.0)}, {"period": 3})
        assert [p.name for p in folder.iterdir()] == ["step_000000000001"]
        assert checkpoint.damage(folder / "step_000000000001") is None
        assert "Traceback" not in capfd.readouterr().err
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
