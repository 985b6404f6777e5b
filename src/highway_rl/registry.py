"""Names for things that people add: environments, algorithms, networks, optimisers.

A name is found, in this order: built in or registered in Python; as `module:name`, which imports the module; among the
entry points of installed packages (group `highway_rl.algorithms` and so on). What is registered by a module is there
again in a new process once that module is imported; a training folder notes which ones. Names that come out of a file
(`of_a_file`) bring in no module that its reader did not name.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeVar

from highway_rl import checks

T = TypeVar("T")

_allowed: contextvars.ContextVar[frozenset[str] | None] = contextvars.ContextVar("allowed", default=None)
_named: set[str] = set()
"""Modules that somebody here, not a file, has named."""


class Registry(Generic[T]):
    """One kind of thing by name; reads like a dictionary of what is built in or registered."""

    def __init__(self, kind: str, group: str, built_in: Mapping[str, T]) -> None:
        self.kind, self.group = kind, f"highway_rl.{group}"
        self.known: dict[str, T] = dict(built_in)
        self.added: dict[str, str] = {}  # name → module that registered it

    def add(self, name: str, thing: T) -> T:
        """Registers `thing` under `name`; refuses the name of something built in."""
        if not isinstance(name, str) or not name or ":" in name or "=" in name or "," in name:
            raise checks.refusal("name", name, "a word without ':', '=' or ','")
        if name in self.known and name not in self.added:
            raise ValueError(f"{self.kind} {name!r} is built in: give yours another name")
        self.known[name] = thing
        self.added[name] = _caller()
        return thing

    def find(self, name: str) -> T:
        """The thing of this name, wherever it is."""
        if name in self.known:
            return self.known[name]
        if isinstance(name, str) and ":" in name:
            _check(name.partition(":")[0])
            found: T = imported(name)
            return found
        for point in importlib.metadata.entry_points(group=self.group):
            if point.name == name:
                self.known[name] = point.load()
                self.added[name] = point.module
                return self.known[name]
        error = checks.unknown(self.kind, name, self.names())
        raise ValueError(f"{error}; one of your own: give module:name, or import the module that registers it first")

    def names(self) -> list[str]:
        points = [point.name for point in importlib.metadata.entry_points(group=self.group)]
        return [*self.known, *(name for name in points if name not in self.known)]

    def module(self, name: str) -> str | None:
        """The module to import so that the name exists in another process; None for what is always there."""
        return self.added.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __contains__(self, name: object) -> bool:
        return name in self.known


def _caller() -> str:
    """The module outside this package that registers something: to import it again is to register it again."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "highway_rl":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def imported(name: str) -> T:  # type: ignore[type-var]
    """What `module:name` names; the current folder counts as a place for modules."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise checks.refusal("name", name, "module:name, as in mypackage.agents:mine")
    if module.split(".")[0] in sys.stdlib_module_names:  # whoever wrote it into a file does not mean an agent
        raise checks.refusal("name", name, "one of a module of yours, not of Python's own")
    found = bring(module)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ValueError(
                f"{name} is not there, module {module} has no {part!r}: give a name it has after the colon"
            ) from None
    return found  # type: ignore[return-value]


@contextlib.contextmanager
def of_a_file(modules: Collection[str]) -> Iterator[None]:
    """Inside, names come out of a file: of code beyond this package it may use `modules`, and what was named before."""
    token = _allowed.set(frozenset(modules))
    try:
        yield
    finally:
        _allowed.reset(token)


def trusted(module: str) -> bool:
    """Whether names of a module may be used here."""
    allowed = _allowed.get()
    return allowed is None or module in allowed | _named or module.split(".")[0] == "highway_rl"


def mistrusted(modules: Collection[str]) -> ValueError:
    options = " ".join(f"--import {module}" for module in modules)
    return ValueError(
        f"the file names code beyond this package, {', '.join(modules)}: give imports={list(modules)} if you trust it"
        f" ({options} on the command line)"
    )


def _check(module: str) -> None:
    if not trusted(module):
        raise mistrusted([module])
    if _allowed.get() is None:
        _named.add(module)


def bring(module: str) -> object:
    """Imports a module, also from the current folder."""
    if module not in sys.modules:
        _check(module)
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"module {module!r} cannot be imported ({checks.one_line(error)}): run this where it can be found, or"
            " install it"
        ) from None
    except Exception as error:
        why = f"{type(error).__name__}: {checks.one_line(error)}"
        raise ValueError(f"module {module!r} cannot be imported ({why}): run this again when it is mended") from error
