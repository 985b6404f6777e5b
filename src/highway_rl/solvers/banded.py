"""Direct solves where states lie in a row: chains and queues, whose moves reach few places up and down.

If no move goes further than b places, I − γP^π has 2b + 1 diagonals and a direct solve takes about S·b² steps. The test
is one of structure: b² at most ten times the entries a state has, so that a solve costs no more than ten full backups.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import solve_banded

from highway_rl.solvers.chooser import Meter
from highway_rl.solvers.rows import CompiledPolicy, CompiledRows, Value


def bands_of(rows: Any) -> tuple[int, int] | None:
    """How many places moves go down and up; None where they go too far, or the rows are not compiled."""
    if not isinstance(rows, CompiledRows) or rows.drift is None:
        return None
    S, A = rows.shape
    most = math.isqrt(10 * rows.work // S)
    down, up = rows.shapes.reach(rows.start, rows.successor, rows.probability, A, S, most)
    return (down, up) if max(down, up) <= most else None


def banded(rows: CompiledRows, bands: tuple[int, int], meter: Meter) -> Any:
    """A proposal: the policy's value by a direct solve with these bands."""
    down, up = bands

    def banded(policy: Any, x: Value) -> Value:
        chosen: CompiledPolicy = policy.inner
        meter.add(4 * policy.work, len(x))
        diagonals = np.zeros((down + up + 1, len(x)))
        rows.shapes.fill_bands(*chosen.parts[:3], rows.discount, rows.weight, up, diagonals)
        return solve_banded(bands, diagonals, np.where(rows.weight > 0, chosen.reward, 0.0), check_finite=False)

    return banded
