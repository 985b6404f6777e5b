"""The paper's illustrative MDP, where a low reward on one branch hides a high one behind it.

    S_A ─↗→ s1 ─↗→ s2 ─↗→ blue 3 → … → blue 9 ─(+9)→ end          10 transitions
     │       │      └─↘→ orange 3 → … → orange 9 ─(+3)→ end      10 transitions
     │       └─↘(−9)→ end
     └─↘(lower)→ end

γ = 1, every other reward is 0. The text does not fix the layout; this is the one that gives all its numbers for
Q(S_A, ↗): the 2-step fixed point 3, the 10-step one 1, Highway 9 for every n, and the depths its gate chooses.

Paper: Fig. 1 and the examples of the multi-step and Highway operators. Deviation: one sentence there swaps the rewards
of the red and the blue policy; the rest of the text needs red = −9 and blue = 9.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from highway_rl import checks
from highway_rl.envs.models.tables import Table, deterministic_table

GO, LEAVE = 0, 1
"""The actions ↗ and ↘; both lead on where a branch has no choice."""

EXAMPLE_STATES = (
    "S_A",
    "s1",
    "s2",
    *(f"blue {step}" for step in range(3, 10)),
    *(f"orange {step}" for step in range(3, 10)),
    "end",
)
"""The names of the states; a number counts the transitions from S_A."""


class ExamplePolicies(NamedTuple):
    """Three deterministic policies, an action per state; all take ↗ at S_A."""

    blue: Int[np.ndarray, " s"]
    orange: Int[np.ndarray, " s"]
    red: Int[np.ndarray, " s"]


def example_mdp(*, lower: float = 6.0) -> Table:
    """The table, states in the order of `EXAMPLE_STATES`.

    `lower` is r(S_A, ↘). The paper gives no value, but ↘ has to beat the 2-step fixed point 3 and lose to the
    optimum 9, so 3 < lower < 9.
    """
    lower = checks.between("lower", lower, 3, 9)
    end = len(EXAMPLE_STATES) - 1
    successor = np.arange(1, end + 2)[:, None].repeat(2, 1)
    reward = np.zeros((end + 1, 2))
    for name, action, target, gain in (
        ("S_A", LEAVE, "end", lower),
        ("s1", LEAVE, "end", -9.0),
        ("s2", LEAVE, "orange 3", 0.0),
        ("blue 9", slice(None), "end", 9.0),
        ("orange 9", slice(None), "end", 3.0),
        ("end", slice(None), "end", 0.0),
    ):
        row = EXAMPLE_STATES.index(name)
        successor[row, action], reward[row, action] = EXAMPLE_STATES.index(target), gain
    return deterministic_table(reward, successor)


def example_policies() -> ExamplePolicies:
    """Blue always goes, orange leaves at s2, red leaves at s1.

    Red never sees s2, so the paper need not say what it does there. Here it goes: n = 10 Highway then passes through
    4, 7⅔, 9 at (S_A, ↗). Leaving would give 4, 6⅓, 9; the fixed points and the numbers of iterations
    (10, 6, 5, 4, 4, 4, 4, 3, 3, 3 for n = 1, …, 10) are the same.
    """
    blue, orange, red = np.full((3, len(EXAMPLE_STATES)), GO)
    orange[EXAMPLE_STATES.index("s2")] = LEAVE
    red[EXAMPLE_STATES.index("s1")] = LEAVE
    return ExamplePolicies(blue, orange, red)
