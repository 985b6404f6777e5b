"""Run an experiment with the standard library's command line alone, as on a machine without the console packages:

    python -m highway_rl.experiments toy-delayed --scale paper --workers 16 --resume

It writes the rows; `highway-rl plot` and `highway-rl check` read them anywhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from highway_rl.experiments import base


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m highway_rl.experiments", description=__doc__.splitlines()[0])
    parser.add_argument("experiment", help="its name")
    parser.add_argument("--scale", default="quick", help="smoke, quick or paper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--workers", type=int, help="processes side by side, one thread each")
    parser.add_argument("--resume", action="store_true", help="keep the rows the same code has stored already")
    options = parser.parse_args()
    start = time.perf_counter()

    def step(done: int, total: int) -> None:
        print(f"{time.perf_counter() - start:7.1f} s  {done}/{total} cells", file=sys.stderr, flush=True)

    try:
        path = base.run(
            base.find(options.experiment),
            options.scale,
            options.seed,
            options.out,
            step,
            workers=options.workers,
            resume=options.resume,
        )
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(path)


if __name__ == "__main__":
    main()
