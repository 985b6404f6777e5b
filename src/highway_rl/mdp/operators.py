"""Table 1 on a known model: any target rule as an exact operator Q → Q.

Where the agents estimate a return from a trajectory, here its expectation is computed from the model:

    (𝓑^π)ⁿ⁻¹𝓑Q                                   n-step returns under the behavioural policy π
    Q + Σ_t (γP^{cπ})ᵗ (𝓑^π'Q − Q)               traced returns, with P^{cπ} weighing actions by c·π

Gate, aggregation, bootstrap and trace are the agents' own (`core`): one rule, two sources of returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from highway_rl import checks
from highway_rl.core.backup import TO_END, Backup, combine_returns
from highway_rl.core.targets import TargetRule
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.types import AnyArray


def expect_next(mdp: MDP, value: Float[AnyArray, "s"]) -> Float[AnyArray, "s a"]:
    """γ(s,a) Σ_{s'} P(s'|s,a) V(s')."""
    return mdp.discount * jnp.sum(mdp.probability * value[mdp.successor], axis=-1)


def bellman(mdp: MDP, q: Float[AnyArray, "s a"]) -> Float[AnyArray, "s a"]:
    """The Bellman optimality operator: (𝓑Q)(s,a) = 𝔼[r + γ max_{a'} Q(s',a')]. Paper: Eq. 1."""
    return mdp.reward + expect_next(mdp, jnp.max(q, axis=-1))


def bellman_expectation(mdp: MDP, policy: Float[AnyArray, "s a"], q: Float[AnyArray, "s a"]) -> Float[AnyArray, "s a"]:
    """The Bellman expectation operator: (𝓑^πQ)(s,a) = 𝔼[r + γ 𝔼_{a'∼π} Q(s',a')]. Paper: Eq. 2."""
    return mdp.reward + expect_next(mdp, jnp.sum(policy * q, axis=-1))


def exact_returns(
    rule: TargetRule | Backup, mdp: MDP, policy: Float[AnyArray, "s a"], q: Float[AnyArray, "s a"]
) -> tuple[Float[AnyArray, "s a n"], Float[AnyArray, "s a"]]:
    """The expected return of every depth under one behavioural policy, and the one the gate compares with.

    Each further depth is one more policy backup of the last. TO_END is their limit.
    """
    rule = TargetRule(rule) if isinstance(rule, Backup) else rule
    target = rule.bootstrap(q, policy)
    value = jnp.sum(target * q, axis=-1)
    first = mdp.reward + expect_next(mdp, value)
    offset: Any
    weight: Any
    base: Any
    if rule.trace is None:
        offset, weight, start, base = mdp.reward, policy, first, jnp.zeros_like(q)
    else:
        offset, weight, start, base = first - q, policy * rule.trace(target, policy), first - q, q
        if rule.trace.around == "state":  # the same sum without Q(s,a) in it
            offset, start, base = first - expect_next(mdp, jnp.sum(weight, axis=-1) * value), first, jnp.zeros_like(q)

    def deeper(x: Float[AnyArray, "s a"]) -> Float[AnyArray, "s a"]:
        return offset + expect_next(mdp, jnp.sum(weight * x, axis=-1))

    gate_depth = rule.backup.gate_depth
    depths = (*rule.backup.depths, gate_depth or 1)
    finite = max((n for n in depths if n < TO_END), default=1)
    _, rest = jax.lax.scan(lambda x, _: (deeper(x),) * 2, start, length=finite - 1)
    by_depth = base + jnp.concatenate([start[None], rest])
    columns = [by_depth[n - 1] if n < TO_END else base + _limit(mdp, offset, weight) for n in depths]
    returns = jnp.stack(columns[:-1], axis=-1)
    return returns, (q if gate_depth == 0 else columns[-1])


def operator(
    rule: TargetRule | Backup,
    mdp: MDP | SparseMDP,
    policies: Any,
    *,
    policy_prior: Any = None,
) -> Callable[[Float[AnyArray, "s a"]], Float[AnyArray, "s a"]]:
    """The exact operator of a rule: one application of Q → 𝒦Q over the given behavioural policies.

    `policies` is [m, s, a] probabilities or [m, s] actions. Selection distributions may differ per (s,a):
    `policy_prior` is [m] or [s, a, m], the backup's `depth_prior` [n], [s, a, m, n] or anything between.

    Paper: Table 1; Eqs. 1–6, 18, 19.
    """
    model = mdp.padded()
    behaviour = as_policies(policies, model)
    if policy_prior is not None and checks.is_concrete(policy_prior):
        checks.shares("policy_prior", policy_prior, len(behaviour))
    rule = TargetRule(rule) if isinstance(rule, Backup) else rule

    def apply(q: Float[AnyArray, "s a"]) -> Float[AnyArray, "s a"]:
        q = jnp.asarray(q, behaviour.dtype)
        if q.shape != model.reward.shape:
            raise checks.wrong_shape("q", q, f"[states, actions], {model.reward.shape}")
        returns, reference = jax.vmap(lambda policy: exact_returns(rule, model, policy, q))(behaviour)
        return combine_returns(
            rule.backup, jnp.moveaxis(returns, 0, -2), jnp.moveaxis(reference, 0, -1), policy_prior=policy_prior
        )

    return apply


def fixed_point(
    apply: Callable[[Float[AnyArray, "*b s a"]], Float[AnyArray, "*b s a"]],
    q: Float[AnyArray, "*b s a"],
    num_iters: int,
) -> Float[AnyArray, "*b s a"]:
    """Q after `num_iters` applications: for a γ-contraction within γ^num_iters of the fixed point."""
    return jax.lax.fori_loop(0, num_iters, lambda _, x: apply(x), q)


def as_policies(policies: Any, mdp: MDP) -> Float[AnyArray, "m s a"]:
    """Behavioural policies as probabilities [m, s, a]; deterministic ones may come as actions [m, s]."""
    array = jnp.asarray(policies)
    S, A = mdp.num_states, mdp.num_actions
    if array.shape[:1] == (0,) or array.ndim == 0:
        raise ValueError("the set of behavioural policies is empty: give at least one")
    if array.shape[1:] == (S,) and jnp.issubdtype(array.dtype, jnp.integer):
        if checks.is_concrete(array) and not bool(jnp.all((array >= 0) & (array < A))):
            raise ValueError(f"policies take actions from {array.min()} to {array.max()}: give 0 to {A - 1}")
        return jax.nn.one_hot(array, A, dtype=jnp.result_type(float))
    if array.shape[1:] != (S, A):
        raise checks.wrong_shape("policies", array, f"[m, {S}, {A}], or whole numbers [m, {S}]")
    if checks.is_concrete(array):
        checks.shares("policies", array, A)
    return jnp.asarray(array, jnp.result_type(float))


def _limit(mdp: MDP, offset: Float[AnyArray, "s a"], weight: Float[AnyArray, "s a"]) -> Float[AnyArray, "s a"]:
    """x = offset + γP^{weight}x, the return of depth ∞, by doubling: 2³⁰ ≥ TO_END steps in 30 squarings.

    Unlike a linear solve this also holds with discount 1 where every path ends, and needs no LAPACK call, two of
    which in one compiled program can wait for each other for ever on a machine with few cores.
    """
    offset, weight = jnp.asarray(offset), jnp.asarray(weight)  # in JAX's own width, whatever the model's
    step = jax.vmap(lambda v: jnp.sum(weight * expect_next(mdp, v), axis=-1))
    matrix = step(jnp.eye(mdp.num_states, dtype=offset.dtype)).T

    def double(_: Any, state: Any) -> Any:
        value, matrix = state
        return value + matrix @ value, matrix @ matrix

    value, _ = jax.lax.fori_loop(0, 30, double, (jnp.sum(weight * offset, axis=-1), matrix))
    return offset + expect_next(mdp, value)
