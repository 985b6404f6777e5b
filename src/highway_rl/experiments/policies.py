"""Policies: how many behavioural policies Soft Highway DQN pools for a state and action."""

from __future__ import annotations

from highway_rl.experiments.ablation import Variants, ablation
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.scores import WHOLE, above, parts, said

COUNTS: dict[Scale, tuple[int, ...]] = {"smoke": (1, 2), "quick": (1, 4), "paper": (1, 2, 4, 8)}
VARIANTS: dict[Scale, Variants] = {
    scale: {
        f"{m} {'policy' if m == 1 else 'policies'}": f"soft-highway-dqn{f':num_policies={m}' * (m > 1)}" for m in of
    }
    for scale, of in COUNTS.items()
}


def more(runs: dict[str, dict[str, Rows]]) -> Verdict:
    """Claim 15: more policies than one score more, and sooner: at least half of the counts, and one of them clearly."""
    one, *others = runs
    words, good = [], []
    for test in ("greedy", WHOLE):
        found = [above(runs[name], runs[one], test) for name in others]
        likely = [0.0 if x is None else x.value for x in found]
        words.append(f"{test}: " + ", ".join(f"{n} {said(x, 2)}" for n, x in zip(others, found, strict=True)))
        often = sum(x > 0.5 for x in likely) * 2 >= len(likely)
        good.append(HOLDS if often and max(likely) >= 0.75 else PARTLY if max(likely) > 0.5 else FAILS)
    verdict = good[0] if good[0] == good[1] else PARTLY
    held = parts({test: one == HOLDS for test, one in zip(("greedy", WHOLE), good, strict=True)})
    return Verdict(f"{held}P(above {one}), " + "; ".join(words), verdict)


EXPERIMENT = ablation(
    "policies",
    "Fig. 8b",
    "Soft Highway DQN by the number of policies pooled, reward at the end",
    VARIANTS,
    (15, more),
    agent="Soft Highway DQN",
    order=75,
)
