"""Every mutant still has something to break: its text stands in its file, once, and its tests exist."""

import importlib.util
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("highway_rl_mutations", TESTS / "mutations.py")
assert _spec is not None
assert _spec.loader is not None
mutations = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = mutations
_spec.loader.exec_module(mutations)


@pytest.mark.parametrize("mutant", mutations.MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies(mutant):
    source = (TESTS.parent / "src" / "highway_rl" / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert all((TESTS.parent / file).exists() for file in mutant.tests)


def test_names_are_distinct():
    names = [mutant.name for mutant in mutations.MUTANTS]
    assert len(set(names)) == len(names)
