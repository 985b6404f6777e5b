"""The documentation is true: its Python runs and prints what it says, its commands parse, its pages are all linked."""

import re

import pytest
import tyro
from pages import PAGES, ROOT, blocks, check_python, name, with_examples

import highway_rl
from highway_rl.cli import app as cli


@pytest.mark.parametrize("page", with_examples(tutorials=False))
def test_python_blocks(page, tmp_path):
    check_python(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_parse(page):
    for language, text in blocks(page):
        for line in text.splitlines() if language in ("bash", "sh", "console") else ():
            words = line.removeprefix("$ ").split("#")[0].split()
            if words[:1] == ["highway-rl"]:
                tyro.cli(cli.Command, args=words[1:], config=(tyro.conf.FlagCreatePairsOff,))


def test_the_idea_is_two_clicks_from_the_start():
    """Start → a page that shows core/backup.py itself, not a copy."""
    assert "(idea.md)" in (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert '--8<-- "src/highway_rl/core/backup.py"' in (ROOT / "docs/idea.md").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation():
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f": {name(page)}\n" in configuration for page in PAGES if page.name != "README.md")


def test_every_public_name_is_in_the_api():
    """In the table at the top of its page, and every name there is public."""
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8").split("## Shared types")[0]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(highway_rl.__all__)
