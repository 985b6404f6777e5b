"""Steps per second of Highway Q-learning on Trace Back: many seeds in one program, against a plain NumPy loop.

    python benchmarks/tabular.py [--delay 20] [--seeds 100] [--episodes 200] [--out results/tabular-cpu.json]

The loop is the same algorithm written down directly: dictionaries of episodes by (s,a), one seed at a time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from highway_rl.envs import make_task
from highway_rl.envs.tasks.delayed import MOVES, RIGHT, UP
from highway_rl.records.provenance import provenance
from highway_rl.tabular import agent as tabular
from highway_rl.tabular.loop import trainer

EPSILON, POLICIES = 0.2, 3


def plain_highway(delay: int, episodes: int, seed: int) -> int:
    """Algorithm 3 as printed, in NumPy and dictionaries; returns the number of steps taken."""
    rng = np.random.default_rng(seed)
    side = max(3, 3 * delay // 4)
    q: dict[Any, np.ndarray] = {}
    met: dict[Any, list[tuple[int, int]]] = {}
    pairs: list[Any] = []
    stored: list[tuple[list[Any], list[int], list[float]]] = []

    def values(state: Any) -> np.ndarray:
        return q.setdefault(state, np.zeros(4))

    for m in range(episodes):
        cell, earned, first = np.array([side // 2, side // 2]), False, False
        states, actions, rewards = [], [], []
        for t in range(delay):
            state = (t, earned, int(cell[0]), int(cell[1]))
            row = values(state)
            greedy = rng.choice(np.flatnonzero(row == row.max()))
            action = int(rng.integers(4)) if rng.random() < EPSILON else int(greedy)
            options = [k for k in range(4) if ((cell + MOVES[k] >= 0) & (cell + MOVES[k] < side)).all()]
            move = action if t < 2 and action in options else options[rng.integers(len(options))]
            good = t == 1 and first and action == RIGHT
            first = first or (t == 0 and action == UP)
            earned = earned or good
            reward = (-50.0 if good else 50.0) if t == 1 else 0.0
            reward += 150.0 if t == delay - 1 and earned else 0.0
            states.append(state)
            actions.append(action)
            rewards.append(reward)
            cell = cell + MOVES[move]
        stored.append((states, actions, rewards))
        for t, pair in enumerate(zip(states, actions, strict=True)):
            met.setdefault(pair, []).append((m, t))
            pairs.append(pair)
        for _ in range(delay):
            pair = pairs[rng.integers(len(pairs))]
            choices = met[pair]
            picked = rng.choice(len(choices), min(POLICIES, len(choices)), replace=False)
            best = -np.inf
            for i in picked:
                e, t = choices[i]
                s, _, r = stored[e]
                ahead = [values(s[k]).max() for k in range(t + 1, delay)] + [0.0]
                returns = np.cumsum(r[t:]) + np.array(ahead)
                best = max(best, np.maximum(returns, returns[0]).max())
            values(pair[0])[pair[1]] = best
    return episodes * delay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("results/tabular-cpu.json"))
    options = parser.parse_args()
    start = time.perf_counter()
    steps = plain_highway(options.delay, options.episodes, 0)
    plain = steps / (time.perf_counter() - start)
    rows = [{"method": "Highway Q-learning, NumPy loop", "steps_per_second": plain, "ratio": 1.0}]
    env = make_task("trace-back", delay=options.delay)
    keys = jax.random.split(jax.random.key(0), options.seeds)
    for name in ("highway-q-learning", "watkins-q-lambda", "monte-carlo"):
        learner = tabular.learner(env, tabular.tabular_agent(name, env.horizon))
        train = trainer(env, learner, max_episodes=options.episodes, until="cap", keep=lambda memory: ())
        compiled = train.lower(keys).compile()  # type: ignore[attr-defined]
        times = []
        for _ in range(3):
            start = time.perf_counter()
            jax.block_until_ready(compiled(keys))
            times.append(time.perf_counter() - start)
        speed = options.episodes * options.seeds * options.delay / min(times)
        rows.append({"method": f"{name}, {options.seeds} seeds", "steps_per_second": speed, "ratio": speed / plain})
    print(f"{'method':40s} {'steps/s':>12s} {'times the loop':>16s}")
    for row in rows:
        print(f"{row['method']:40s} {row['steps_per_second']:12,.0f} {row['ratio']:16.1f}")
    facts = provenance(benchmark="tabular", delay=options.delay, seeds=options.seeds, episodes=options.episodes)
    options.out.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
