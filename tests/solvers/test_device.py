"""The gated solver as one JAX program: the same answers, many models at once, one compilation, bounds by dtype."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from models import grid, precise_value

from highway_rl import MDP, envs
from highway_rl.solvers import device, highway_solve
from highway_rl.solvers.device import solve_many


def test_one_model_is_solved_as_on_the_host() -> None:
    for mdp in (envs.make("garnet", states=80, discount=0.95), grid(5, 0.9), envs.make("queue", discount=0.95)):
        found, host = solve_many(mdp, 1e-7), highway_solve(mdp, 1e-7)
        assert float(found.bound) <= 1e-7
        np.testing.assert_allclose(found.value, host.value, atol=2e-7)
        off = np.abs(np.asarray(found.value) - precise_value(mdp).astype(float)).max() if mdp.num_states < 50 else 0.0
        assert off <= float(found.bound)


def test_many_rewards_and_discounts_are_solved_side_by_side() -> None:
    """vmapped ≡ looped, with the transitions shared; the second call compiles nothing."""
    mdp = envs.make("garnet", states=40, discount=0.9)
    rewards = np.random.default_rng(0).normal(size=(5, 40, 4))
    found = solve_many(mdp, 1e-7, reward=rewards)
    assert found.value.shape == (5, 40)
    assert np.all(np.asarray(found.bound) <= 1e-7)
    for reward, value in zip(rewards, found.value, strict=True):
        np.testing.assert_allclose(value, highway_solve(dataclasses.replace(mdp, reward=reward), 1e-7).value, atol=2e-7)
    compiled = device._solve_all._cache_size()
    solve_many(mdp, 1e-7, reward=rewards + 1)
    assert device._solve_all._cache_size() == compiled
    found = solve_many(mdp, 1e-7, discount=[0.5, 0.9, 0.95])
    for gamma, value in zip((0.5, 0.9, 0.95), found.value, strict=True):
        alone = dataclasses.replace(mdp, discount=np.full((40, 4), gamma))
        np.testing.assert_allclose(value, highway_solve(alone, 1e-7).value, atol=2e-7)


def test_single_precision_bounds_count_its_rounding() -> None:
    """A tolerance below float32 is not reached, and the bound returned still holds."""
    mdp = envs.make("garnet", states=40, discount=0.95)
    small = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, mdp)
    found = solve_many(small, 1e-9)
    assert found.value.dtype == np.float32
    assert 1e-9 < float(found.bound) < 1e-2
    exact = MDP(*(np.asarray(x, np.float64) if x.dtype == np.float32 else x for x in dataclasses.astuple(small)))
    assert np.abs(np.asarray(found.value) - highway_solve(exact, 1e-9).value).max() <= float(found.bound)


def test_refusals() -> None:
    mdp = grid(3, 0.9)
    with pytest.raises(ValueError, match="discount"):
        solve_many(grid(3, 1.0))
    with pytest.raises(ValueError, match="at most one axis of models"):
        solve_many(mdp, reward=np.zeros((2, 2, 9, 4)))
    with pytest.raises(ValueError, match="tol=0"):
        solve_many(mdp, 0.0)
