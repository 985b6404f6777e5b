"""What can be set: all of it is told, with what it is in the presets, on the page and by the command."""

from pathlib import Path

import pytest

from highway_rl import runs
from highway_rl.cli.app import main
from highway_rl.runs import config, settings

PAGE = Path(__file__).parents[2] / "docs" / "deep.md"


def test_nothing_is_missing():
    there = {config.SHORT.get(name, name) for name in settings.MEANING}
    assert there == config.AGENT | config.NAMED | (config.SCHEDULE - {"steps"})


def test_the_page_has_the_table():
    page = PAGE.read_text(encoding="utf-8")
    for name, *rest in settings.table():
        assert " | ".join([f"| `{name}`", *rest]) + " |" in page


def test_the_command_has_it_too(capsys):
    main(["list"])
    printed = capsys.readouterr().out
    for name in settings.MEANING:
        assert name in printed


@pytest.mark.parametrize("preset", ["paper", "general"])
def test_the_values_are_those_of_a_run(preset):
    """As a run gets them that names nothing."""
    (run,) = runs.setup(runs.Config("late", ("dqn",), preset=preset)).runs
    for name in set(settings.MEANING) - config.NAMED - {"discount"}:
        own = config.SHORT.get(name, name)
        found = getattr(run.agent if own in config.AGENT else run.schedule, own)
        shown = settings.value(name, preset).replace(",", "")
        assert shown == str(found).lower() if isinstance(found, bool | str) else float(shown) == pytest.approx(found)
