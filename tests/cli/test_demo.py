"""The demo, shortened: it trains, draws, films, and says how to go on."""

import pytest

from highway_rl.cli.app import main


@pytest.mark.full
def test_the_demo_leaves_a_figure_and_a_film(tmp_path, capsys):
    main(["demo", "--out", str(tmp_path), "--steps", "1500", "--seeds", "1"])
    said = capsys.readouterr().out
    found = {path.name for path in (tmp_path / "crossroads").iterdir()}
    assert {"curves.png", "episode.png", "episode.gif", "evaluation.json"} <= found
    assert "which return won the gate" in said
    assert said.count("\n  highway-rl ") == 3
