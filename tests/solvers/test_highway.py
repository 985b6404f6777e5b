"""Highway value iteration against a naive transcription of Algorithm 1, and what its shortcuts may not change."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from models import dense, grid, precise_value, random_mdp, stopping_mdp

from highway_rl import MDP, TO_END, Backup, operator, solve
from highway_rl.core.table1 import highway, highway_optimality, highway_softmax
from highway_rl.solvers import highway_value_iteration


def naive(
    mdp: MDP,
    num_iters: int,
    backup: Backup,
    M: int,
    K: int,
    prior: Callable[[int], Any] | None = None,
    initial: Any = (),
) -> list[np.ndarray]:
    """Algorithm 1 word for word, on dense arrays: V₁, V₂, …"""
    P, R, g = dense(mdp)
    rows = np.arange(len(R))
    v, policies, values = np.zeros(len(R)), list(initial)[-M:], []
    for k in range(num_iters):
        q = R + g * (P @ v)
        if k % K == 0:
            policies = [*policies, q.argmax(1)][-M:]
        one_step = q.max(1)
        by_policy = []
        for policy in policies:
            w, gated = one_step, {}
            for n in range(1, max(backup.depths) + 1):
                gated[n] = np.maximum(w, one_step)
                w = R[rows, policy] + g[rows, policy] * (P[rows, policy] @ w)
            by_policy.append(aggregate([gated[n] for n in backup.depths], backup.depth_alpha, backup.depth_prior))
        v = aggregate(by_policy, backup.policy_alpha, None if prior is None else prior(len(policies)))
        values.append(v)
    return values


def aggregate(columns: list[np.ndarray], alpha: float, prior: Any) -> np.ndarray:
    x = np.stack(columns)
    p = np.full(len(columns), 1 / len(columns)) if prior is None else np.asarray(prior)
    if alpha == math.inf:
        return x[p > 0].max(0)
    weight = p[:, None] * np.exp(alpha * (x - x.max(0)))
    return (weight * x).sum(0) / weight.sum(0)


DEPTHS = [(1,), (3,), (7, 2), (1, 2, 4, 8), tuple(range(1, 11)), (5,), (1, 20)]
AGGREGATES = {"max": highway_optimality, "mean": highway, "softmax": lambda depths: highway_softmax(depths, 2.0)}


@pytest.mark.parametrize("depths", DEPTHS, ids=str)
@pytest.mark.parametrize("how", AGGREGATES)
def test_every_iteration_is_algorithm_1(depths: tuple[int, ...], how: str) -> None:
    """Early exit and pointer doubling change nothing: ‖V_k − V_{k−1}‖ and V_k equal the naive ones, k = 1…12."""
    backup = AGGREGATES[how](depths)
    for seed in range(6):
        mdp = random_mdp(seed, deterministic=seed % 2 == 0, discount=0.9, ends=seed % 3)
        M, K = 1 + seed % 3, 1 + seed % 4
        expected = naive(mdp, 12, backup, M, K)
        history = moved(mdp, 12, backup=backup, num_policies=M, policy_interval=K)
        scale = max(1.0, float(np.abs(expected).max()))
        for v, w in zip(history, expected, strict=False):
            np.testing.assert_allclose(v, w, atol=1e-12 * scale)
        assert len(history) >= 3 or np.allclose(expected[0], expected[-1])


@pytest.mark.parametrize("depths", [(5,), (4, 1), (3, 7), (1, 6)], ids=str)
@pytest.mark.parametrize("how", AGGREGATES)
def test_early_exit_waits_until_nothing_kept_back_is_larger(depths: tuple[int, ...], how: str) -> None:
    """Returns that rise at depth 2 and then fall everywhere: the fall alone is no reason to stop at depth 3.

    Action 0 walks 0 → 1 → 2 → end for 0, 1, −5; action 1 ends at once, and looks better in state 0.
    """
    P = np.zeros((4, 2, 4))
    P[..., 3] = 1.0
    P[[0, 1], 0] = [[0.0, 0.99, 0.0, 0.01], [0.0, 0.0, 0.99, 0.01]]
    mdp = MDP.from_dense(P, [[0.0, 0.001], [1.0, 0.0], [-5.0, 0.0], [0.0, 0.0]], 0.9)
    backup, walk = AGGREGATES[how](depths), np.zeros(4, int)
    expected = naive(mdp, 3, backup, 2, 1, None, [walk])
    for v, w in zip(
        moved(mdp, 3, backup=backup, num_policies=2, policy_interval=1, policies=[walk]), expected, strict=False
    ):
        np.testing.assert_allclose(v, w, atol=1e-12)


def moved(mdp: MDP, num_iters: int, **options: Any) -> list[np.ndarray]:
    """The V_k of one run, recorded where the loop records them."""
    import highway_rl.solvers.highway as module

    values: list[np.ndarray] = []
    original = module.combine_returns

    def record(*args: Any, **kwargs: Any) -> Any:
        v = original(*args, **kwargs)
        values.append(np.array(v))
        return v

    module.combine_returns = record  # type: ignore[assignment]
    try:
        highway_value_iteration(mdp, max_iters=num_iters, tol=1e-9, until="change", **options)
    finally:
        module.combine_returns = original
    return values


def test_priors_over_depths_and_policies_and_an_initial_set() -> None:
    """Selection distributions weigh depths and policies; the initial policies stand before the greedy ones."""
    for seed in range(6):
        mdp = random_mdp(seed, discount=0.9, deterministic=seed % 2 == 0)
        rng = np.random.default_rng(seed)
        initial = [rng.integers(0, mdp.num_actions, mdp.num_states) for _ in range(4)]
        for backup in (highway((1, 3, 6), [0.2, 0.0, 0.8]), Backup((2, 5, 9), [0.0, 1.0, 0.0], depth_alpha=math.inf)):
            options = {"num_policies": 3, "policy_interval": 2}

            def prior(n: int) -> np.ndarray:
                return np.arange(1, n + 1) / (n * (n + 1) / 2)

            expected = naive(mdp, 8, backup, 3, 2, prior, initial)
            values = moved(mdp, 8, backup=backup, policies=initial, policy_prior=prior, **options)
            for v, w in zip(values, expected, strict=False):
                np.testing.assert_allclose(v, w, atol=1e-11)


def test_one_iteration_is_the_operator_of_table_1() -> None:
    """Where nothing is random, one-step pricing T commutes with max: 𝒢(TV) = T(𝒢V), Q-form and V-form agree.

    T V = r + γPV turns (𝓑^π)ⁿ⁻¹𝓑V into (𝓑^π)ⁿ⁻¹𝓑(TV) for every π and n, and is monotone and single-valued.
    """
    backup = highway_optimality((1, 3, 4))
    for seed in range(4):
        mdp = random_mdp(seed, deterministic=True, discount=0.9)
        model = mdp.sparse()
        apply = jax.jit(lambda policy, q, mdp=mdp: operator(backup, mdp, policy[None])(q))
        values = [np.zeros(mdp.num_states), *moved(mdp, 5, backup=backup, num_policies=1, policy_interval=1)]
        for v, after in pairwise(values):
            q = model.q_values(v)
            np.testing.assert_allclose(np.asarray(apply(q.argmax(1), q)), model.q_values(after), atol=1e-10)


def test_queries_are_counted_three_ways() -> None:
    """Rows: S·A + |Π|(N−1)S each iteration; distinct: S·A; cached: S·A, and S per new policy."""
    mdp = grid(6, 0.99)
    S, A = 36, 4
    solution = highway_value_iteration(mdp, max_iters=9, tol=1e-12, num_policies=2, policy_interval=3)
    assert solution.num_iters == 9
    sizes = [min(2, math.ceil(k / 3)) for k in range(1, 10)]
    assert solution.num_queries.rows == 9 * S * A + sum(sizes) * 9 * S
    assert solution.num_queries.distinct == 9 * S * A
    assert solution.num_queries.cached == 9 * S * A + 3 * S
    assert solution.history["rows"].tolist() == np.cumsum([S * A + n * 9 * S for n in sizes]).tolist()
    first = [np.zeros(S, int), np.ones(S, int)]
    started = highway_value_iteration(mdp, max_iters=1, tol=1e-12, policies=first)
    assert started.num_queries == (S * A + 3 * 9 * S, S * A, S * A + 3 * S)
    for options, extra in (({"sweeps": 10}, (10 * S, 0, S)), ({"sweeps": None}, (S, 0, S)), ({"sweeps": 0}, (0, 0, 0))):
        queries = solve(mdp, "pi", max_iters=3, tol=1e-12, **options).num_queries
        assert queries == tuple(3 * (S * A + x) for x in extra)
    assert solve(mdp, "vi", max_iters=3, tol=1e-12).num_queries == (3 * S * A,) * 3
    assert solve(mdp, "gs", max_iters=1, tol=1e-12).num_queries == (2 * S * A, S * A, S * A)


def test_early_exit_reads_fewer_rows_of_a_random_world() -> None:
    """Negative rewards from V = 0: one sweep lowers everything, which tells that all deeper returns fail too."""
    mdp = grid(5, 0.9, slip=0.2, step_reward=-1.0)
    S, A = 25, 4
    solution = highway_value_iteration(mdp, max_iters=1, tol=1e-9)
    assert solution.num_queries.rows == S * A + S


@pytest.mark.parametrize("make", [random_mdp, stopping_mdp, lambda seed: random_mdp(seed, ends=1)])
def test_lift_stays_below_the_optimum_and_never_lowers(make: Any) -> None:
    """With lift every V_k ≤ V* and V_k ≤ V_{k+1} (up to rounding)."""
    for seed in range(12):
        mdp = make(seed)
        reference = precise_value(mdp).astype(float)
        scale = 1e-10 * max(1.0, np.abs(reference).max())
        values = moved(mdp, 60, lift=True)
        for v in values:
            assert np.all(v <= reference + scale)
        for v, after in pairwise(values):
            assert np.all(after >= v - scale)
        assert highway_value_iteration(mdp, tol=1e-7, lift=True).converged


def test_refusals() -> None:
    """Empty sets, depth 0, malformed policies, priors and depths: one line each, naming the culprit."""
    mdp = grid(3, 0.9)
    good = np.zeros(9, int)
    for options, says in (
        ({"num_policies": 0}, "num_policies=0"),
        ({"policy_interval": 0}, "policy_interval=0"),
        ({"policies": [good[:4]]}, r"policy has shape \(4,\) and dtype int64: give 9 whole numbers"),
        ({"policies": [good + 0.5]}, "dtype float64: give 9 whole numbers"),
        ({"policies": [good, good + 4]}, "policy takes action 4 in state 0: give 0 to 3"),
        ({"policies": [good - 1]}, "policy takes action -1 in state 0"),
        ({"policy_prior": lambda n: np.ones(n + 1)}, r"policy_prior has shape \(2,\): give 1 entries"),
        ({"policy_prior": lambda n: -np.ones(n)}, r"policy_prior=\[-1.0\]: give entries >= 0"),
        ({"backup": Backup((3,), gate_depth=None)}, "gate_depth=None: give 1"),
        ({"backup": highway((1, TO_END))}, "finite depths"),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            highway_value_iteration(mdp, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="the set of behavioural policies is empty"):
        operator(highway((3,)), mdp, np.zeros((0, 9, 4)))
    for depths, says in (((0,), "depth 0"), ((), "depths is empty"), ((1, 1), "each depth")):
        with pytest.raises(ValueError, match=says):
            highway(depths)
    assert highway_value_iteration(mdp, policies=[]).converged
