"""Films and play: a GIF that can be read back, a game played through a pseudo-terminal, errors in one line."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time

import pytest

from highway_rl.envs.minatar.viewer import imported, play, watch

PLAY = "from highway_rl.envs.minatar.viewer import play; print('score', play('breakout', fps=50, steps=400))"


def test_watch_writes_a_film(tmp_path):
    image = pytest.importorskip("PIL.Image")
    told = watch("breakout", tmp_path / "new" / "film.gif", steps=40, scale=4)
    assert told["frames"] == 41 + told["episodes"]
    with image.open(tmp_path / "new" / "film.gif") as film:
        assert film.size == (40, 40)
        assert film.n_frames > 20
    told = watch("breakout", tmp_path / "left.gif", act=lambda obs, key: 1, steps=10, scale=1)
    assert told["frames"] >= 11
    with pytest.raises(ValueError, match="action=6: give a whole number from 0 to 5"):
        watch("breakout", tmp_path / "bad.gif", act=lambda obs, key: 6)


def test_an_agent_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "film_agent.py").write_text("def act(obs, key):\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    assert imported("film_agent:act")(None, None) == 1
    for bad in ("film_agent", "film_agent:", ":act", "film_agent:none"):
        with pytest.raises(ValueError, match=r"give MODULE:FUNCTION|no function 'none': give"):
            imported(bad)


def test_watch_refuses_what_it_cannot_write(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"out='film.avi': give .* \.gif or \.mp4"):
        watch("breakout", tmp_path / "film.avi")
    with pytest.raises(ValueError, match="steps=0: give"):
        watch("breakout", tmp_path / "film.gif", steps=0)
    with pytest.raises(ValueError, match="unknown game"):
        watch("pong", tmp_path / "film.gif")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="ffmpeg program: install it"):
        watch("breakout", tmp_path / "film.mp4")


def test_play_needs_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(ValueError, match="needs a terminal: run"):
        play("breakout")
    with pytest.raises(ValueError, match="unknown game"):
        play("pong")
    with pytest.raises(ValueError, match="view='goggles': give one of"):
        play("breakout", view="goggles")
    with pytest.raises(ValueError, match="fps=0: give a number > 0"):
        play("breakout", fps=0)


@pytest.mark.long
@pytest.mark.parametrize("keys", [b"\x1b[Ddd q", b""])
def test_play_in_a_terminal(keys):
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", PLAY], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            shown += os.read(master, 4096)
        except OSError:
            break
        if keys and shown.count(b"score 0") > 3:
            for i in range(len(keys)):
                os.write(master, keys[i : i + 1])
                time.sleep(0.03)
            keys = b""
    assert child.wait(timeout=10) == 0
    os.close(master)
    text = shown.decode()
    assert "\x1b[48;2;" in text
    assert "arrows or WASD" in text
    assert "\x1b[?25h" in text
    assert "Traceback" not in text
    assert "score" in text.rsplit("\x1b[?25h", 1)[1]


def test_a_window_opens_and_closes(monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert play("breakout", view="window", fps=200, steps=3) == 0
