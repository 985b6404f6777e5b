"""Gate, aggregate and `Backup`: the numbers at the edges, NumPy against JAX, and what is refused."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.core import table1, targets
from highway_rl.core.backup import TO_END, Backup, combine_returns, gate, gate_open, smax

RNG = np.random.default_rng(0)
BOTH = pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def naive_smax(values, alpha, prior):
    """Σ p e^{αf} f / Σ p e^{αf}, over the live entries, in Python numbers."""
    live = [(f, p) for f, p in zip(values, prior, strict=True) if p > 0]
    if not live:
        return 0.0
    top = max(f for f, _ in live)
    if alpha == math.inf:
        return top
    weights = [p * math.exp(alpha * (f - top)) for f, p in live]
    return sum(w * f for w, (f, _) in zip(weights, live, strict=True)) / sum(weights)


# ---------------------------------------------------------------- smax


@BOTH
@pytest.mark.parametrize("alpha", [0.0, 1e-12, 0.7, 5.0, 1e6, math.inf])
def test_smax_agrees_with_its_definition(alpha, xp):
    """With prior and mask, for every α from the expectation to the maximum."""
    for _ in range(20):
        values, prior = RNG.normal(size=5), RNG.uniform(size=5) * (RNG.random(5) < 0.8)
        mask = RNG.random(5) < 0.7
        found = smax(xp.asarray(values), alpha, xp.asarray(prior), xp.asarray(mask))
        assert float(found) == pytest.approx(naive_smax(values, alpha, prior * mask), abs=1e-12)
        plain = smax(xp.asarray(values), alpha)
        assert float(plain) == pytest.approx(naive_smax(values, alpha, np.ones(5)), abs=1e-12)


@BOTH
@DTYPES
@pytest.mark.parametrize("alpha", [0.0, 1e-12, 1.0, 1e6, math.inf])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_smax_is_stable(size, alpha, dtype, xp):
    """Equal values come back as they are; large ones neither overflow nor leave [min, max]; the dtype stays."""
    equal = xp.full((4,), dtype(0.3 * size), dtype=dtype)
    assert smax(equal, alpha) == equal[0]
    values = xp.asarray(np.array([-1.0, 0.25, 1.0, 0.5]) * size, dtype=dtype)
    found = smax(values, alpha)
    assert found.dtype == dtype
    assert values[0] <= found <= values[2]
    if alpha == math.inf or alpha * size >= 1e6:
        assert found == values[2]
    if alpha * size <= 1e-12:
        assert float(found) == pytest.approx(0.1875 * size, rel=1e-5)


@BOTH
@DTYPES
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1e6, math.inf])
def test_smax_with_one_or_no_entry_left(alpha, dtype, xp):
    """One live entry is the answer whatever the others hold; none gives 0, not NaN."""
    values = xp.asarray(np.array([[7.0, -3.0, 1e30], [7.0, -3.0, 1e30]]), dtype=dtype)
    mask = xp.asarray(np.array([[False, True, False], [False, False, False]]))
    np.testing.assert_array_equal(np.asarray(smax(values, alpha, mask=mask)), np.array([-3.0, 0.0], dtype))
    np.testing.assert_array_equal(
        np.asarray(smax(values, alpha, xp.asarray(mask, dtype=dtype))), np.array([-3.0, 0.0], dtype)
    )


def test_smax_grows_with_alpha():
    """From the mean at α = 0 to the maximum at α = ∞ without ever falling."""
    values = RNG.normal(size=(50, 6)) * 3
    alphas = [0.0, 1e-12, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6, math.inf]
    found = np.stack([smax(values, alpha) for alpha in alphas])
    assert np.all(np.diff(found, axis=0) >= -1e-12)
    np.testing.assert_allclose(found[0], values.mean(axis=1), atol=1e-12)
    np.testing.assert_array_equal(found[-1], values.max(axis=1))


def test_smax_gradient_is_finite():
    """In the values and in α, also with equal values, masked entries and nothing left."""
    values = jnp.array([[1.0, 1.0, 1.0], [0.0, 2.0, -4.0], [1e30, -1e30, 0.0], [3.0, 1.0, 2.0]])
    mask = jnp.array([[True] * 3, [True, True, False], [True] * 3, [False] * 3])
    slope = jax.jit(jax.grad(lambda v, a: jnp.sum(smax(v, a, mask=mask)), argnums=(0, 1)))
    for alpha in (0.0, 1e-12, 0.5, 1e6):
        by_value, by_alpha = slope(values, alpha)
        assert np.all(np.isfinite(by_value))
        assert np.isfinite(by_alpha) or alpha < 1e-9  # the spread of ±1e30 squared is beyond float64 only at α ≈ 0
        np.testing.assert_array_equal(by_value[3], 0)
    np.testing.assert_allclose(slope(values, 0.0)[0][0], 1 / 3, rtol=1e-12)


def naive_slopes(values, alpha, prior):
    """pₓ(1 + α(f(x) − smax)), the derivative in each value, and the variance, that in α; p shares ties at α = ∞."""
    live = np.asarray(prior) > 0
    if not live.any():
        return np.zeros(len(values)), 0.0
    gap = np.where(live, values - np.max(values[live]), 0.0)
    weight = prior * ((gap == 0) if alpha == math.inf else np.exp(alpha * gap))
    share = weight / weight.sum()
    away = gap - np.sum(share * gap)
    return share * (1.0 if alpha == math.inf else 1.0 + alpha * away), np.sum(share * away**2)


@jax.jit
def slopes(values, alpha, prior, mask):
    """smax and its gradients, everything traced."""
    total = lambda v, a: jnp.sum(smax(v, a, prior, mask))  # noqa: E731
    return smax(values, alpha, prior, mask), *jax.grad(total, argnums=(0, 1))(values, alpha)


ROWS = ([1.0, 1.0, 0.5, -1.0], [0.3, -0.2, 0.9, 0.9], [-1.0, -1.0, -1.0, -1.0], [0.0, 1.0, -1.0, 0.25])
PRIORS = ([1.0, 1.0, 1.0, 1.0], [0.1, 0.3, 0.4, 0.2], [0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0])
MASKS = (None, np.array([False, True, True, True]), np.zeros(4, bool))


@pytest.mark.parametrize("alpha", [0.0, 1e-12, 0.7, 5.0, 1e30, math.inf])
@pytest.mark.parametrize(
    "as_alpha", [float, np.float64, np.array, jnp.asarray], ids=["float", "scalar", "numpy", "jax"]
)
def test_smax_gradient_is_its_derivative(alpha, as_alpha):
    """With ties, priors and masks that leave nothing, and at α = ∞ given as an array, where it is the maximum's."""
    for row, prior, mask in itertools.product(ROWS, PRIORS, MASKS):
        values, kept = np.array(row), np.array(prior) * (1.0 if mask is None else mask)
        found, by_value, by_alpha = slopes(jnp.asarray(values), as_alpha(alpha), jnp.asarray(prior), mask)
        np.testing.assert_allclose(found, naive_smax(values, alpha, kept), atol=1e-12)
        by_hand = naive_slopes(values, alpha, kept)
        np.testing.assert_allclose(by_value, by_hand[0], atol=1e-9)
        np.testing.assert_allclose(by_alpha, by_hand[1], atol=1e-9)


@DTYPES
@pytest.mark.parametrize("alpha", [0.0, 8.0, 1e30, math.inf])
def test_smax_near_the_largest_number(alpha, dtype):
    """Where the difference of two values, or the sum of all, is beyond the dtype: value and gradient are still right.

    α is in units of 1 / the largest value, so that 8 is a soft maximum; warnings are errors here.
    """
    size = dtype(3e38 if dtype == np.float32 else 1.7e308)
    for row, prior, mask in itertools.product(ROWS, PRIORS, MASKS):
        values, kept = np.array(row), np.array(prior) * (1.0 if mask is None else mask)
        large, weights = values.astype(dtype) * size, np.array(prior, dtype)
        sharpness = np.array(alpha, dtype) / size
        one = smax(large, sharpness, weights, mask)
        found, by_value, _ = slopes(jnp.asarray(large), jnp.asarray(sharpness), jnp.asarray(weights), mask)
        assert one.dtype == found.dtype == dtype
        for scaled in (one / size, found / size):
            np.testing.assert_allclose(scaled, naive_smax(values, alpha, kept), atol=1e-5)
        np.testing.assert_allclose(by_value, naive_slopes(values, alpha, kept)[0], atol=1e-5)


@BOTH
@DTYPES
@pytest.mark.parametrize("alpha", [0.0, 1e-12, 1.0, 1e30, math.inf])
def test_smax_of_the_largest_numbers_themselves(alpha, dtype, xp):
    """±max: their mean at α = 0, and the larger one, exactly, at any other α."""
    most = np.finfo(dtype).max
    values = xp.asarray(np.array([[most, -most], [-most, -most], [most, most]], dtype))
    found = smax(values, alpha, mask=xp.ones((3, 2), dtype=bool))
    np.testing.assert_array_equal(found, np.array([most if alpha else 0.0, -most, most], dtype))


# ---------------------------------------------------------------- gate, combine_returns


@BOTH
def test_gate_is_a_maximum_with_the_reference(xp):
    """Each return or the reference, whichever is larger; it is open where the return is at least the reference."""
    returns, reference = RNG.normal(size=(5, 4)), RNG.normal(size=5)
    returns[0, 0] = reference[0]
    expected = [[max(x, r) for x in row] for row, r in zip(returns, reference, strict=True)]
    np.testing.assert_array_equal(gate(xp.asarray(returns), xp.asarray(reference)), expected)
    opened = [[x >= r for x in row] for row, r in zip(returns, reference, strict=True)]
    np.testing.assert_array_equal(gate_open(xp.asarray(returns), xp.asarray(reference)), opened)


def naive_combine(backup, returns, reference, policy_prior, depth_mask):
    """One (s,a): gate, then depths, then policies, in loops; a policy without a depth drops out."""
    by_policy, weights = [], []
    depth_prior = np.broadcast_to(
        np.ones(returns.shape[-1]) if backup.depth_prior is None else backup.depth_prior, returns.shape
    )
    for p in range(len(returns)):
        gated = [x if backup.gate_depth is None else max(x, reference[p]) for x in returns[p]]
        by_policy.append(naive_smax(gated, backup.depth_alpha, depth_prior[p] * depth_mask[p]))
        weights.append(policy_prior[p] * bool(depth_mask[p].any()))
    return naive_smax(by_policy, backup.policy_alpha, weights)


@BOTH
@pytest.mark.parametrize("gate_depth", [None, 0, 1])
@pytest.mark.parametrize(("depth_alpha", "policy_alpha"), [(0.0, 0.0), (math.inf, 0.4), (2.0, math.inf), (0.0, 3.0)])
def test_combine_returns_agrees_with_loops(depth_alpha, policy_alpha, gate_depth, xp):
    """Masks, priors of their own per (s,a), two different alphas: the order is gate, depths, policies."""
    depth_prior = np.round(RNG.dirichlet(np.ones(3), size=(6, 4)), 9)
    depth_prior[..., 0] = 1 - depth_prior[..., 1:].sum(axis=-1)
    backup = Backup((1, 2, 5), depth_prior, depth_alpha, policy_alpha, gate_depth)
    returns, reference = RNG.normal(size=(6, 4, 3)), RNG.normal(size=(6, 4))
    policy_prior, depth_mask = RNG.dirichlet(np.ones(4), size=6), RNG.random((6, 4, 3)) < 0.6
    depth_mask[0] = False
    found = combine_returns(
        backup,
        xp.asarray(returns),
        xp.asarray(reference),
        policy_prior=xp.asarray(policy_prior),
        depth_mask=xp.asarray(depth_mask),
    )
    expected = [
        naive_combine(
            Backup((1, 2, 5), depth_prior[i], depth_alpha, policy_alpha, gate_depth),
            returns[i],
            reference[i],
            policy_prior[i],
            depth_mask[i],
        )
        for i in range(6)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_policies_without_a_depth_or_masked_drop_out():
    """They change nothing, however large the numbers they hold."""
    returns = np.array([[1.0, 2.0], [1e30, 1e30], [5.0, 6.0], [-1e30, 7.0]])
    reference = np.zeros(4)
    depth_mask = np.array([[True, True], [False, False], [True, True], [True, True]])
    policy_mask = np.array([True, True, True, False])
    for backup, expected in ((table1.highway((2, 3)), 3.5), (table1.highway_optimality((2, 3)), 6.0)):
        found = combine_returns(backup, returns, reference, depth_mask=depth_mask, policy_mask=policy_mask)
        assert float(found) == expected


def test_numpy_equals_jax_in_both_precisions():
    """The same code, the same numbers, the dtype that came in."""
    returns, reference = RNG.normal(size=(9, 3, 4)), RNG.normal(size=(9, 3))
    for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-14)):
        for backup in (table1.highway(range(1, 5)), table1.highway_softmax(range(1, 5), 0.3)):
            host = combine_returns(backup, returns.astype(dtype), reference.astype(dtype))
            device = jax.jit(combine_returns)(backup, jnp.asarray(returns, dtype), jnp.asarray(reference, dtype))
            assert host.dtype == device.dtype == dtype
            np.testing.assert_allclose(host, device, rtol=0, atol=tolerance)


# ---------------------------------------------------------------- Backup


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("depth", [1, 2, 7])
def test_lambda_return_weights_sum_to_one(depth, lam):
    """(1−λ)λⁿ⁻¹ below N and λᴺ⁻¹ at N; the printed (1−λ)ⁿλⁿ⁻¹ would not sum to one."""
    prior = table1.lambda_return(lam, depth).depth_prior
    expected = [(1 - lam) * lam ** (n - 1) for n in range(1, depth)] + [lam ** (depth - 1)]
    np.testing.assert_allclose(prior, expected, atol=1e-15)
    assert prior.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("build", "culprit"),
    [
        (lambda: Backup(()), "depths is empty"),
        (lambda: Backup((0,)), "depth 0 is no lookahead depth"),
        (lambda: Backup((1, -2)), "depth -2"),
        (lambda: Backup((True,)), "depth True"),
        (lambda: Backup((2, 2)), "each depth once"),
        (lambda: Backup((1, 2), [0.5, 0.2]), "depth_prior=.*sum to one"),
        (lambda: Backup((1, 2), [1.5, -0.5]), "depth_prior=.*>= 0"),
        (lambda: Backup((1, 2), [1.0]), r"depth_prior has shape \(1,\).*2 entries"),
        (lambda: Backup((1, 2), [math.nan, 1.0]), "depth_prior="),
        (lambda: Backup((1,), depth_alpha=-1.0), "depth_alpha=-1.0"),
        (lambda: Backup((1,), policy_alpha=math.nan), "policy_alpha=nan"),
        (lambda: Backup((1,), gate_depth=-1), "gate_depth=-1"),
        (lambda: table1.highway(0), "depth 0"),
        (lambda: table1.lambda_return(1.2, 3), "lam=1.2"),
        (lambda: table1.lambda_return(0.5, 0), "depths is empty"),
        (lambda: table1.expectation_gate(3, -0.1), "share=-0.1"),
        (lambda: targets.retrace(math.nan), "lam=nan"),
        (lambda: targets.sarsa_lambda(-0.5), "lam=-0.5"),
    ],
)
def test_bad_input_is_refused_in_one_line(build, culprit):
    """The error names what was wrong and fits on one line."""
    with pytest.raises(ValueError, match=culprit) as error:
        build()
    assert "\n" not in str(error.value)


def test_alphas_and_priors_are_swept_in_one_compilation():
    """They are leaves: other values compile nothing, and a sweep over them is a vmap."""
    returns, reference = jnp.asarray(RNG.normal(size=(8, 2, 3))), jnp.asarray(RNG.normal(size=(8, 2)))
    traced = []

    @jax.jit
    def value(backup):
        traced.append(1)
        return combine_returns(backup, returns, reference)

    def backup(alpha, prior):
        return Backup((1, 2, TO_END), prior, alpha, alpha)

    alphas = jnp.array([0.0, 0.1, 5.0, math.inf])
    priors = jnp.asarray(RNG.dirichlet(np.ones(3), size=4))
    one_by_one = jnp.stack([value(backup(a, p)) for a, p in zip(alphas, priors, strict=True)])
    assert len(traced) == 1
    swept = jax.jit(jax.vmap(value))(jax.vmap(backup)(alphas, priors))
    np.testing.assert_allclose(swept, one_by_one, atol=1e-13)
