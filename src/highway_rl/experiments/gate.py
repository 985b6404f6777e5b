"""The gate replaced: what n-step Highway DQN is without the maximum of the n-step and the 1-step return."""

from __future__ import annotations

import numpy as np

from highway_rl.experiments.ablation import Variants, ablation
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.scores import above, said, values

GATE = "max {1, n}: the gate"
EVERY = {
    GATE: "n-step-highway-dqn:n=end",
    "max {3, n}": "highway-gate-3",
    "max {0, n}": "highway-gate-0",
    "n alone: no gate": "n-step-dqn:n=end",
    "mean of 1 and n": "highway-mean-gate",
}
VARIANTS: dict[Scale, Variants] = {"smoke": dict(list(EVERY.items())[:2]), "quick": EVERY, "paper": EVERY}
NOT_THE_PAPERS = "mean of 1 and n"


def failing(runs: dict[str, dict[str, Rows]]) -> Verdict:
    """Claim 12: the gate above every variant, and each of the paper's three at half its score or less."""
    words, likely, shares = [], [], []
    for name, by_task in runs.items():
        if name == GATE:
            continue
        found = above(runs[GATE], by_task, "greedy")
        ratio = [_mean(by_task[task]) / max(_mean(runs[GATE][task]), 1e-9) for task in by_task]
        words.append(
            f"{name}: {', '.join(f'{x:.2f}' for x in ratio)} of the gate's score, P(gate above) {said(found, 2)}"
        )
        if name != NOT_THE_PAPERS:
            likely.append(0.0 if found is None else found.value)
            shares += ratio
    above_all = min(likely, default=0.0) >= 0.75
    verdict = HOLDS if above_all and max(shares, default=1.0) <= 0.5 else PARTLY if above_all else FAILS
    return Verdict("; ".join(words), verdict)


def _mean(rows: Rows) -> float:
    return float(np.mean(values(rows, "greedy") or [0.0]))


EXPERIMENT = ablation(
    "gate",
    "Fig. 7a",
    "n-step Highway DQN with other gates, reward at the end",
    VARIANTS,
    (12, failing),
    agent="n-step Highway DQN",
    order=20,
)
