"""Every refusal speaks one grammar: what it is, a colon, what to give instead. And one meaning has one name."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "highway_rl"

IMPERATIVES = (
    "give",
    "choose",
    "did you mean",
    "ask",
    "build",
    "call",
    "close",
    "divide",
    "end",
    "fill",
    "install",
    "leave",
    "make",
    "put",
    "run",
    "train",
    "use",
    "wait",
    "write",
)
"""How the part after the colon begins: it says what to type or do."""

OLD = ("; allowed", "allowed:", ", got ", "; got", " must ", "it needs", "it takes", "expected ", "; found")
"""Grammars that were spoken before, and are not any more."""

FOR_ARGUMENT = ("refusal", "wrong_shape")
"""Helpers that write the grammar themselves; their last argument is what stands after "give"."""

TO_BE_CONVERTED: tuple[str, ...] = ()
"""Folders and files that still speak the old ones, or share names. Delete a name here once it is converted."""

FILES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if not any(path.relative_to(SOURCE).is_relative_to(place) for place in TO_BE_CONVERTED)
]


def texts(node: ast.expr) -> list[str]:
    """What a string expression can say, "{}" for each value put in; nothing if it is no literal."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return ["".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)]
    if isinstance(node, ast.IfExp):
        return texts(node.body) + texts(node.orelse)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in texts(node.left) for right in texts(node.right)]
    return []


def faults(source: str) -> list[str]:
    """Line and text of every refusal that is not in the one grammar."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if name == "ValueError":
            said = texts(node.args[0]) if node.args else []
            bad = [text for text in said if not is_refusal(text)] if said else ["not written out"]
        elif name in FOR_ARGUMENT:
            bad = [text for text in texts(node.args[-1]) if speaks_old(text) or text.startswith(IMPERATIVES)]
        else:
            continue
        found += [f"{node.lineno}: {text}" for text in bad]
    return found


def speaks_old(text: str) -> bool:
    return any(words in text for words in OLD)


def is_refusal(text: str) -> bool:
    """Something before a colon, and an imperative after it; or, after it, a refusal that is put in."""
    after = text.split(": ")[1:]
    return not speaks_old(text) and any(part == "{}" or part.startswith(IMPERATIVES) for part in after)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_refusals_speak_one_grammar(path):
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ('raise ValueError(f"rooms={rooms}: give a whole number from 2 to 50")', True),
        ('raise ValueError(f"unknown method {name!r}: {hint}")', True),
        ('raise ValueError("a" + ("b: give c" if d else "e: choose f"))', True),
        ('raise checks.refusal("rooms", rooms, "a whole number")', True),
        ('raise ValueError(f"rooms is {rooms}; allowed: a whole number")', False),
        ('raise ValueError(f"rooms must be at least 2, got {rooms}")', False),
        ('raise ValueError(f"rooms has shape {rooms.shape}: it must be (2,)")', False),
        ('raise ValueError("a" + ("b: give c" if d else "e"))', False),
        ('raise ValueError("give me something")', False),
        ("raise ValueError(str(error))", False),
        ("raise ValueError", True),  # no text of ours
        ("raise ValueError()", False),
        ('raise refusal("rooms", rooms, "it must be whole")', False),
        ('raise refusal("rooms", rooms, "give a whole number")', False),
        ('raise checks.wrong_shape("R", R, f"{states}; allowed also 1")', False),
    ],
)
def test_the_reader_tells_them_apart(line, good):
    assert (faults(line) == []) is good


@pytest.mark.parametrize("name", ["NEVER", "METHODS", "AGENTS", "Memory", "check_env", "check_task", "make_agent"])
def test_one_meaning_has_one_name(name):
    """Names that several modules once gave to different things are defined in one module, if at all."""
    places = []
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if name == getattr(node, "name", None) or name in [getattr(target, "id", None) for target in targets]:
                places.append(str(path.relative_to(SOURCE)))
    assert len(places) <= 1, places
