"""Every algorithm gives the numbers it gave when same_numbers.json was recorded, under JAX's own flags.

To record anew, after a change that is meant to change numbers: `python tests/runs/test_same_numbers.py`.
"""

import csv
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

RECORDED = Path(__file__).parent / "same_numbers.json"
SMALL = {"capacity": 500, "start": 200, "refresh": 100}
LATE = {"task": "late", "env": {"length": 6}, "settings": SMALL, "steps": 1_200, "report_every": 300}
LATE |= {"preset": "explorer", "episodes": 2}
ONE = ("dqn", "n-step-dqn", "lambda-dqn", "watkins-dqn", "tree-backup-dqn", "retrace", "n-step-highway-dqn")
ONE += ("soft-highway-dqn", "highway-gate-0", "highway-gate-3", "highway-mean-gate")
GAME = {"task": "minatar/breakout", "env": {"delay": "end"}, "steps": 600, "report_every": 200}
GAME |= {"settings": SMALL | {"capacity": 400}, "preset": "explorer", "episodes": 2}
CASES: dict[str, dict] = {
    "late": LATE | {"algos": ONE},
    "late-few": LATE | {"algos": ("dqn", "retrace", "soft-highway-dqn"), "steps": 600},
    "late-double": LATE | {"algos": ("double-dqn",), "seeds": 2},
    "late-maxmin": LATE | {"algos": ("maxmin-dqn",), "seeds": 2},
    "breakout": GAME | {"algos": ("dqn", "soft-highway-dqn")},
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def machine() -> dict[str, str]:
    return {"machine": platform.machine(), "jaxlib": importlib.metadata.version("jaxlib")}


def made(names: list[str]) -> dict[str, str]:
    """The metrics.csv of each of these cases."""
    from highway_rl import runs

    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            runs.fit(runs.Config(**CASES[name]), Path(folder) / "run")
            found[name] = (Path(folder) / "run" / "metrics.csv").read_text()
    return found


def numbers(text: str) -> list[list[str | float]]:
    """The cells of a metrics.csv, those that are numbers as numbers."""

    def cell(word: str) -> str | float:
        try:
            return float(word)
        except ValueError:
            return word

    return [[cell(word) for word in row] for row in csv.reader(text.splitlines())]


def test_every_algorithm_is_recorded():
    from highway_rl.deep.algorithms import ALGORITHMS

    recorded = json.loads(RECORDED.read_text())
    algos = {row[1] for text in recorded["metrics"].values() for row in csv.reader(text.splitlines())} - {"algo"}
    assert set(ALGORITHMS) - set(ALGORITHMS.added) == algos
    assert {name: digest(text) for name, text in recorded["metrics"].items()} == recorded["sha256"]


def close(found: str, name: str) -> None:
    """Words are the recorded ones, and numbers to four digits, or to 1e-5: a bias is a small difference."""
    recorded = json.loads(RECORDED.read_text())["metrics"][name]
    for now, then in zip(numbers(found), numbers(recorded), strict=True):
        words = [(a, b) for a, b in zip(now, then, strict=True) if isinstance(b, str)]
        assert all(a == b for a, b in words)
        floats = [(a, b) for a, b in zip(now, then, strict=True) if not isinstance(b, str)]
        assert [a for a, _ in floats] == pytest.approx([b for _, b in floats], rel=1e-4, abs=1e-5, nan_ok=True)


@pytest.mark.long
def test_the_numbers_are_nearly_the_same_with_a_hurried_compiler():
    close(made(["late-few"])["late-few"], "late-few")


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_the_same(name):
    """Exactly so on the recorded kind of machine and compiler, elsewhere to four digits."""
    hurried = ("XLA_FLAGS", "NPROC", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_ENABLE_X64", "JAX_NUMPY_DTYPE_PROMOTION")
    plain = {k: v for k, v in os.environ.items() if k not in hurried}
    done = subprocess.run([sys.executable, __file__, "show", name], env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, recorded = json.loads(done.stdout)[name], json.loads(RECORDED.read_text())
    if machine() == {part: recorded[part] for part in machine()}:
        assert digest(found) == recorded["sha256"][name]
    close(found, name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["show"]:
        print(json.dumps(made(sys.argv[2:])))
    else:
        texts = made(list(CASES))
        kept = machine() | {"sha256": {name: digest(text) for name, text in texts.items()}, "metrics": texts}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
