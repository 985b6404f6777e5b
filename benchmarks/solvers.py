"""Planning time beside QuantEcon's DiscreteDP, on the same models in the same run.

    python benchmarks/solvers.py [--states 10000] [--repeats 3] [--out FILE.json]

Times are the best of the repeats, in milliseconds; "ratio" is QuantEcon's best method over ours. Both stop at an error
of 1e-6, ours certified, theirs by its own rule. Building either package's form of the model is not timed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from quantecon.markov import DiscreteDP

from highway_rl import envs, solve
from highway_rl.experiments.base import provenance
from highway_rl.mdp.model import SparseMDP
from highway_rl.mdp.validate import absorbing
from highway_rl.solvers import METHODS

TOL = 1e-6


def models(states: int) -> dict[str, SparseMDP]:
    side = int(states**0.5)
    made = {
        "multi-room, 12 rooms": envs.make("multi-room", rooms=12, min_room_size=10),
        "multi-room, 12 rooms, doors": envs.make("multi-room", rooms=12, state="doors"),
        f"maze {side}x{side}, slip 0.1": envs.make(
            "maze", height=side, width=side, slip=0.1, braid=0.3, discount=0.999
        ),
        f"garnet {states}": envs.make("garnet", states=states),
        f"garnet {states}, discount 0.999": envs.make("garnet", states=states, discount=0.999),
    }
    return {name: mdp.sparse() for name, mdp in made.items()}


def best_of(repeats: int, call: Callable[[], Any]) -> tuple[float, Any]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return 1000 * min(times), result


def measure(mdp: SparseMDP, repeats: int) -> dict[str, float]:
    S, A = mdp.reward.shape
    states, actions = np.repeat(np.arange(S), A), np.tile(np.arange(A), S)
    peer = DiscreteDP(mdp.reward.ravel(), mdp.transition, float(mdp.discount[0, 0]), states, actions)
    row = {}
    reference = solve(mdp, "modified-policy-iteration", TOL).value
    for name, method, options in (
        ("QuantEcon VI", "value_iteration", {}),
        ("QuantEcon MPI(20)", "modified_policy_iteration", {"k": 20}),
    ):
        peer.solve(method, epsilon=TOL, max_iter=100_000, **options)  # compiles
        row[name], found = best_of(
            repeats, lambda m=method, o=options: peer.solve(m, epsilon=TOL, max_iter=100_000, **o)
        )
        assert np.abs(found.v - reference).max() < 1e-3
    for name in METHODS:
        if name == "gauss-seidel" and not absorbing(mdp).any():
            continue  # its order needs an end to start from
        row[name], solution = best_of(repeats, lambda n=name: solve(mdp, n, TOL))
        assert solution.converged
    theirs = min(time for name, time in row.items() if name.startswith("QuantEcon"))
    row["ratio"] = theirs / min(time for name, time in row.items() if name in METHODS)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table = {}
    for name, mdp in models(options.states).items():
        table[name] = measure(mdp, options.repeats)
        print(f"{name} ({mdp.num_states} states)")
        for method, value in table[name].items():
            print(f"    {method:28s}{value:10.2f}{'x' if method == 'ratio' else ' ms'}")
    if options.out:
        options.out.write_text(json.dumps({"milliseconds": table, **provenance(benchmark="solvers")}, indent=2) + "\n")


if __name__ == "__main__":
    main()
