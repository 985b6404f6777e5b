"""One observation, one action, in a loop of one's own: how many a second `agent.act` answers on a CPU.

    python benchmarks/act.py
    python benchmarks/act.py --out results/act-cpu.json

Agents are untrained, which takes as long. Beside each, timed in turn in the same process: the network alone, a call of
the compiled function that waits for its number, which no `act` that goes through JAX can undercut. Shown are medians
of several rounds and the ratio of the two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]  # a benchmark there is called minatar, too

ROUNDS, CALLS = 100, 100
AGENTS = (
    ("two layers of 128", "key-door", {}, {"k": 1}),
    ("two layers of 128, two networks", "key-door", {}, {"k": 2}),
    ("a record of two arrays", "key-door", {"delay": "end"}, {"k": 1}),
    ("MinAtar's network", "minatar/breakout", {}, {"k": 1}),
)


def agent(task: str, env: dict[str, Any], settings: dict[str, Any]) -> Any:
    import jax

    from highway_rl.deep import dqn
    from highway_rl.runs import Config, TrainedAgent, setup

    s = setup(Config(task, ("dqn",), env=env, settings=settings))
    made = s.runs[0].agent
    params = dqn.start(made, s.env.spec, jax.random.key(0)).params
    return TrainedAgent(s.config, s.env.spec, made, params, "dqn", 0, 0, None)


def observation(spec: Any) -> Any:
    import jax
    import numpy as np

    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: (rng.random(x.shape) < 0.5).astype(x.dtype), spec.observation)


def in_turn(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds a call, of each way in turn, so that a busy machine is busy for all."""
    for way in ways.values():
        way()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                way()
            found[name].append(1e6 * (time.perf_counter() - begin) / CALLS)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write")
    args = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    from highway_rl.deep import dqn
    from highway_rl.records.provenance import provenance

    rows = []
    for name, task, env, settings in AGENTS:
        one = agent(task, env, settings)
        obs = observation(one.spec)
        greedy = jax.jit(lambda params, obs: dqn.best(dqn.q_values(one.agent, one.spec, params, obs))[0])  # noqa: B023
        batch = jax.tree.map(lambda x: x[None], obs)
        ways = {"act": lambda: one.act(obs), "network": lambda: greedy(one.params, batch).item()}  # noqa: B023
        found = in_turn(ways)
        rows.append({"agent": name, "task": task, **found, "a_second": 1e6 / found["act"]})
        print(
            f"{name:32s} act {found['act']:6.1f} µs, {1e6 / found['act']:7,.0f} a second,"
            f" {found['act'] / found['network']:.2f} times the network alone",
            flush=True,
        )
    if args.out:
        facts = {"provenance": provenance(benchmark="act"), "load": os.getloadavg()[0], "rows": rows}
        args.out.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
