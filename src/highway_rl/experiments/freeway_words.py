"""Why Freeway-Delay stays low, in words whose numbers are those of the rows."""

from __future__ import annotations

import numpy as np

from highway_rl.experiments.base import Rows

COLUMNS = (
    "In the table “whose” says whether the paper has a setting or leaves it open (the paper's), or whether it was"
    " changed here (ours); “at the bottom, greedy” is the share of greedy play's steps that the chicken spends where it"
    " starts; and “up is best there” is how often, of its steps there in play with ε = 0.1, the networks value going up"
    " most."
)


def why(first: Rows, barred: Rows, discount: float, kept: float, pays: float) -> str:
    """The reasoning in short, with the runs that have the paper's settings, and with those that have bars, a larger
    discount and more steps, where there are any. What is `kept` of the value of the crossings made by standing still,
    and up to how many another one `pays`, are computed from the discount."""
    told = [
        "The board does not show how much time is left, and the gate keeps the larger of what the end once paid and the"
        " value of the same board a step later. So standing still after c crossings seems to be worth"
        f" {kept:.2f}·c at any time (γ = {discount:g}), and another crossing, which takes 27 steps or more, seems to"
        f" pay up to {pays:.0f} crossings and no further.",
        "And a number of crossings that was never made is an input that was never seen, since one place in a hundred is"
        " lit for it: a record promises nothing.",
    ]
    if first:
        still = float(np.mean([row["bottom"] for row in first]))
        told[:0] = [
            f"With the paper's settings and {first[0]['steps']:,} steps (the first line of the table) Soft Highway DQN"
            f" crosses the road {scores(first)}, where the paper says close to 50: it stands still, at the bottom of"
            f" the road for {still:.0%} of greedy play."
        ]
    if barred:
        told += [
            "With crossings and time shown as bars, γ = 0.999 and three times the steps the same agent crosses"
            f" {scores(barred)}."
        ]
    return " ".join([*told, "The reasoning, and what else was tried, is in docs/freeway.md."])


def scores(rows: Rows) -> str:
    training, greedy = (np.mean([row[what] for row in rows]) for what in ("training", "greedy"))
    return f"{training:.0f} times in training and {greedy:.0f} times greedily"
