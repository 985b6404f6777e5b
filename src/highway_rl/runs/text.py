"""Runs as text: `algorithm:option=value,option=value`, the same on the command line, in Python and in config.json.

n-step-dqn:n=3                                      one run
soft-highway-dqn:alpha=0.001,depths=1,2,end         a piece without '=' belongs to the value before it
soft-highway-dqn:alpha=[0,0.005,inf]                a list sweeps: three runs
mypackage.rules:mine:n=5                            an algorithm of one's own, by module and name
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple


class Wanted(NamedTuple):
    """One run as it was asked for: its text, the algorithm's name, and every option that was given."""

    label: str
    algo: str
    options: dict[str, Any]


def parse(text: str) -> list[Wanted]:
    """The runs a text asks for: several where it sweeps.

    >>> [w.label for w in parse("dqn:k=[1,2],loss=squared")]
    ['dqn:k=1,loss=squared', 'dqn:k=2,loss=squared']
    >>> parse("soft-highway-dqn:depths=1,2,end")[0].options
    {'depths': (1, 2, 'end')}
    """
    if not isinstance(text, str):
        raise ValueError(
            f"{type(text).__name__} is no text of a run: give algorithm:option=value; a rule of your own gets a name"
            " with highway_rl.register_algorithm(name, rule)"
        )
    algo, pairs = split(text)
    choices = [[(name, one) for one in swept(name, value)] for name, value in pairs]
    return [
        Wanted(algo + ":" * bool(pairs) + ",".join(f"{n}={v}" for n, v in chosen), algo, _values(chosen))
        for chosen in itertools.product(*choices)
    ]


def split(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The algorithm's name, and each option with the text of its value."""
    head, _, rest = text.strip().partition("=")
    name, colon, first = (part.strip() for part in head.rpartition(":")) if _ else (head, "", "")
    if not _:
        return name, []
    if not colon or not name or not first.isidentifier():
        raise ValueError(f"{text!r} is no run: write algorithm:option=value,option=value, as in n-step-dqn:n=3")
    pairs: list[tuple[str, str]] = []
    for piece in pieces(f"{first}={rest}"):
        option, sign, value = piece.partition("=")
        if sign and option.strip().isidentifier():
            pairs.append((option.strip(), value.strip()))
        else:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{piece.strip()}")
    for option, value in pairs:
        if not value:
            raise ValueError(f"{text!r}: {option} has no value: write {option}=value")
        if [o for o, _ in pairs].count(option) > 1:
            raise ValueError(f"{text!r}: {option} is given twice: give it once, or a list that sweeps: {option}=[1,2]")
    return name, pairs


def pieces(text: str) -> list[str]:
    """A text at its commas, but not inside brackets.

    >>> pieces("a=[1,2],b=(3,4),c")
    ['a=[1,2]', 'b=(3,4)', 'c']
    """
    found, depth = [""], 0
    for c in text:
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            found.append("")
        else:
            found[-1] += c
    if depth:
        raise ValueError(f"{text!r} has a bracket that is open or closed once too often: close each one you open")
    return found


def swept(name: str, text: str) -> list[str]:
    """The values of a list, or the one value."""
    if not text.startswith("["):
        return [text]
    if not text.endswith("]"):
        raise ValueError(f"{name}={text}: end the list with ']'")
    found = [piece.strip() for piece in pieces(text[1:-1]) if piece.strip()]
    if not found:
        raise ValueError(f"{name}={text}: give at least one value in the list")
    if len(set(found)) < len(found):
        raise ValueError(f"{name}={text}: give each value once")
    return found


def _values(chosen: Sequence[tuple[str, str]]) -> dict[str, Any]:
    return {name: value(text) for name, text in chosen}


def value(text: str) -> Any:
    """A number (inf and nan too; 1e5 is a whole one), true or false, a list such as 1,2,end, or a word.

    >>> value("3"), value("1,2,end"), value("inf"), value("squared"), value("true"), value("1e5"), value("1e-5")
    (3, (1, 2, 'end'), inf, 'squared', True, 100000, 1e-05)
    """
    if text in ("true", "false"):
        return text == "true"
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        found = ast.literal_eval(text)
        return int(found) if isinstance(found, float) and "." not in text and found.is_integer() else found
    except (ValueError, SyntaxError):
        inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
        return tuple(value(part.strip()) for part in inner.split(",") if part.strip()) if "," in inner else text


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE words as a dictionary.

    >>> settings(["n=3", "depths=1,2,end", "loss=squared"])
    {'n': 3, 'depths': (1, 2, 'end'), 'loss': 'squared'}
    """
    found = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise ValueError(f"{pair}: write it as name=value")
        if name in found:
            raise ValueError(f"{name} is given twice: give it once")
        found[name] = value(text)
    return found
