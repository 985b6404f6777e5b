"""The gate replaced: what n-step Highway DQN is without the maximum of the n-step and the 1-step return."""

from __future__ import annotations

from highway_rl.experiments.ablation import Variants, ablation
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.main import DELAYED, title
from highway_rl.experiments.scores import above, parts, said, share

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
    words, likely = [], []
    shares: dict[str, bool] = {}
    for name, by_task in runs.items():
        if name == GATE:
            continue
        found = above(runs[GATE], by_task, "greedy")
        ratios = {task: share(its, runs[GATE][task], "greedy") for task, its in by_task.items()}
        each = ", ".join(f"{title(task, DELAYED)} {said(one, 2)}" for task, one in ratios.items())
        words.append(f"{name}: {each} of the gate's score, P(gate above) {said(found, 2)}")
        if name != NOT_THE_PAPERS:
            likely.append(0.0 if found is None else found.value)
            what = f"{name.partition(':')[0]} at most half of it on"
            shares |= {f"{what} {title(task, DELAYED)}": one.value <= 0.5 for task, one in ratios.items()}
    above_all = min(likely, default=0.0) >= 0.75
    verdict = HOLDS if above_all and shares and all(shares.values()) else PARTLY if above_all else FAILS
    return Verdict(parts({"the gate above every variant": above_all} | shares) + "; ".join(words), verdict)


EXPERIMENT = ablation(
    "gate",
    "Fig. 7a",
    "n-step Highway DQN with other gates, reward at the end",
    VARIANTS,
    (12, failing),
    agent="n-step Highway DQN",
    order=20,
)
