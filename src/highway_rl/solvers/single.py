"""Sweeps of a policy in single precision, where values come from main memory: half as many bytes, no less certain.

What sweeps add to x is counted, not x itself:

    (𝓑^π)ᵐ x = x + e_m        e_1 = 𝓑^π x − x,  e_m = e_1 + γP^π e_(m−1)

so rounding is relative to e, which shrinks from one guess to the next. The guess is certified in doubles, as any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from highway_rl.solvers.drift import Spread

Value = Float[np.ndarray, "s"]
FAR, NEAR = 65_536, 8_192
"""Values that outgrow a core's own cache, half a megabyte; and those that stay in its nearest one."""
BLUR = 32 * float(np.finfo(np.float32).eps)
"""The spread of a change, beside the sum of changes, at which the rounding of single precision may show."""


def scattered(rows: Any) -> bool:
    """Whether there are many states, and the successors of most lie far from them: looked up in a thousand entries."""
    S, A = rows.shape
    if S < FAR:
        return False
    some = np.linspace(0, rows.work - 1, 1000).astype(np.uint64)
    start, count = rows.start, np.uint64(A)
    row = some // np.uint64(len(start)) if isinstance(start, tuple) else np.searchsorted(start, some, "right") - 1
    return bool(np.median(np.abs(rows.successor[some].astype(np.int64) - (row // count).astype(np.int64))) >= NEAR)


class Single:
    """The rows of a compiled policy with single chances, and a change for a reward."""

    def __init__(self, policy: Any, before: Value, after: Value) -> None:
        self.policy, self.work = policy, policy.work
        self.reward: Value = np.empty(len(before), np.float32)
        np.subtract(after, before, out=self.reward, casting="same_kind")

    def sweep(self, x: Value, out: Value) -> Spread:
        """out ← reward + γP^π x, and how much it changed."""
        return self.policy.run(self.policy.single, self.reward, x, out)


def around(policy: Any, before: Value, after: Value) -> Any:
    """The rows in single precision with this change for a reward; None where that saves nothing."""
    return policy.around(before, after) if hasattr(policy, "around") else None


class Swept:
    """x under sweeps of a policy: in doubles, then what they add in single precision, in doubles where that blurs."""

    def __init__(self, policy: Any, x: Value) -> None:
        self.policy, self.x = policy, x
        self.single: Any = None
        self.added: list[Value] = []
        self.spare: Value | None = None
        self.begun = False

    def step(self) -> float:
        """One more sweep; the spread of its change."""
        if self.single is not None:
            found = self.single.sweep(self.added[0], self.added[1])
            self.added.reverse()
            if not found.width > BLUR * found.size:
                self.x, self.single = self.value(), None
            return found.width
        image = np.empty_like(self.x) if self.spare is None else self.spare
        found = self.policy.sweep(self.x, image)
        if self.begun:
            self.x, self.spare = image, self.x
            return found.width
        self.begun = True  # the first x is the caller's
        if found.width > 0.01 * max(abs(found.low), abs(found.high)):
            self.single = around(self.policy, self.x, image)
        if self.single is None:
            self.x = image
        else:
            self.added = [self.single.reward.copy(), np.empty_like(self.single.reward)]
        return found.width

    def value(self) -> Value:
        """Where the sweeps have come to."""
        return self.x if self.single is None else self.x + self.added[0]
