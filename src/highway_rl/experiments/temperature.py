"""Temperature: Soft Highway DQN from the mean of its returns (α = 0) to the largest (α = ∞)."""

from __future__ import annotations

from highway_rl.experiments.ablation import Variants, ablation
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Rows, Scale, Verdict
from highway_rl.experiments.scores import WHOLE, above, parts, said

ALPHAS: dict[Scale, tuple[str, ...]] = {
    "smoke": ("0.005", "inf"),
    "quick": ("0", "0.005", "inf"),
    "paper": ("0", "0.0005", "0.005", "0.05", "inf"),
}


def name(alpha: str) -> str:
    return f"α = {alpha.replace('inf', '∞')}"


VARIANTS: dict[Scale, Variants] = {
    scale: {name(alpha): "soft-highway-dqn" + ("" if alpha == "0.005" else f":alpha={alpha}") for alpha in alphas}
    for scale, alphas in ALPHAS.items()
}


def moderate(runs: dict[str, dict[str, Rows]]) -> Verdict:
    """Claim 14: 0.0005 and 0.005 above ∞, in training (which the paper's figure shows), at its end and all along, and
    in the greedy test."""
    words = []
    likely: dict[str, float] = {}
    for alpha in (a for a in map(name, ("0.0005", "0.005")) if a in runs):
        found = {test: above(runs[alpha], runs[name("inf")], test) for test in ("training", "greedy", WHOLE)}
        words.append(f"P({alpha} above α = ∞): " + ", ".join(f"{test} {said(x, 2)}" for test, x in found.items()))
        likely |= {f"{alpha} {test}": 0.0 if x is None else x.value for test, x in found.items()}
    each = list(likely.values())
    verdict = HOLDS if min(each) >= 0.75 else PARTLY if max(each) > 0.5 else FAILS
    return Verdict(parts({what: x >= 0.75 for what, x in likely.items()}) + "; ".join(words), verdict)


EXPERIMENT = ablation(
    "temperature",
    "Fig. 8a",
    "Soft Highway DQN by its temperature α, reward at the end",
    VARIANTS,
    (14, moderate),
    agent="Soft Highway DQN",
    order=70,
    also="value",
)
