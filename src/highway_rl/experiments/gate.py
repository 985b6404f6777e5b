"""The gate replaced: what n-step Highway DQN is without the maximum of the n-step and the 1-step return."""

from __future__ import annotations

from highway_rl.experiments.ablation import Variants, ablation
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.scores import above, said, share

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
        ratios = {task: share(its, runs[GATE][task], "greedy") for task, its in by_task.items()}
        parts = ", ".join(f"{task.removeprefix('minatar/')} {said(one, 2)}" for task, one in ratios.items())
        words.append(f"{name}: {parts} of the gate's score, P(gate above) {said(found, 2)}")
        if name != NOT_THE_PAPERS:
            likely.append(0.0 if found is None else found.value)
            shares += [one.value for one in ratios.values()]
    above_all = min(likely, default=0.0) >= 0.75
    verdict = HOLDS if above_all and shares and all(x <= 0.5 for x in shares) else PARTLY if above_all else FAILS
    return Verdict("; ".join(words), verdict)


EXPERIMENT = ablation(
    "gate",
    "Fig. 7a",
    "n-step Highway DQN with other gates, reward at the end",
    VARIANTS,
    (12, failing),
    agent="n-step Highway DQN",
    order=20,
)
