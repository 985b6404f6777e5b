"""Imports point one way, the gate has one caller, and files stay short enough to read."""

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "highway_rl"
FILES = sorted(SOURCE.rglob("*.py"))

CORE = {"types", "checks", "core"}
MODEL = CORE | {"mdp"}
DEEP = CORE | {"registry", "envs", "data", "deep"}
ALLOWED = {
    "types": set(),
    "checks": set(),
    "version": set(),
    "registry": {"checks"},
    "machines": {"checks"},
    "core": {"types", "checks"},
    "mdp": CORE,
    "solvers": MODEL | {"machines"},
    "envs": MODEL | {"registry"},
    "data": CORE,
    "tabular": CORE | {"envs"},
    "deep": CORE | {"registry", "envs", "data"},
    "records": {"types", "checks", "version"},
    "runs": DEEP | {"records", "machines"},
    "experiments": MODEL | {"solvers", "envs", "data", "tabular", "deep", "records", "runs"},
    "integrations": CORE | {"envs"},
    "cli": MODEL | {"solvers", "envs", "tabular", "deep", "records", "runs", "experiments", "integrations"},
    "__main__": {"cli"},
    "highway_rl": MODEL | {"solvers", "envs", "runs", "version"},
}
"""What each layer (a file or a folder of the package; `highway_rl` is its `__init__`) may import, besides itself."""

CORE_MAY_USE = {"jax", "numpy", "jaxtyping", "highway_rl"} | sys.stdlib_module_names


def layer(path: Path) -> str:
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "highway_rl" if name == "__init__" else name


def imported(path: Path) -> set[str]:
    """Dotted names of everything the file imports when it runs, function bodies included."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively: write the full name"
            found |= {f"{node.module}.{name.name}" for name in node.names}
        todo += ast.iter_child_nodes(node)
    return found


def layers_used(path: Path) -> set[str]:
    """The layers of the package a file imports; a name that is no file or folder belongs to `__init__`."""
    inside = [name.split(".") for name in imported(path) if name.split(".")[0] == "highway_rl"]
    return {parts[1] if len(parts) > 1 and parts[1] in ALLOWED else "highway_rl" for parts in inside}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path):
    name = layer(path)
    assert name in ALLOWED, f"{name} is a new layer: say in ALLOWED what it may import"
    assert layers_used(path) - {name} <= ALLOWED[name]


def test_no_circles():
    """Each layer comes after all it may import."""
    placed: set[str] = set()
    while left := [name for name in ALLOWED if name not in placed]:
        ready = [name for name in left if ALLOWED[name] - {name} <= placed]
        assert ready, f"these import each other: {left}"
        placed |= set(ready)


def test_core_needs_nothing_but_arrays():
    for path in FILES:
        if layer(path) == "core":
            assert {name.split(".")[0] for name in imported(path)} <= CORE_MAY_USE, path.name


def test_the_gate_has_one_caller():
    callers, importers = set(), set()
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        importers |= {path.name for name in imported(path) if name == "highway_rl.core.backup.gate"}
        for outer in ast.walk(tree):
            for node in ast.walk(outer) if isinstance(outer, ast.FunctionDef) else ():
                called = node.func if isinstance(node, ast.Call) else None
                if getattr(called, "id", getattr(called, "attr", None)) == "gate":
                    callers.add((path.name, outer.name))
    assert callers == {("backup.py", "combine_returns")}
    assert importers <= {"__init__.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= (200 if layer(path) == "core" else 300)
