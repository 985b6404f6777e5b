"""Choosing by estimates and paying samples: what noise does to the paper's gate, and what it cannot do to this one."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from highway_rl.core.backup import Backup, combine_returns, gate, smax

ALPHAS = [0.0, 0.7, math.inf]


def backups(depths=3):
    return [Backup(tuple(range(1, depths + 1)), None, a, b) for a in ALPHAS for b in ALPHAS]


@pytest.mark.parametrize("backup", backups(), ids=lambda b: f"{b.depth_alpha:g}-{b.policy_alpha:g}")
def test_returns_that_choose_themselves_are_the_papers(backup):
    rng = np.random.default_rng(0)
    returns, reference = rng.normal(size=(50, 4, 3)), rng.normal(size=(50, 4))
    own = combine_returns(backup, returns, reference, by=(returns, reference))
    np.testing.assert_allclose(own, combine_returns(backup, returns, reference), rtol=1e-12, atol=1e-12)


def test_estimates_choose_and_returns_are_paid():
    """By hand: two policies, two depths, the largest of all by what is thought of them."""
    returns, reference = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([-1.0, -2.0])
    thought = np.array([[9.0, 0.0], [0.0, 8.0]]), np.array([5.0, 5.0])
    np.testing.assert_array_equal(gate(returns, reference, thought), [[1.0, -1.0], [-2.0, 4.0]])
    largest = Backup((1, 2), None, math.inf, math.inf)
    assert combine_returns(largest, returns, reference, by=thought) == 1.0
    evenly = Backup((1, 2))
    assert combine_returns(evenly, returns, reference, by=thought) == np.mean([1.0, -1.0, -2.0, 4.0])
    assert float(smax(np.array([1.0, 2.0]), 3.0, by=np.array([0.0, math.log(2.0)]))) == pytest.approx((1 + 8 * 2) / 9)


@pytest.mark.parametrize("gap", [-2.0, 0.0, 0.5])
@pytest.mark.parametrize("noise", [0.1, 1.0, 3.0])
def test_the_paper_gate_is_biased_by_noise_as_the_closed_form_says(gap, noise):
    """E max{Gⁿ, G¹} of two Gaussians, n-step deviation `noise`, 1-step 0.2: μₙΦ(d/θ) + μ₁Φ(−d/θ) + θφ(d/θ)."""
    rng, count = np.random.default_rng(1), 200_000
    deep, one = gap + noise * rng.normal(size=(count, 1)), 0.2 * rng.normal(size=count)
    width = math.hypot(noise, 0.2)
    expected = gap * norm.cdf(gap / width) + width * norm.pdf(gap / width)
    found = gate(deep, one).mean()
    assert found == pytest.approx(expected, abs=5 * width / math.sqrt(count))
    assert expected > max(gap, 0.0)  # E max ≥ max E, and more the larger the noise


@pytest.mark.parametrize("backup", backups(2), ids=lambda b: f"{b.depth_alpha:g}-{b.policy_alpha:g}")
def test_with_an_independent_chooser_luck_is_not_paid(backup):
    """Whatever the estimates, right or wrong, the mean target is between the smallest and the largest mean return, and
    for the maximum never above the operator of the means; with exact estimates it is that operator."""
    rng, count = np.random.default_rng(2), 40_000
    for _ in range(5):
        mean, base = rng.normal(size=(3, 2)), rng.normal(size=3)
        returns, reference = mean + 2 * rng.normal(size=(count, 3, 2)), base + 0.5 * rng.normal(size=(count, 3))
        exact = float(combine_returns(backup, mean, base))
        near = 5 * 2 / math.sqrt(count)
        told = np.broadcast_to(mean, returns.shape), np.broadcast_to(base, reference.shape)
        assert combine_returns(backup, returns, reference, by=told).mean() == pytest.approx(exact, abs=near)
        wrong = mean + rng.normal(size=returns.shape), base + rng.normal(size=reference.shape)
        found = combine_returns(backup, returns, reference, by=wrong).mean()
        assert min(mean.min(), base.min()) - near < found < max(mean.max(), base.max()) + near
        if backup.depth_alpha == backup.policy_alpha == math.inf:
            assert found < exact + near
            assert combine_returns(backup, returns, reference).mean() > exact + 0.5  # the paper's, on samples
