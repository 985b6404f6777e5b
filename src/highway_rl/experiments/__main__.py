"""Run experiments with the standard library's command line alone, as on a machine without the console packages:

    python -m highway_rl.experiments toy-delayed --scale paper --workers 16 --resume
    python -m highway_rl.experiments deep --scale paper --minutes 9 --workers 2

It writes the rows; `highway-rl plot` and `highway-rl check` read them anywhere. `deep` are all experiments that train
networks, as one queue; training goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from highway_rl.experiments import base, queue


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m highway_rl.experiments", description=__doc__.splitlines()[0])
    parser.add_argument("experiment", nargs="+", help="its name, or deep")
    parser.add_argument("--scale", default="quick", help="smoke, quick or paper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--workers", type=int, help="processes side by side")
    parser.add_argument("--minutes", type=float, help="stop training in time, to go on later")
    parser.add_argument("--resume", action="store_true", help="keep the rows the same code has stored already")
    options = parser.parse_args()
    start = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - start:7.1f} s  {text}", file=sys.stderr, flush=True)

    def step(done: int, total: int) -> None:
        say(f"{done}/{total} cells")

    try:
        chosen = queue.deep() if options.experiment == ["deep"] else [base.find(name) for name in options.experiment]
        if trained := [e for e in chosen if e.stages is not None]:
            limits = {"minutes": options.minutes, "workers": options.workers or 1}
            queue.work(trained, options.scale, options.seed, options.out, step, **limits, say=say)
        for one in (e for e in chosen if e.stages is None):
            size = {"workers": options.workers, "resume": options.resume}
            print(base.run(one, options.scale, options.seed, options.out, step, **size))
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
