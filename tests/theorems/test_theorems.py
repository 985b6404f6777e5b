"""The paper's theorems and remarks on the multi-step and Highway operators, each on 64 random worlds in float64.

Where the printed statement is too strong, the test is of the corrected one and shows what goes wrong with the other.
Selection weights differ per (s,a) throughout, as the paper allows. The rows of Table 1 that evaluate a target
policy are in `test_table1.py`. `WORLDS=256 pytest tests/theorems tests/core` takes more worlds.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import (
    NUM_WORLDS,
    POLICIES,
    STATES,
    Draws,
    acting_best,
    n_step_value,
    norm,
    one_step_value,
    random_worlds,
)

from highway_rl.core import table1
from highway_rl.core.backup import TO_END
from highway_rl.mdp.model import MDP
from highway_rl.mdp.operators import bellman, bellman_expectation, fixed_point, operator

CLOSE = 1e-9
DEPTHS = [(1, 2, 6), (4, TO_END)]


def on_worlds(check, worlds=None):
    """`check` on every world at once."""
    results = jax.jit(jax.vmap(check))(random_worlds() if worlds is None else worlds)
    assert all(len(x) == NUM_WORLDS for x in jax.tree.leaves(results))
    return results


def general(make, world, depths, policies=None, **options):
    """The operator with selection weights of its own at every (s,a)."""
    policies = world.policies if policies is None else policies
    return operator(
        make(depths, prior=world.depth_prior(depths), **options), world.mdp, policies, policy_prior=world.policy_prior
    )


def limit(apply, world, shallowest=1):
    """The fixed point of an operator that contracts with γ^shallowest: 0.97^900 < 1e-11."""
    return fixed_point(apply, world.best - 1.0, max(8, 900 // shallowest))


def approach(apply, world, start, goal, num_iters=40):
    """How far the iterates get beyond the distance γᵏ‖Q₀ − goal‖ they may keep, at worst: ≤ 0 is convergence."""
    _, path = jax.lax.scan(lambda q, _: (apply(q),) * 2, start, length=num_iters)
    distance = jnp.max(jnp.abs(path - goal), axis=(1, 2))
    return jnp.max(distance - world.discount ** jnp.arange(1.0, num_iters + 1) * norm(start - goal))


def limited(gate_depth):
    return lambda depths, prior: table1.limited_gate(depths, gate_depth, prior)


def optimal_where_entered(world):
    """Policies that are optimal in every state some action leads to, and anything in state 0, which none does."""
    never = jnp.arange(STATES)[:, None] == 0
    return jnp.where(never, world.policies, acting_best(world.best))


def one_mistake(world):
    """The same, except that the second policy takes the worst action in one state that (0, 0) may lead to."""
    there = jnp.arange(STATES) == world.mdp.successor[0, 0, 0].astype(int)
    worst = acting_best(-world.best)
    policies = optimal_where_entered(world)
    return policies.at[1].set(jnp.where(there[:, None], worst, policies[1]))


# ---------------------------------------------------------------- Section 2: convergence


def test_contraction_with_a_fixed_point_implies_convergence():
    """Remark: an operator that shrinks every distance to its fixed point by ξ < 1 converges to it from anywhere.

    The k-th iterate is within γᵏ of the start's distance; shown for 𝓑, 𝓑^π, 𝒢, 𝒢* and 𝒢^α.
    """

    def check(w):
        applies = [
            (lambda q: bellman(w.mdp, q), w.best),
            (lambda q: bellman_expectation(w.mdp, w.policies[0], q), w.own[0]),
            (general(table1.highway, w, (2, 5)), w.best),
            (operator(table1.highway_optimality((2, 5)), w.mdp, w.policies), w.best),
            (operator(table1.highway_softmax((2, 5), 0.7), w.mdp, w.policies), w.best),
        ]
        return jnp.stack([approach(apply, w, w.q, goal) for apply, goal in applies])

    assert np.max(on_worlds(check)) <= CLOSE


def test_bellman_optimality_operator():
    """𝓑 is a γ-contraction with fixed point Q*."""

    def check(w):
        shrinks = w.discount * norm(w.q - w.other) - norm(bellman(w.mdp, w.q) - bellman(w.mdp, w.other))
        return shrinks, norm(bellman(w.mdp, w.best) - w.best), norm(bellman(w.mdp, w.q) - one_step_value(w.mdp, w.q))

    shrinks, residual, difference = on_worlds(check)
    assert np.min(shrinks) >= -CLOSE
    assert np.max(residual) <= CLOSE
    assert np.max(difference) <= CLOSE


# ---------------------------------------------------------------- Section 3: multi-step operators underestimate


@pytest.mark.parametrize("depths", [(4,), (2, 6, 3)])
def test_theorem_1_contraction(depths):
    """𝓑^𝒩 contracts with γ^{min 𝒩}.

    The proof prints γⁿ after a maximum over n, which is no number; read as the largest depth it is false, because a
    constant shift c comes out as 𝔼[γⁿ]·c.
    """

    def check(w):
        apply = general(table1.multi_step, w, depths)
        rate = w.discount ** min(depths)
        shrinks = rate * norm(w.q - w.other) - norm(apply(w.q) - apply(w.other))
        shifted = norm(apply(w.q + 1.0) - apply(w.q))
        return shrinks, rate - shifted, shifted - w.discount ** max(depths)

    shrinks, within, beyond = on_worlds(check)
    assert np.min(shrinks) >= -CLOSE
    assert np.min(within) >= -CLOSE
    assert np.min(beyond) >= (1e-6 if len(depths) > 1 else -CLOSE)


@pytest.mark.parametrize("depths", [(1, 4), (3, TO_END)])
def test_theorem_1_fixed_point_is_at_most_optimal(depths):
    """𝓑^𝒩 has one fixed point, reached from anywhere, and it is ≤ Q*; here, with policies that err, < somewhere."""

    def check(w):
        apply = general(table1.multi_step, w, depths)
        found = limit(apply, w, min(depths))
        return jnp.min(w.best - found), norm(w.best - found), norm(apply(found) - found), approach(apply, w, w.q, found)

    below, gap, residual, distance = on_worlds(check)
    assert np.min(below) >= -CLOSE
    assert np.min(gap) > 1e-4
    assert np.max(residual) <= CLOSE
    assert np.max(distance) <= CLOSE


@pytest.mark.parametrize(
    ("make", "depths"),
    [(table1.multi_step, (2, 4)), (limited(2), (4,)), (limited(3), (2,))],
)
def test_theorem_1_and_remark_gate_above_one_equality(make, depths):
    """The fixed point is Q* if and only if every policy is optimal wherever some action leads (Thm. 1, Remark n₁ > 1).

    What a policy does in a state that nothing leads to is free, and so is a policy that is never selected. One wrong
    action in one state that can be entered is enough to lose Q* at the (s,a) before it.
    """

    def check(w):
        never_selected = w.policy_prior.at[..., 1].set(0.0)
        policies = jnp.stack([optimal_where_entered(w), one_mistake(w), one_mistake(w)])
        priors = jnp.stack([w.policy_prior, never_selected, w.policy_prior])

        def loss(policies, prior):
            return w.best - limit(general(make, w._replace(policy_prior=prior), depths, policies), w, min(2, *depths))

        return jax.vmap(loss)(policies, priors)

    optimal, unselected, mistaken = np.moveaxis(on_worlds(check, random_worlds(never_entered=1)), 1, 0)
    assert np.max(np.abs(optimal)) <= CLOSE
    assert np.max(np.abs(unselected)) <= CLOSE
    assert np.min(mistaken) >= -CLOSE
    assert np.min(mistaken[:, 0, 0]) > 1e-8


def multi_step_limit(world, policies, n):
    return limit(operator(table1.multi_step(n), world.mdp, policies), world, n)


def test_theorem_2_underestimation_grows_with_depth():
    """One policy, n a multiple of n': the n-step fixed point ≤ the n'-step one ≤ Q*."""

    def check(w):
        def each(policy):
            found = {n: multi_step_limit(w, policy[None], n) for n in (2, 3, 4, 6)} | {1: w.best}
            pairs = [(2, 1), (3, 1), (4, 2), (6, 2), (6, 3)]
            return jnp.stack([jnp.min(found[b] - found[a]) for a, b in pairs]), norm(found[2] - found[6])

        return jax.vmap(each)(w.policies)

    below, gap = on_worlds(check)
    assert np.min(below) >= -CLOSE
    assert np.mean(gap > 1e-3) > 0.9


def test_theorem_2_needs_both_of_its_conditions():
    """Not "for simplicity": without n mod n' = 0, or with two policies, a deeper fixed point can be the larger one."""

    def check(w):
        draw = Draws(w.draw)
        pair = jnp.stack([draw.actions(), draw.actions()])
        found = {n: multi_step_limit(w, pair[:1], n) for n in (2, 3)}
        both = {n: multi_step_limit(w, pair, n) for n in (2, 4)}
        return jnp.max(found[3] - found[2]), jnp.max(both[4] - both[2])

    not_a_multiple, two_policies = on_worlds(check, random_worlds(seed=4))  # some of these show both
    assert np.max(not_a_multiple) > 1e-2
    assert np.max(two_policies) > 1e-2


def test_theorem_2_limit_is_the_policies_own_value():
    """As n → ∞ the n-step fixed point goes to 𝔼_π[Q^π]: within γⁿ⁻¹‖Q* − Q^π‖ for one policy, exactly for n = ∞."""

    def check(w):
        own = w.own[0]
        distance = [norm(multi_step_limit(w, w.policies[:1], n) - own) for n in (2, 8, 32)]
        allowed = [w.discount ** (n - 1) * norm(w.best - own) for n in (2, 8, 32)]
        mixed = jnp.mean(w.own, axis=0)
        return jnp.stack(allowed) - jnp.stack(distance), norm(multi_step_limit(w, w.policies, TO_END) - mixed)

    slack, at_infinity = on_worlds(check)
    assert np.min(slack) >= -CLOSE
    assert np.max(at_infinity) <= CLOSE


# ---------------------------------------------------------------- Section 4.1: the highway gate


@pytest.mark.parametrize("depths", DEPTHS)
def test_theorem_3_contraction(depths):
    """‖𝒢Q − 𝒢Q'‖ ≤ ‖𝓑Q − 𝓑Q'‖ ≤ γ‖Q − Q'‖, for any Q and Q', also those that differ by a constant."""

    def check(w):
        apply = general(table1.highway, w, depths)

        def chain(q, other):
            one_step = norm(bellman(w.mdp, q) - bellman(w.mdp, other))
            return one_step - norm(apply(q) - apply(other)), w.discount * norm(q - other) - one_step

        return chain(w.q, w.other), chain(w.q, w.best), chain(w.best, w.best + 1.0), chain(w.below, w.below - 3.0)

    assert min(np.min(x) for x in jax.tree.leaves(on_worlds(check))) >= -CLOSE


@pytest.mark.parametrize("depths", DEPTHS)
def test_theorem_3_only_fixed_point_is_optimal(depths):
    """Q = 𝒢Q if and only if Q = Q*, for any policies, depths and selection weights; and 𝒢 converges to it.

    Away from Q* the operator moves: ‖𝒢Q − Q‖ ≥ (1 − γ)‖Q − Q*‖.
    """

    def check(w):
        apply = general(table1.highway, w, depths)
        moves = norm(apply(w.q) - w.q) - (1 - w.discount) * norm(w.q - w.best)
        return norm(apply(w.best) - w.best), moves, approach(apply, w, w.q, w.best)

    stays, moves, distance = on_worlds(check)
    assert np.max(stays) <= CLOSE
    assert np.min(moves) >= -CLOSE
    assert np.max(distance) <= CLOSE


@pytest.mark.parametrize(("depths", "gate_depth"), [((4,), 2), ((2, 5), 3)])
def test_remark_gate_above_one_underestimates(depths, gate_depth):
    """With the n₁-step return, n₁ > 1, as threshold there is a fixed point ≤ Q*, and it is not Q* when policies err."""

    def check(w):
        apply = general(limited(gate_depth), w, depths)
        found = limit(apply, w, min(*depths, gate_depth))
        ungated = limit(general(table1.multi_step, w, depths), w, min(depths))
        return norm(apply(found) - found), jnp.min(w.best - found), norm(w.best - found), jnp.min(found - ungated)

    residual, below, gap, above_ungated = on_worlds(check)
    assert np.max(residual) <= CLOSE
    assert np.min(below) >= -CLOSE
    assert np.min(gap) > 1e-5
    assert np.min(above_ungated) >= -CLOSE


def test_remark_gate_zero_has_many_fixed_points():
    """With Q itself as threshold every Q with 𝓑Q ≤ Q is a fixed point: Q* + c, and much else above Q*."""

    def check(w):
        apply = general(limited(0), w, (2, 5))
        lifted = w.best + 2.5
        uneven = w.best + 2.5 * (1 + (1 / w.discount - 1) * w.policies[0])  # between 2.5 and 2.5/γ above
        return [norm(apply(q) - q) for q in (w.best, lifted, uneven)], jnp.min(apply(w.q) - w.q)

    residual, rises = on_worlds(check)
    assert max(np.max(x) for x in residual) <= CLOSE
    assert np.min(rises) >= 0


def test_remark_gate_zero_as_printed_is_false():
    """ "Every Q ≥ Q* is a fixed point" fails on a chain s₀ → s₁ ⟲ without rewards: Q = (0, 10) becomes (8.1, 10)."""
    chain = MDP.from_dense([[[0.0, 1.0]], [[0.0, 1.0]]], np.zeros((2, 1)), 0.9)
    apply = operator(table1.limited_gate(2, 0), chain, np.zeros((1, 2), int))
    np.testing.assert_allclose(jax.jit(apply)(jnp.array([[0.0], [10.0]])), [[8.1], [10.0]], rtol=1e-12)


def test_expectation_gate_is_a_multi_step_operator():
    """Replacing the gate's max by an expectation over {1, n} gives 𝓑^{𝒩∪{1}} exactly, and with it the bias."""
    depths, share = (1, 3), 0.8

    def check(w):
        apply = operator(table1.expectation_gate(depths, share), w.mdp, w.policies)
        mean = sum(
            share * n_step_value(w.mdp, policy, w.q, n) + (1 - share) * one_step_value(w.mdp, w.q)
            for policy in w.policies
            for n in depths
        ) / (POLICIES * len(depths))
        return norm(apply(w.q) - mean), jnp.min(w.best - apply(w.best)), norm(w.best - apply(w.best))

    difference, below, gap = on_worlds(check)
    assert np.max(difference) <= CLOSE
    assert np.min(below) >= -CLOSE
    assert np.min(gap) > 1e-5


# ---------------------------------------------------------------- Sections 4.2, 4.3: how fast


def test_theorem_4_optimality_is_the_best_selection():
    """If Q ≤ Q*, then at every (s,a) the distance of 𝒢*Q to Q* is the smallest over all selection distributions.

    The minimum is attained where all weight is on one policy and one depth; no other weights do better.
    """
    depths = (2, 5)

    def check(w):
        best = w.best - operator(table1.highway_optimality(depths), w.mdp, w.policies)(w.below)
        alone = jnp.stack(
            [
                jnp.abs(w.best - operator(table1.highway(n), w.mdp, w.policies[m : m + 1])(w.below))
                for m in range(POLICIES)
                for n in depths
            ]
        )
        mixed = jnp.abs(w.best - general(table1.highway, w, depths)(w.below))
        return jnp.min(best), norm(jnp.min(alone, axis=0) - best), jnp.min(mixed - best)

    sign, attained, others = on_worlds(check)
    assert np.min(sign) >= -CLOSE
    assert np.max(attained) <= CLOSE
    assert np.min(others) >= -CLOSE


@pytest.mark.parametrize("depths", DEPTHS)
def test_theorem_5_highway_is_at_least_as_close(depths):
    """1) If Q ≤ Q*, at every (s,a): d_𝒢 ≤ min{d_𝓑, d_multi-step}. 2) For every Q: the largest d_𝒢 ≤ the largest d_𝓑.

    Both hold for 𝒢* as well.
    """

    def check(w):
        gaps = []
        for apply in (
            general(table1.highway, w, depths),
            operator(table1.highway_optimality(depths), w.mdp, w.policies),
        ):
            ours = jnp.abs(apply(w.below) - w.best)
            one_step = jnp.abs(bellman(w.mdp, w.below) - w.best)
            ungated = jnp.abs(general(table1.multi_step, w, depths)(w.below) - w.best)
            gaps += [jnp.min(one_step - ours), jnp.min(ungated - ours)]
            gaps += [norm(bellman(w.mdp, q) - w.best) - norm(apply(q) - w.best) for q in (w.q, w.other, w.below)]
        return jnp.stack(gaps)

    assert np.min(on_worlds(check)) >= -CLOSE


def test_remark_strict_improvement():
    """If Q ≤ Q*: (1) some selected n-step return beats the 1-step one ⇒ d_𝒢 < d_𝓑; (2) some selected one loses to it
    ⇒ d_𝒢 < d_multi-step; both ⇒ both. Without (1), 𝒢Q = 𝓑Q. A tie counts for neither condition.
    """
    depths = (2, 5)

    def check(w):
        one_step = one_step_value(w.mdp, w.below)
        returns = jnp.stack([n_step_value(w.mdp, p, w.below, n) for p in w.policies for n in depths])
        some_beats = jnp.any(returns > one_step + 1e-6, axis=0)
        some_loses = jnp.any(returns < one_step - 1e-6, axis=0)
        none_beats = jnp.all(returns <= one_step, axis=0)
        ours = w.best - general(table1.highway, w, depths)(w.below)
        before = w.best - bellman(w.mdp, w.below)
        ungated = w.best - general(table1.multi_step, w, depths)(w.below)
        return some_beats, some_loses, none_beats, ours, before, ungated

    some_beats, some_loses, none_beats, ours, before, ungated = map(np.asarray, on_worlds(check))
    assert np.all((ours < before)[some_beats])
    assert np.all((ours < ungated)[some_loses])
    assert np.max(np.abs(ours - before)[none_beats], initial=0.0) <= CLOSE
    for condition in (some_beats, some_loses, some_beats & some_loses, none_beats):
        assert 0.05 < condition.mean() < 0.99


@pytest.mark.parametrize("depths", DEPTHS)
def test_remark_iterates_stay_below_optimal(depths):
    """If Q₀ ≤ Q*, every iterate of 𝒢, 𝒢*, 𝒢^α and 𝓑^𝒩 is ≤ Q*. (For importance sampling see `test_table1.py`.)"""

    def check(w):
        applies = (
            general(table1.highway, w, depths),
            general(table1.multi_step, w, depths),
            operator(table1.highway_optimality(depths), w.mdp, w.policies),
            operator(table1.highway_softmax(depths, 0.5), w.mdp, w.policies),
        )
        paths = [jax.lax.scan(lambda q, _, apply=apply: (apply(q),) * 2, w.below, length=20)[1] for apply in applies]
        return jnp.min(w.best - jnp.stack(paths))

    assert np.min(on_worlds(check)) >= -CLOSE


# ---------------------------------------------------------------- Appendix: changing policies, softmax


def test_changing_policy_sets_converge_at_rate_gamma():
    """For any sequence of policy sets the iterates of 𝒢* satisfy ‖Q_k − Q*‖ ≤ γᵏ‖Q₀ − Q*‖."""

    def check(w):
        draw = Draws(w.draw)
        sets = jnp.stack([jnp.stack([draw.policy(), draw.actions()]) for _ in range(30)])

        def step(q, policies):
            q = operator(table1.highway_optimality((2, 5)), w.mdp, policies)(q)
            return q, norm(q - w.best)

        _, distance = jax.lax.scan(step, w.q, sets)
        return jnp.max(distance - w.discount ** jnp.arange(1.0, 31.0) * norm(w.q - w.best))

    assert np.max(on_worlds(check)) <= CLOSE


def test_softmax_theorem():
    """For any α, policies and depths: ‖𝒢^αQ − Q*‖ ≤ γ‖Q − Q*‖ and 𝒢^αQ* = Q*; so the iterates reach Q*."""

    def check(w):
        def with_alpha(alpha):
            apply = operator(table1.highway_softmax((2, 5), alpha), w.mdp, w.policies)
            starts = (w.q, w.other, w.below, w.best + 1.0)
            return norm(apply(w.best) - w.best), jnp.stack([approach(apply, w, q, w.best, 10) for q in starts])

        return jax.vmap(with_alpha)(jnp.array([0.0, 1e-3, 0.3, 20.0, math.inf]))

    stays, distance = on_worlds(check)
    assert np.max(stays) <= CLOSE
    assert np.max(distance) <= CLOSE


def test_softmax_contracts_towards_the_optimum_only():
    """Between two value functions 𝒢^α may even expand: on s₀ → s₁ → s₂ ⟲, near Q = (0, 0, 2.4), by 7 %."""
    P = np.zeros((3, 1, 3))
    P[0, 0, 1] = P[1, 0, 2] = P[2, 0, 2] = 1
    apply = operator(
        table1.highway_softmax((1, 2), 1.0), MDP.from_dense(P, np.zeros((3, 1)), 0.99), np.zeros((1, 3), int)
    )
    one, two = (np.array([[0.0], [0.0], [x]]) for x in (2.40, 2.41))
    apply = jax.jit(apply)
    assert norm(apply(one) - apply(two)) > 1.07 * norm(one - two)


def test_softmax_limits():
    """α = ∞ is 𝒢*, and α → ∞ goes there; α = 0 is 𝒢 with uniform weights; every α lies between 𝓑Q and 𝒢*Q."""
    depths = (2, 5)

    def check(w):
        largest = operator(table1.highway_optimality(depths), w.mdp, w.policies)(w.q)
        uniform = operator(table1.highway(depths), w.mdp, w.policies)(w.q)

        def soft(alpha):
            return operator(table1.highway_softmax(depths, alpha), w.mdp, w.policies)(w.q)

        between = jnp.stack([soft(alpha) for alpha in (0.0, 0.1, 3.0)])
        return (
            norm(soft(math.inf) - largest),
            norm(soft(1e9) - largest),
            norm(soft(0.0) - uniform),
            norm(soft(1e-12) - uniform),
            jnp.min(largest - between),
            jnp.min(between - one_step_value(w.mdp, w.q)),
        )

    infinite, large, zero, tiny, below, above = on_worlds(check)
    assert np.max(infinite) == 0
    assert np.max(zero) <= 1e-12
    assert max(np.max(large), np.max(tiny)) <= 1e-7
    assert min(np.min(below), np.min(above)) >= -CLOSE
