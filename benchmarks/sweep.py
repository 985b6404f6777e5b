"""What a Ray cluster costs: the same sweep on it and in this process, cells of about a minute, one worker each.

python benchmarks/sweep.py [--steps 20000] [--cells 4] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import highway_rl
from highway_rl.records.provenance import provenance


def seconds(executor: str, steps: int, cells: int) -> tuple[float, list[float]]:
    """All seconds of a sweep, its cluster's beginning and end included, and those of each cell."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        options = {"steps": steps, "seeds": cells, "most": 1, "settings": {"capacity": 10_000}}
        rows = highway_rl.sweep("late", "dqn:k=1", out=Path(folder), executor=executor, workers=1, **options)
        return time.perf_counter() - begun, [row["seconds"] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--cells", type=int, default=4)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found, rows = {}, []
    for executor in ("local", "ray"):
        found[executor], each = seconds(executor, given.steps, given.cells)
        rows.append({"executor": executor, "seconds": found[executor], "cells": each})
        spent = ", ".join(f"{one:.1f}" for one in each)
        print(f"{executor}: {found[executor]:.1f} s for {given.cells} cells of {spent} s", flush=True)
    print(f"ray / local: {found['ray'] / found['local']:.3f}")
    if given.out is not None:
        made = {"provenance": provenance(steps=given.steps), "rows": rows}
        given.out.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
