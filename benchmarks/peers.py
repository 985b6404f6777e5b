"""Other packages' solvers behind one call each: build their form of a model, solve it to a tolerance, hand back V.

A peer that is not installed is left out. Each is a function of a model that returns its methods by name; the time of
that is its set-up, reported on its own. A method takes a tolerance and returns V and the seconds it took.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from highway_rl import SparseMDP

Solve = Callable[[float], tuple[np.ndarray, float]]


def timed(call: Callable[[float], np.ndarray]) -> Solve:
    def solve(tol: float) -> tuple[np.ndarray, float]:
        start = time.perf_counter()
        value = call(tol)
        return value, time.perf_counter() - start

    return solve


def quantecon(mdp: SparseMDP) -> dict[str, Solve]:
    """DiscreteDP on state-action pairs: value iteration, modified policy iteration; policy iteration where it fits."""
    from quantecon.markov import DiscreteDP

    S, A = mdp.reward.shape
    states, actions = np.repeat(np.arange(S), A), np.tile(np.arange(A), S)
    ddp = DiscreteDP(mdp.reward.ravel(), mdp.transition, float(mdp.discount[0, 0]), states, actions)

    def method(name: str, **options: Any) -> Solve:
        return timed(lambda tol: ddp.solve(name, epsilon=tol, max_iter=10**7, **options).v)

    found = {f"MPI({k})": method("modified_policy_iteration", k=k) for k in (20, 50)}
    found["VI"] = method("value_iteration")
    if S <= 2000:  # its direct solve fills up
        found["PI"] = timed(lambda tol: ddp.solve("policy_iteration", max_iter=1000).v)
    return found


def storm(mdp: SparseMDP) -> dict[str, Solve]:
    """Storm's value iteration for discounted rewards; costs are minimised, mixed rewards raised above 0 first."""
    import stormpy
    from stormpy import datastructures, models

    S, A = mdp.reward.shape
    P = mdp.transition.tocoo()
    gamma = float(mdp.discount[0, 0])
    builder = datastructures.SparseMatrixBuilder[float](
        rows=S * A, columns=S, entries=P.nnz, has_custom_row_grouping=True, row_groups=S
    )
    builder.add_next_values(P.row.tolist(), P.col.tolist(), P.data.tolist(), list(range(0, S * A, A)))
    costs = bool(mdp.reward.max() <= 0)
    shift = 0.0 if costs else max(0.0, -float(mdp.reward.min()))
    paid = -mdp.reward if costs else mdp.reward + shift
    label = models.StateLabeling(S)
    label.add_label("init")
    label.add_label_to_state("init", 0)
    parts = models.SparseModelComponents[float](
        transition_matrix=builder.build(),
        state_labeling=label,
        reward_models={"r": models.SparseRewardModel[float](optional_state_action_reward_vector=paid.ravel().tolist())},
    )
    model = models.SparseMdp[float](parts)
    [what] = stormpy.parse_properties(f'R{{"r"}}{"min" if costs else "max"}=? [Cdiscount={gamma}]')

    def solve(tol: float) -> np.ndarray:
        environment = stormpy.Environment()
        settings = environment.solver().min_max()
        settings.method = stormpy.environments.MinMaxMethod.VALUE_ITERATION
        settings.precision = stormpy.Rational(tol)
        settings.relative_termination_criterion = False
        value = np.array(stormpy.model_checking(model, what, environment=environment).get_value_vector())
        return -value if costs else value - shift / (1 - gamma)

    return {"VI": timed(solve)}


def mdpsolver(mdp: SparseMDP) -> dict[str, Solve]:
    """Nested lists in, C++ with threads inside: modified policy iteration and value iteration."""
    import mdpsolver as package

    S, A = mdp.reward.shape
    P = mdp.transition
    columns, chances = np.split(P.indices, P.indptr[1:-1]), np.split(P.data, P.indptr[1:-1])
    to = [[columns[s * A + a].tolist() for a in range(A)] for s in range(S)]
    chance = [[chances[s * A + a].tolist() for a in range(A)] for s in range(S)]
    discount, reward = float(mdp.discount[0, 0]), mdp.reward.tolist()

    def method(name: str) -> Solve:
        def solve(tol: float) -> tuple[np.ndarray, float]:
            model = package.model()  # a fresh one: a second solve starts from the first one's values
            model.mdp(discount=discount, rewards=reward, tranMatProbs=chance, tranMatColumns=to)
            start = time.perf_counter()
            model.solve(algorithm=name, tolerance=tol)
            seconds = time.perf_counter() - start
            return np.array(model.getValueVector()), seconds

        return solve

    return {"MPI": method("mpi"), "VI": method("vi")}


def pymdptoolbox(mdp: SparseMDP) -> dict[str, Solve]:
    """One SciPy matrix per action; its value iteration returns V shifted by a constant, so only MPI is asked."""
    import mdptoolbox.mdp

    A = mdp.num_actions
    P = [mdp.transition[a::A] for a in range(A)]
    gamma = float(mdp.discount[0, 0])

    def solve(tol: float) -> np.ndarray:
        planner = mdptoolbox.mdp.PolicyIterationModified(P, mdp.reward, gamma, epsilon=tol, max_iter=10**6)
        planner.run()
        return np.array(planner.V)

    return {"MPI": timed(solve)}


PACKAGES = {"quantecon": quantecon, "stormpy": storm, "mdpsolver": mdpsolver, "mdptoolbox": pymdptoolbox}
SMALL_ONLY = {"mdptoolbox": 5_000, "mdpsolver": 200_000, "stormpy": 200_000}
"""States up to which a package is asked: beyond, set-up alone takes minutes."""


def peers(mdp: SparseMDP) -> dict[str, Callable[[SparseMDP], dict[str, Solve]]]:
    """Those that are installed and take a model of this size."""
    return {
        name: build
        for name, build in PACKAGES.items()
        if importlib.util.find_spec(name) and mdp.num_states <= SMALL_ONLY.get(name, 10**9)
    }
