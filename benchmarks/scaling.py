"""Time and memory of the gated solver on Garnets (4 actions, 5 successors, discount 0.99, 1e-6) from 1e4 to 1e7 states.

    python benchmarks/scaling.py [--sizes 10000 100000 1000000 10000000] [--device] [--out FILE.json]
    python benchmarks/scaling.py --backup [--out FILE.json]
    python benchmarks/scaling.py --draw results/solver-scaling.png

Prints the exponent p of the fit time ~ S^p, the most memory held while solving, model included (`solve_gib`), and the
peak of the process, which is that of making the model. `--device` runs the JAX form, in
float64, on the first device instead, compilation not counted. `--backup` times a single exact backup, with the Garnet's
successors and with successors that lie within 64 states: as many entries, and what it reads of V is in the cache.
`--draw` measures nothing: it draws what is stored beside the figure.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from highway_rl import envs
from highway_rl.records.figures import axes, save
from highway_rl.records.provenance import provenance
from highway_rl.solvers import highway_solve
from highway_rl.solvers.device import solve_many
from highway_rl.solvers.rows import rows_of

TOL = 1e-6


class Watch(threading.Thread):
    """The most memory that this process holds at once while it is open, in bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.ended = held(), threading.Event()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

    def run(self) -> None:
        while not self.ended.wait(0.01):
            self.most = max(self.most, held())


def held() -> int:
    """Bytes of memory in use by this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure(states: int, on_device: bool) -> dict[str, Any]:
    """Seconds (the best of three, below a second), certified error and iterations at one size."""
    before = held()
    mdp = envs.make("garnet", states=states)
    if on_device:
        mdp = jax.device_put(mdp)
        jax.block_until_ready(solve_many(mdp, 1e3))  # compiles
    seconds = np.inf
    for _ in range(3):
        with Watch() as watch:
            start = time.perf_counter()
            found: Any = jax.block_until_ready(solve_many(mdp, TOL)) if on_device else highway_solve(mdp, TOL)
            seconds = min(seconds, time.perf_counter() - start)
        if seconds > 1:
            break
    arrays = sum(np.asarray(x).nbytes for x in (mdp.reward, mdp.successor, mdp.probability, mdp.discount))
    return {
        "states": states,
        "seconds": seconds,
        "bound": float(found.bound),
        "iterations": int(found.num_iters),
        "model_gib": arrays / 2**30,
        "solve_gib": (watch.most - before) / 2**30,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "load": os.getloadavg()[0],
    }


def one_backup(states: int) -> dict[str, Any]:
    """Seconds of one backup (the best of ten) with the Garnet's successors, and with near ones."""
    mdp = envs.make("garnet", states=states)
    offset = np.asarray(mdp.successor) % 64
    near = (np.arange(states, dtype=offset.dtype)[:, None, None] + offset) % states
    x, out, found = np.random.default_rng(0).random(states), np.empty(states), {}
    for name, model in {"seconds": mdp, "near": dataclasses.replace(mdp, successor=near)}.items():
        rows, found[name] = rows_of(model), np.inf
        for _ in range(10):
            start = time.perf_counter()
            rows.backup(x, out)
            found[name] = min(found[name], time.perf_counter() - start)
    return {"states": states, **found, "load": os.getloadavg()[0]}


def exponent(rows: list[dict[str, Any]], column: str = "seconds") -> float:
    """p of the least-squares fit time ~ S^p."""
    return float(np.polyfit(np.log([r["states"] for r in rows]), np.log([r[column] for r in rows]), 1)[0])


DRAWN = (
    ("solver-scaling-x86", "seconds", "two x86 cores", "o-"),
    ("solver-scaling", "seconds", "two aarch64 cores", "s-"),
    ("solver-scaling-h200", "seconds", "an H200", "^-"),
    ("solver-backup-x86", "seconds", "one backup, x86", "o:"),
    ("solver-backup-x86", "near", "one backup, x86, near successors", "x:"),
)
"""A stored file, what of its rows, its name in the figure, and how it looks."""


def draw(file: Path) -> None:
    """Time over states, both logarithmic: whole solves, and single backups."""
    figure, (ax,) = axes(1, "Garnets: how time grows with the number of states S", size=(6.4, 4.4))
    for stored, column, name, look in DRAWN:
        rows = json.loads((file.parent / f"{stored}.json").read_text())["rows"]
        label = f"{name}: $S^{{{exponent(rows, column):.2f}}}$"
        ax.loglog([r["states"] for r in rows], [r[column] for r in rows], look, label=label)
    ax.set_xlabel("states")
    ax.set_ylabel("seconds")
    ax.legend(fontsize=8)
    save(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", type=int, default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--device", action="store_true")
    parser.add_argument("--backup", action="store_true")
    parser.add_argument("--draw", type=Path, metavar="FILE.png")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.draw:
        draw(options.draw)
        return
    if options.backup and options.device:
        parser.error("--backup is of this machine's processors: leave out --device")
    if options.device:
        jax.config.update("jax_enable_x64", True)
    facts = provenance(benchmark="scaling", tol=TOL)
    if not options.device and not options.backup:
        measure(70_000, False)  # compiles what models of these sizes take; smaller and nearer ones take other kernels
    rows = []
    for states in options.sizes:
        rows.append(one_backup(states) if options.backup else measure(states, options.device))
        print(rows[-1], flush=True)
    found = {**facts, "rows": rows, "exponent": exponent(rows) if len(rows) > 1 else None}
    if options.backup and len(rows) > 1:
        found["exponent_near"] = exponent(rows, "near")
    print({name: found[name] for name in found if name.startswith("exponent")})
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
