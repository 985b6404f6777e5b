"""Pages of the documentation and the examples in them."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md") if path.exists())
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUICKLY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # most examples run shorter than they compile
LONG = {"README.md": {"NPROC": "1"}}  # it trains until the task is solved, fastest on one thread
LATER = {
    *("deep.md", "gymnasium.md", "noise.md", "target.md", "gate.md", "seeds.md"),
    *("arrays.md", "extend.md", "minatar.md", "solver.md", "solvers.md", "tabular.md"),
}
"""They take five seconds to half a minute each."""
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


def with_examples(tutorials: bool) -> list[Any]:
    """The pages that have some, in the folder of tutorials or elsewhere, as parameters of a test."""
    pages = [page for page in PAGES if examples(page) and ("tutorials" in page.parts) == tutorials]
    marks = {True: pytest.mark.long, False: ()}
    return [pytest.param(page, id=name(page), marks=marks[page.name in LATER]) for page in pages]


def check_python(page: Path, folder: Path) -> None:
    """As a reader would run its blocks: one after the other, in a fresh interpreter and an empty folder."""
    script = "\n".join(f"{code}\nprint({END_OF_BLOCK!r})" for code, _ in examples(page))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={
            **os.environ,
            **LONG.get(page.name, QUICKLY),
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONIOENCODING": "utf-8",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{END_OF_BLOCK}\n")[:-1]
    for (code, expected), output in zip(examples(page), printed, strict=True):
        assert output.rstrip() == expected.rstrip(), code
