"""The rows of Table 1 that evaluate a target policy π' from the data of other policies, on random worlds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Draws, norm, policy_value, random_worlds

from highway_rl.core import targets
from highway_rl.core.backup import TO_END
from highway_rl.core.bootstrap import Expected
from highway_rl.mdp.model import MDP
from highway_rl.mdp.operators import bellman_expectation, operator

CLOSE = 1e-9


def on_worlds(check):
    return jax.jit(jax.vmap(check))(random_worlds())


def repeated(apply, q, count):
    return jax.lax.fori_loop(0, count, lambda _, x: apply(x), q)


def test_bellman_expectation_operator():
    """𝓑^π' is a γ-contraction with fixed point Q^π', and the rule `expected_sarsa` is that operator for any data."""

    def check(w):
        def apply(q):
            return bellman_expectation(w.mdp, w.policies[0], q)

        shrinks = w.discount * norm(w.q - w.other) - norm(apply(w.q) - apply(w.other))
        sampled = operator(targets.expected_sarsa(w.policies[0]), w.mdp, w.policies[1:])
        return shrinks, norm(apply(w.own[0]) - w.own[0]), norm(sampled(w.q) - policy_value(w.mdp, w.policies[0], w.q))

    shrinks, stays, difference = on_worlds(check)
    assert np.min(shrinks) >= -CLOSE
    assert max(np.max(stays), np.max(difference)) <= CLOSE


@pytest.mark.parametrize("n", [1, 4])
def test_importance_sampling_with_full_support(n):
    """Where the behaviours may take every action, multi-step importance sampling is (𝓑^π')ⁿ: it contracts with γⁿ
    to Q^π', and its iterates stay ≤ Q* once they are.
    """

    def check(w):
        target = w.policies[1]
        draw = Draws(w.draw)
        behaviours = jnp.stack([draw.policy(), draw.policy(), w.policies[0]])
        apply = operator(targets.importance_sampling(n, target), w.mdp, behaviours, policy_prior=w.policy_prior)
        exact = repeated(lambda q: policy_value(w.mdp, target, q), w.q, n)
        shrinks = w.discount**n * norm(w.q - w.other) - norm(apply(w.q) - apply(w.other))
        return (
            norm(apply(w.q) - exact),
            shrinks,
            norm(apply(w.own[1]) - w.own[1]),
            jnp.min(w.best - apply(apply(w.below))),
        )

    difference, shrinks, stays, below = on_worlds(check)
    assert max(np.max(difference), np.max(stays)) <= CLOSE
    assert min(np.min(shrinks), np.min(below)) >= -CLOSE


def test_importance_sampling_as_printed_needs_full_support():
    """Table 1 and the remark on iterates ≤ Q* promise this for any policies. As printed (Eq. 18), the data of a policy
    that never takes some action has neither: the weight of that action is missing, and where rewards are negative the
    values end above Q*. Written with temporal differences, as here, the fixed point stays Q^π' for any behaviour.
    """

    def check(w):
        target, behaviour = w.policies[0], w.policies[1]
        mdp, lower = dataclasses.replace(w.mdp, reward=w.mdp.reward - 5.0), 5.0 / (1 - w.discount)
        own, best = w.own[0] - lower, w.best - lower
        kept = jnp.where(behaviour > 0, target, 0.0)  # what π'/π leaves of π'

        def printed(q):
            return repeated(lambda x: policy_value(mdp, kept, x), q, 3)

        ours = operator(targets.importance_sampling(3, target), mdp, behaviour[None])
        limit = repeated(printed, best, 200)
        return (
            norm(printed(limit) - limit),
            norm(limit - own),
            jnp.max(limit - best),
            norm(ours(own) - own),
        )

    residual, bias, above_optimal, stays = on_worlds(check)
    assert np.max(residual) <= CLOSE
    assert np.min(bias) > 1e-3
    assert np.mean(above_optimal > 1e-3) > 0.5
    assert np.max(stays) <= CLOSE


@pytest.mark.parametrize("depth", [3, TO_END])
@pytest.mark.parametrize("rule", [targets.retrace, targets.tree_backup])
def test_retrace_and_tree_backup_contract_for_any_behaviour(rule, depth):
    """Retrace(λ) and Tree Backup(λ) are γ-contractions to Q^π' whatever the behaviours and for every λ in [0, 1]."""

    def check(w):
        def each(lam):
            made = rule(lam, Expected(w.policies[0]), depth)
            apply = operator(made, w.mdp, w.policies[1:], policy_prior=w.policy_prior[..., 1:])
            shrinks = w.discount * norm(w.q - w.other) - norm(apply(w.q) - apply(w.other))
            return shrinks, norm(apply(w.own[0]) - w.own[0])

        return jax.vmap(each)(jnp.array([0.0, 0.4, 1.0]))

    shrinks, stays = on_worlds(check)
    assert np.min(shrinks) >= -CLOSE
    assert np.max(stays) <= CLOSE


def test_q_lambda_converges_for_close_policies():
    """If ‖π − π'‖₁ < (1−γ)/(λγ), Q(λ) contracts to Q^π' with γ(1 − λ + λ‖π − π'‖₁)/(1 − λγ) < 1."""

    def check(w):
        lam, target = 0.8, w.policies[0]
        allowed = (1 - w.discount) / (lam * w.discount)
        behaviour = target + jnp.minimum(0.45 * allowed, 1.0) * (w.policies[1] - target)
        apart = jnp.max(jnp.sum(jnp.abs(behaviour - target), axis=-1))
        rate = w.discount * (1 - lam + lam * apart) / (1 - lam * w.discount)
        apply = operator(targets.q_lambda(lam, Expected(target)), w.mdp, behaviour[None])
        return rate, rate * norm(w.q - w.own[0]) - norm(apply(w.q) - w.own[0]), apart

    rate, shrinks, apart = on_worlds(check)
    assert np.max(rate) < 1
    assert np.min(apart) > 1e-3
    assert np.min(shrinks) >= -CLOSE


def test_q_lambda_diverges_for_far_policies():
    """Two states, stay or switch, no rewards: data of "stay", target "switch", λ = 1. Then the difference of the two
    actions is multiplied by −2γ/(1−γ) each time, while Retrace converges.
    """
    P = np.zeros((2, 2, 2))
    P[[0, 1], 0, [0, 1]] = P[[0, 1], 1, [1, 0]] = 1
    mdp = MDP.from_dense(P, np.zeros((2, 2)), 0.5)
    target = Expected(np.array([[0.0, 1.0], [0.0, 1.0]]))
    stay = np.zeros((1, 2), int)
    q = np.array([[0.0, 1.0], [0.0, -1.0]])
    far = jax.jit(operator(targets.q_lambda(1.0, target), mdp, stay))
    safe = jax.jit(operator(targets.retrace(1.0, target), mdp, stay))
    once = np.asarray(far(q))
    np.testing.assert_allclose(once[:, 1] - once[:, 0], [-2.0, 2.0], rtol=1e-12)
    assert norm(far(far(once))) > 3.9
    assert norm(safe(safe(q))) <= 0.25
