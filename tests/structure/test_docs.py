"""The documentation is true: its Python runs and prints what it says, its commands parse, its pages are all linked."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import tyro

import highway_rl
from highway_rl.cli import app as cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md") if path.exists())
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # most examples run shorter than they compile
LONG = {"README.md": {"NPROC": "1"}}  # it trains until the task is solved, fastest on one thread
END_OF_BLOCK = "=== end of block ==="


def name(page: Path) -> str:
    """As `mkdocs.yml` has it."""
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def examples(page: Path) -> list[tuple[str, str]]:
    """Each Python block with the output the page shows right below it (`text`), or with none."""
    found = [*blocks(page), ("", "")]
    return [
        (code, below if kind == "text" else "")
        for (language, code), (kind, below) in pairwise(found)
        if language == "python"
    ]


def apart(page: Path) -> object:
    return pytest.param(page, id=name(page), marks=pytest.mark.xdist_group(name(page)))


@pytest.mark.parametrize("page", [apart(page) for page in PAGES if examples(page)])
def test_python_blocks(page, tmp_path):
    """As a reader would run them: one after the other, in a fresh interpreter and an empty folder."""
    script = "\n".join(f"{code}\nprint({END_OF_BLOCK!r})" for code, _ in examples(page))
    quickly = LONG.get(page.name, QUICKLY)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, **quickly, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{END_OF_BLOCK}\n")[:-1]
    for (code, expected), output in zip(examples(page), printed, strict=True):
        assert output.rstrip() == expected.rstrip(), code


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
