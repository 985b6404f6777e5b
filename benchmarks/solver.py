"""The gated solver beside other packages, on the same arrays in the same process, to the same measured error.

    python benchmarks/solver.py [--cases garnet:10000:0.99 …] [--error 1e-6] [--repeats 3] [--limit 60] [--out FILE]

A method is asked for tolerances `error`, error/10, … until its V is within `error` of the reference in every state; the
time is the best of the repeats at that tolerance, in seconds. Ours is asked for a certified `error` at once, and its
time includes all its preparation; setting up another package's form of a model is timed on its own. Whoever has not
come within `error` in `limit` seconds is listed with null, and not tried on larger models of the family. With --out
the file keeps what it has of other cases and errors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from families import FAMILIES
from peers import Solve, peers, timed

from highway_rl import MDP, solve
from highway_rl.records.provenance import provenance
from highway_rl.solvers import highway_solve

CASES = (
    "garnet:10000:0.99", "garnet:100000:0.99", "garnet:1000000:0.99",
    "slow-mixing:10000:0.999", "slow-mixing:100000:0.999",
    "maze:10000:0.999", "maze:100000:0.999",
    "rooms:17000:0.999",
    "pendulum:10000:0.999", "pendulum:90000:0.999",
    "chain:2000:0.999", "queues:10000:0.999", "torus:10000:0.999",
)  # fmt: skip
OWN = {
    "gated": lambda mdp, tol: highway_solve(mdp, tol),
    "gated, sweeps only": lambda mdp, tol: highway_solve(mdp, tol, proposal="sweeps"),
    "gated, Krylov only": lambda mdp, tol: highway_solve(mdp, tol, proposal="krylov"),
    "modified policy iteration": lambda mdp, tol: solve(mdp, "modified-policy-iteration", tol),
}


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupts Python code that takes longer; compiled code is left to end first."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def seconds_to(call: Solve, reference: np.ndarray, error: float, repeats: int, limit: float) -> dict[str, Any]:
    """The best time at the first tolerance error, error/10, … that brings V within `error`."""
    call(1e3)  # compiles
    for tolerance in error / 10.0 ** np.arange(4):
        times, started = [], time.perf_counter()
        try:
            with at_most(limit):
                for _ in range(repeats):
                    found, seconds = call(float(tolerance))
                    times.append(seconds)
                    if time.perf_counter() - started > limit / 4:
                        break
        except TimeoutError:
            if not times:
                return {"seconds": None, "why": f"more than {limit:g} s"}
        off = float(np.abs(found - reference).max())
        if off <= error:
            return {"seconds": min(times), "tolerance": float(tolerance), "error": off}
    return {"seconds": None, "why": f"error {off:.1g} at tolerance {tolerance:.0e}"}


def measure(mdp: MDP, error: float, repeats: int, limit: float, slow: set[str]) -> dict[str, Any]:
    """Every method's time, and the set-up of each package. Those that are too `slow` are left out, and added to it."""
    reference, sure = reference_of(mdp, error)
    rows: dict[str, Any] = {}
    for name, own in OWN.items():
        try:
            with contextlib.suppress(TimeoutError), at_most(4 * limit):
                call = timed(lambda tol, own=own: own(mdp, tol).value)
                rows[name] = seconds_to(call, reference, error, repeats, limit)
        except ValueError as refused:  # more than float64 can certify
            rows[name] = {"seconds": None, "why": str(refused)}
    sparse = mdp.sparse()
    set_up = {}
    for package, build in peers(sparse).items():
        start = time.perf_counter()
        try:
            methods = build(sparse)
        except Exception as problem:  # another package's own trouble is a result
            set_up[package] = repr(problem)[:200]
            continue
        set_up[package] = time.perf_counter() - start
        for name, call in methods.items():
            full = f"{package} {name}"
            if full in slow:
                rows[full] = {"seconds": None, "why": f"more than {limit:g} s with fewer states"}
                continue
            begun = time.perf_counter()
            try:
                rows[full] = seconds_to(call, reference, error, repeats, limit)
            except Exception as problem:
                rows[full] = {"seconds": None, "why": repr(problem)[:200]}
            if rows[full]["seconds"] is None and time.perf_counter() - begun > limit:
                slow.add(full)
    return {"seconds": rows, "set_up": set_up, "reference": sure}


def reference_of(mdp: MDP, error: float) -> tuple[np.ndarray, float]:
    """V* and its certified error: a small part of `error`, or as small as float64 can certify."""
    for part in (30, 10, 3, 1):
        with contextlib.suppress(ValueError):
            found = highway_solve(mdp, error / part)
            return found.value, found.bound
    raise ValueError(f"float64 cannot certify {error:g} for this model: ask for a larger --error")


def best(rows: dict[str, Any], own: bool) -> tuple[float, str]:
    found = [(row["seconds"], name) for name, row in rows.items() if row["seconds"] and (name in OWN) == own]
    return min(found, default=(np.inf, "none"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--error", type=float, default=1e-6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    facts = provenance(benchmark="solver", error=options.error, load=os.getloadavg())
    table = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    slow: dict[str, set[str]] = {}
    for case in options.cases:
        family, states, discount = case.split(":")
        mdp = FAMILIES[family](int(states), float(discount))
        found = measure(mdp, options.error, options.repeats, options.limit, slow.setdefault(family, set()))
        theirs, who = best(found["seconds"], own=False)
        mine = found["seconds"]["gated"]["seconds"] or np.inf
        found["load"] = os.getloadavg()[0]
        found["ratio"] = theirs / mine if np.isfinite(theirs / mine) else None  # nobody else in time
        found["limit"] = options.limit
        print(f"{case}: ours {mine:.4g} s, best peer {theirs:.4g} s ({who}), {theirs / mine:.2f} times", flush=True)
        for name, row in found["seconds"].items():
            print(f"    {name:30s}", row)
        table.setdefault(f"{options.error:g}", {})[case] = {**found, "provenance": facts}
        if options.out:
            options.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
