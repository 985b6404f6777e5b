"""Every folder is one subject: it says what it is and what it may import, and hands on its public names."""

import ast
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "highway_rl"
ROOMS = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)
TESTS = SOURCE.parents[1] / "tests"
BESIDE = {"structure", "theorems", "support"}


def test_few_files_lie_at_the_top():
    assert len([path for path in SOURCE.iterdir() if path.is_file()]) <= 8


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(SOURCE)))
def test_a_room_says_what_it_is(room):
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    assert said
    assert "Imports " in said, "say what the room may import"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(SOURCE)))
def test_a_room_hands_on_names_that_exist(room):
    name = ".".join(room.relative_to(SOURCE.parent).parts)
    module = importlib.import_module(name)
    assert isinstance(module.__all__, list)
    assert module.__all__ or room.name == "integrations"
    for public in module.__all__:
        assert hasattr(module, public), f"{name} has no {public}"


def test_tests_mirror_the_rooms():
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    tests = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert tests - BESIDE == rooms
