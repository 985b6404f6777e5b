"""How the certified error closes over time, four methods on one slow-mixing model: rows into a JSON, and their picture.

    python benchmarks/closing.py [--states 10000] [--limit 30] [--out FILE.json] [--plot FILE.png] [--read FILE.json]

`--read` draws stored rows again and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from families import local

from highway_rl import MDP, solve
from highway_rl.records.figures import axes, save
from highway_rl.records.provenance import provenance

METHODS = {
    "gated": {"method": "gated"},
    "gated, sweeps only": {"method": "gated", "proposal": "sweeps"},
    "modified policy iteration": {"method": "modified-policy-iteration"},
    "value iteration": {"method": "value-iteration"},
}


def follow(mdp: MDP, options: dict[str, Any], limit: float) -> list[tuple[float, float]]:
    """(seconds, certified error) after each iteration, until 1e-6 or the limit."""
    points: list[tuple[float, float]] = []
    start = time.perf_counter()

    def progress(k: int, bound: float) -> None:
        points.append((time.perf_counter() - start, bound))
        if points[-1][0] > limit:
            raise TimeoutError

    try:
        found = solve(mdp, tol=1e-6, progress=progress, **options)
        points.append((time.perf_counter() - start, found.bound))
    except TimeoutError:
        pass
    thinned = points[:: max(1, len(points) // 150)]
    return [(float(f"{seconds:.4g}"), float(f"{bound:.3g}")) for seconds, bound in [*thinned, points[-1]]]


def plot(stored: dict[str, Any], file: Path) -> None:
    """Error over time, logarithmic."""
    figure, (ax,) = axes(1, f"{stored['states']} states in a ring, discount 0.999", size=(6.4, 4.0))
    for name, points in stored["points"].items():
        ax.semilogy(*zip(*points, strict=True), label=name)
    ax.axhline(1e-6, color="gray", linewidth=0.8)
    ax.set_xlabel("seconds")
    ax.set_ylabel("certified error")
    ax.legend()
    save(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=30.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--read", type=Path)
    options = parser.parse_args()
    if options.read:
        stored = json.loads(options.read.read_text())
    else:
        stored = provenance(benchmark="closing", states=options.states)
        mdp = local(options.states, 0.999)
        solve(mdp, tol=1e3)  # compiles
        stored["points"] = {name: follow(mdp, given, options.limit) for name, given in METHODS.items()}
    for name, points in stored["points"].items():
        print(f"{name:28s} {points[-1][1]:.1e} after {points[-1][0]:.2f} s")
    if options.out:
        options.out.write_text(json.dumps(stored) + "\n")
    if options.plot:
        plot(stored, options.plot)


if __name__ == "__main__":
    main()
