"""Planning on a known model, every answer with a certified error. Imports types, checks, core, mdp,
machines.

The default, `highway_solve`, takes any guess at V* through the gate (`gated.py`): guesses from sweeps, Krylov solves or
ordered sweeps (`proposals.py`, `ordered.py`), chosen by what was measured (`chooser.py`), on compiled rows (`rows.py`).

The plain methods share one loop: a full backup q = r + γPV prices every action, brackets V*, and names the greedy
policy; then the method moves V.

    value iteration            V ← max_a q                                     (𝓑V)
    policy iteration           V ← V^π, or `sweeps` backups 𝓑^π of 𝓑V          (π greedy)
    Highway value iteration    V ← smax_{π∈Π̂} smax_{n∈𝒩} max{(𝓑^π)ⁿ⁻¹𝓑V, 𝓑V}    (Eq. 7, Algorithm 1)
    ordered Gauss–Seidel       V(s) ← max_a q(s,a), states nearest the end first

Model queries are counted three ways (`Queries`), because the paper's comparison depends on which is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from highway_rl import checks
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers.average import Average, average_reward
from highway_rl.solvers.blocks import BlockRows, block_solve
from highway_rl.solvers.classic import gauss_seidel, policy_iteration, value_iteration
from highway_rl.solvers.free import FreeRows
from highway_rl.solvers.gated import highway_solve
from highway_rl.solvers.highway import highway_value_iteration
from highway_rl.solvers.loop import Queries, Solution

__all__ = [
    "ALIASES",
    "METHODS",
    "Average",
    "BlockRows",
    "FreeRows",
    "Queries",
    "Solution",
    "average_reward",
    "block_solve",
    "gauss_seidel",
    "highway_solve",
    "highway_value_iteration",
    "policy_iteration",
    "solve",
    "value_iteration",
]

METHODS: dict[str, Callable[..., Solution]] = {
    "gated": highway_solve,
    "highway": lambda mdp, **options: highway_value_iteration(mdp, **{"lift": True, **options}),
    "value-iteration": value_iteration,
    "policy-iteration": policy_iteration,
    "modified-policy-iteration": lambda mdp, **options: policy_iteration(mdp, **{"sweeps": 10, **options}),
    "gauss-seidel": lambda mdp, **options: gauss_seidel(mdp, **{"lift": True, **options}),
}
ALIASES = {
    "vi": "value-iteration",
    "pi": "policy-iteration",
    "mpi": "modified-policy-iteration",
    "hvi": "highway",
    "gs": "gauss-seidel",
}


def solve(mdp: MDP | SparseMDP, method: str = "gated", tol: float = 1e-6, **options: Any) -> Solution:
    """Solve a model to a certified sup-norm error of `tol`.

    The default is `highway_solve`; "highway" is Algorithm 1 with the paper's settings. That and
    "gauss-seidel" lift V to its certified lower bound (see `highway_value_iteration`).
    `method` is a name in METHODS; `options` go to that method (max_iters, progress, time_limit, sweeps, …).
    """
    name = ALIASES.get(method, method)
    if name not in METHODS:
        raise checks.unknown("method", method, METHODS)
    return METHODS[name](mdp, tol=tol, **options)
