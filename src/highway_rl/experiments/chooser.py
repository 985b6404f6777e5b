"""The chooser on games: Soft Highway DQN with the return paid that an estimate chose, beside the paper's gate.

Games have luck of their own (an action is repeated, things appear by chance), and good episodes that are rare.
"""

from __future__ import annotations

import numpy as np

from highway_rl.experiments import main
from highway_rl.experiments.ablation import Size, Variants, ablation
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.main import DELAYED, PLAIN
from highway_rl.experiments.scores import above, said

PAPER = "the paper's gate"
EVERY = {
    PAPER: "soft-highway-dqn",
    "learned": "soft-highway-dqn:chooser=learned",
    "grouped": "soft-highway-dqn:chooser=grouped",
    "grouped, optimistic": "soft-highway-dqn:chooser=grouped,optimism=1",
}
LATER = ("grouped, optimistic",)
VARIANTS: dict[Scale, Variants] = {"smoke": dict(list(EVERY.items())[:2]), "quick": EVERY, "paper": EVERY}
GAMES = ("minatar/asterix", "minatar/breakout", "minatar/space_invaders")
"""Named before any of these runs was made: rare good episodes, no chance but in actions, and much to lose."""
SIZES: dict[Scale, Size] = {
    "smoke": Size(("harvest",), PLAIN, 1_500, 1),
    "quick": Size((main.LATE,), main.INN, 8_000, 3),
    "paper": Size(GAMES, DELAYED, 5_000_000, 5),
}


def nearer(runs: dict[str, dict[str, Rows]]) -> Verdict:
    """Claim 104: in the last quarter of training targets lie nearer to what followed on every game, and seeds score as
    much as with the paper's gate."""
    words, good = [], []
    for name, by_task in runs.items():
        if name == PAPER:
            continue
        pairs = [(late_bias(by_task[task]), late_bias(runs[PAPER][task])) for task in by_task]
        found = above(by_task, runs[PAPER], "greedy")
        off = ", ".join(f"{mine:.2f} ({theirs:.2f})" for mine, theirs in pairs)
        words.append(f"{name}: off by {off}, P(above) {said(found, 2)}")
        good += [all(abs(mine) < abs(theirs) for mine, theirs in pairs), found is not None and found.value >= 0.5]
    return Verdict("; ".join(words), HOLDS if all(good) else PARTLY if any(good) else FAILS)


def late_bias(rows: Rows) -> float:
    """How far targets lie above what followed, a mean over seeds and the last quarter of training."""
    return float(np.nanmean([np.array(row["bias"][-(len(row["bias"]) // 4 or 1) :], float) for row in rows]))


EXPERIMENT = ablation(
    "chooser",
    "none",
    "Soft Highway DQN by its chooser, reward at the end",
    VARIANTS,
    (104, nearer),
    agent="Soft Highway DQN",
    order=15,
    also="bias",
    sizes=SIZES,
    later=LATER,
)
