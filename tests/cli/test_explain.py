"""explain as a person meets it: what it prints, draws and refuses."""

import sys

import jax
import pytest
from training import as_users, strictly

from highway_rl import runs
from highway_rl.cli.app import main
from highway_rl.deep import dqn


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """An agent that learned nothing, as a file."""
    with as_users():
        s = runs.setup(runs.Config("late", env={"length": 5}, settings={"network": "mlp", "k": 1}))
        run = s.runs[0]
        params = dqn.start(run.agent, s.env.spec, jax.random.key(0)).params
    agent = runs.TrainedAgent(s.config, s.env.spec, run.agent, params, run.label, 0, 0, None)
    return str(agent.save(tmp_path_factory.mktemp("explained") / "agent.safetensors"))


def test_an_episode_is_shown_and_drawn(file, tmp_path, capsys):
    main(["explain", file, "--seed", "3", "--plot", str(tmp_path / "new" / "episode.png")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "soft-highway-dqn seed 0 on late, step 0"
    assert [line.split()[0] for line in lines[4:9]] == list("01234")
    assert lines[-1] == f"figure: {tmp_path / 'new' / 'episode.png'}"
    assert (tmp_path / "new" / "episode.png").read_bytes()[1:4] == b"PNG"
    main(["explain", file, "--seed", "3", "--max-steps", "2", "--json"])
    rows = strictly(capsys.readouterr().out)
    assert [row["step"] for row in rows] == [0, 1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere is not there: give a file that agent.save wrote, or a training folder"),
        (["FILE", "--plot", "episode.pdf"], "--plot episode.pdf: give a name that ends in .png"),
        (["FILE", "--run", "dqn"], "run='dqn': give None"),
        (["FILE", "--max-steps", "0"], "max_steps=0: give a whole number >= 1"),
        (["FILE", "--seed", "-1"], "seed=-1: give a whole number >= 0"),
        ([__file__], "is no agent, or a damaged one: give"),
        (["."], "is no training folder"),
    ],
)
def test_bad_input_is_one_line(words, says, file, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(["explain", *(file if word == "FILE" else word for word in words)], says, capsys)
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(file, capsys):
    refused(["resume", file], "is no training folder, config.json is not there: give one that", capsys)


def refused(words, says, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    error = capsys.readouterr().err
    assert (stop.value.code, error.count("\n")) == (2, 1)
    assert says in error


def test_without_matplotlib(file, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        main(["explain", file, "--plot", "episode.png"])
    assert "figures need matplotlib: pip install 'highway-rl[plots]'" in capsys.readouterr().err
