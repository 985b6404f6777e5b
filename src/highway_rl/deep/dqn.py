"""The deep agent: one record that is DQN, Maxmin, n-step, λ-return, Retrace, n-step and Soft Highway DQN.

What differs between them is a `TargetRule`. Targets are computed for the whole store at once when the target network
is refreshed: until the next refresh that network stands still, so a target written down is the exact target.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt8

from highway_rl.core.backup import combine_returns
from highway_rl.core.bootstrap import filled, maxmin
from highway_rl.core.targets import TargetRule, Trajectory, sampled_returns, soft_highway
from highway_rl.data.codec import codec_of, decoded
from highway_rl.deep import fused, networks
from highway_rl.deep.grouping import Alike, Group, cautious, combine_by_policy, estimates
from highway_rl.deep.learning import Batch, Learning, Mean
from highway_rl.deep.optimizers import MakeOptimizer, centred_rmsprop
from highway_rl.deep.scales import scaled, unit_of
from highway_rl.deep.settings import check_agent, check_spec
from highway_rl.deep.weights import Weights, weights_of, with_weights
from highway_rl.types import AnyArray, Spec, record, static


@record
class DQN:
    """The paper's settings by default. Plain fields are leaves: vmap over them, and runs that differ in them are one
    program. Several rules in `rule` with `which` among them make different algorithms one program, too.
    """

    rule: TargetRule | tuple[TargetRule, ...] = dataclasses.field(default_factory=soft_highway)
    which: Any = 0
    discount: Any = 0.99
    learning_rate: Any = 2.5e-4
    epsilon_start: Any = 1.0
    epsilon_end: Any = 0.1
    epsilon_steps: Any = 1e5
    max_gradient: Any = 1.0
    confidence: Any = 0.0
    optimism: Any = 0.0
    num_networks: int = static(default=1)
    batch_size: int = static(default=32)
    loss: str = static(default="huber")
    num_policies: int = static(default=1)
    normalize: bool = static(default=False)
    rescale: bool = static(default=False)
    average: int = static(default=0)
    chooser: str = static(default="sample")
    caution: float = static(default=0.0)
    network: networks.MakeNetwork = static(default=networks.auto)
    optimizer: MakeOptimizer = static(default=centred_rmsprop)

    def __post_init__(self) -> None:
        check_agent(self)

    @property
    def rules(self) -> tuple[TargetRule, ...]:
        return self.rule if isinstance(self.rule, tuple) else (self.rule,)

    @property
    def make_network(self) -> networks.MakeNetwork:
        """What makes its networks, with the scales it asks for."""
        return scaled(self.network, self.normalize, self.rescale)

    @property
    def heads(self) -> int:
        """Numbers a network has for each action: Q, and with the chooser "learned" the average return of each depth."""
        return 1 if self.chooser != "learned" else 1 + max(len(rule.backup.depths) for rule in self.rules)

    @property
    def doubles(self) -> bool:
        """Whether a rule doubles, so that networks of the refresh before are kept."""
        return any(doubles(rule) for rule in self.rules)


def doubles(rule: TargetRule) -> bool:
    """Whether the rule lets the newest networks choose actions and older ones price them: its selector is open."""
    return filled(rule.bootstrap, selector=()) is not rule.bootstrap


def start(agent: DQN, spec: Spec, key: PRNGKeyArray) -> Learning:
    """Fresh networks."""
    check_spec(spec)
    wide = widened(agent, spec)
    params = jax.vmap(lambda key: weights_of(agent.make_network(wide, key)))(jax.random.split(key, agent.num_networks))
    mean = Mean(jnp.int32(0), params) if agent.average else None
    return Learning(params, jax.vmap(agent.optimizer().init)(params), params if agent.doubles else None, mean)


def widened(agent: DQN, spec: Spec) -> Spec:
    """The spec by which its networks are made: one output for every action and head."""
    return spec if agent.heads == 1 else dataclasses.replace(spec, num_actions=agent.heads * spec.num_actions)


def network(agent: DQN, spec: Spec, weights: Weights) -> Any:
    """The module these numbers make: observation in, q[a] out, the other heads' numbers after it."""
    return with_weights(agent.make_network(widened(agent, spec), jax.random.key(0)), weights)


def q_values(agent: DQN, spec: Spec, params: Weights, obs: PyTree) -> Float[Array, "t a"]:
    """The smallest of the k networks' values at each of t observations: Maxmin's, taken before anything else."""
    each = lambda p: jax.vmap(network(agent, spec, p))(obs)[:, : spec.num_actions]  # noqa: E731
    if agent.num_networks == 1:
        return each(jax.tree.map(lambda x: x[0], params))
    return jnp.asarray(maxmin(jax.vmap(each)(params)))


def joined(agent: DQN, spec: Spec, each: Float[Array, "k t ha"]) -> Float[Array, "t ha"]:
    """All heads of k networks as one: the smallest Q, and the mean of what each takes for an average."""
    q = jnp.asarray(maxmin(each[..., : spec.num_actions]))
    if agent.heads == 1:
        return q
    return jnp.concatenate([q, jnp.mean(each[..., spec.num_actions :], axis=0)], axis=-1)


def split_heads(
    agent: DQN, spec: Spec, values: Float[Array, "t ha"]
) -> tuple[Float[Array, "t a"], Float[Array, "t n a"] | None]:
    """Q, and the averages of the returns of each depth where networks have them."""
    if agent.heads == 1:
        return values, None
    q, rest = values[:, : spec.num_actions], values[:, spec.num_actions :]
    return q, rest.reshape(rest.shape[0], agent.heads - 1, spec.num_actions)


def prepared(agent: DQN, spec: Spec, params: Weights) -> Callable[[PyTree], Float[Array, "t ha"]]:
    """All heads for many observations: networks that can, get ready first."""

    def each(p: Weights) -> Any:
        whole = network(agent, spec, p)
        return getattr(whole, "prepared", lambda: whole)()

    ready = eqx.filter_vmap(each)(params)
    return lambda obs: joined(agent, spec, eqx.filter_vmap(lambda one: jax.vmap(one)(obs))(ready))


def best(q: Float[Array, "*e a"]) -> Int[Array, "*e"]:
    return jnp.argmax(q, axis=-1).astype(jnp.int32)


def act(agent: DQN, spec: Spec, learning: Learning, obs: PyTree) -> Int[Array, "e"]:
    """The greedy actions."""
    return best(q_values(agent, spec, learning.params, obs))


def epsilon(agent: DQN, step: Any) -> Float[Array, "*n"]:
    """Linear from the first step on, then constant."""
    share = jnp.clip(jnp.asarray(step, jnp.float32) / agent.epsilon_steps, 0.0, 1.0)
    return jnp.asarray(agent.epsilon_start + share * (agent.epsilon_end - agent.epsilon_start), jnp.float32)


class Targets(NamedTuple):
    """The target of every row, what its gate compared (with several policies averages of the row's own, with a chooser
    its estimates), and the returns and the reference that were sampled."""

    target: Float[AnyArray, "t"]
    returns: Float[AnyArray, "t n"]
    reference: Float[AnyArray, "t"]
    sampled: Float[AnyArray, "t n"]
    sampled_reference: Float[AnyArray, "t"]


def targets(
    agent: DQN,
    rule: TargetRule,
    data: Trajectory,
    q: Float[Array, "t a"],
    step: Any,
    *,
    newer_q: Float[Array, "t a"] | None = None,
    group: Group | None = None,
    key: PRNGKeyArray | None = None,
    averages: Float[Array, "t n a"] | None = None,
    pairs: Alike | None = None,
) -> Targets:
    """Eq. 8 for each row of a chronological store, whose row i + 1 holds the observation that follows row i.

    `q` are the target network's values there. `averages` are those of its other heads, which then choose: a depth
    where its average exceeds Q(s,a). With `pairs` the other rows of the same pair choose. `group` (observation hashes,
    policy numbers, real) pools equal (observation, action) pairs of several behavioural policies; without it each row
    is a policy of its own.
    """
    follow = lambda x: jnp.concatenate([x[1:], x[-1:]])  # noqa: E731
    selector = None if newer_q is None else follow(newer_q)
    rule = dataclasses.replace(rule, bootstrap=filled(rule.bootstrap, epsilon=epsilon(agent, step), selector=selector))
    # a rule without a gate is shown against the return a gate would compare with; its target does not change
    gated = dataclasses.replace(rule.backup, gate_depth=1) if rule.backup.gate_depth is None else rule.backup
    by: Any = None
    returns, reference = sampled_returns(dataclasses.replace(rule, backup=gated), data, q, follow(q))
    sampled, of_reference = returns, reference
    if averages is not None:
        taken = data.action[:, None] == jnp.arange(q.shape[1])
        at = lambda x: jnp.sum(jnp.where(taken, x, 0.0), axis=-1)  # noqa: E731
        by = jnp.stack([at(averages[:, i]) for i in range(returns.shape[1])], axis=1), at(q)
    if pairs is not None:
        own = jnp.asarray(returns), jnp.asarray(reference)
        by = estimates(rule.backup, *own, data, pairs, agent.confidence, agent.optimism)
    if group is None or key is None:
        one = None if by is None else (by[0][:, None], by[1][:, None])
        target = combine_returns(rule.backup, returns[:, None], reference[:, None], by=one)
    else:
        pooled = combine_by_policy(rule.backup, returns, reference, data.action, group, agent.num_policies, key, by)
        target, returns, reference = pooled
    if pairs is not None and agent.caution:
        target = cautious(jnp.asarray(target), jnp.asarray(of_reference), data, pairs, agent.caution, q.shape[1])
    returns, reference = by or (returns, reference)
    return Targets(target, returns, reference, sampled, of_reference)


def loss(agent: DQN, q: Float[Array, "b ha"], action: Int[Array, "b"], target: Float[Array, "..."]) -> Float[Array, ""]:
    """Mean over the batch of the Huber (SmoothL1) or squared error between target and Q(s,a), of all heads together."""
    if agent.heads > 1:
        q, action = q.reshape(q.shape[0], agent.heads, -1), action[:, None]
    chosen = jnp.sum(jnp.where(action[..., None] == jnp.arange(q.shape[-1]), q, 0.0), axis=-1)
    error = jax.lax.stop_gradient(target) - chosen
    each = optax.losses.huber_loss(error) if agent.loss == "huber" else 0.5 * jnp.square(error)
    return jnp.mean(each) * agent.heads


def learn(
    agent: DQN, spec: Spec, learning: Learning, batches: Batch, at: tuple[Any, Any], here: UInt8[Array, "e w"]
) -> tuple[Learning, Float[Array, ""], Int[Array, "e"]]:
    """One update on batch `at` of those drawn, and the greedy actions at `here` before it. On a GPU by few large
    kernels, where they fit the agent."""

    def plain(learning: Learning, batches: Batch, at: tuple[Any, Any], here: UInt8[Array, "e w"]) -> Any:
        net, taken, target = batches.net[at], batches.taken[at], batches.target[at]
        coded = codec_of(spec)
        seen = batches.obs[at] if batches.row is None else coded.whole(batches.obs, batches.row[at])
        obs = decoded(coded, jnp.concatenate([here, seen]))
        learning, error, values = update(agent, spec, learning, net, obs, taken, target)
        return learning, error, best(values)

    sizes = fused.fits(agent, spec, here.shape[0])
    if sizes is None:
        return plain(learning, batches, at, here)
    kernels = functools.partial(fused.learn, agent, sizes)
    return jax.lax.platform_dependent(learning, batches, at, here, cuda=kernels, default=plain)


def update(
    agent: DQN,
    spec: Spec,
    learning: Learning,
    net: Int[Array, ""],
    obs: PyTree,
    action: Int[Array, "b"],
    target: Float[Array, "b"] | Float[Array, "b h"],
) -> tuple[Learning, Float[Array, ""], Float[Array, "p a"]]:
    """One gradient step of network number `net` on one batch: the last b rows of `obs`.

    Rows before them are passengers, observations to act on: what all networks together think of them before the step
    is returned, and with one network they ride along in the batch's forward pass.
    """
    one = agent.num_networks == 1
    take = lambda x: x[0] if one else jax.lax.dynamic_index_in_dim(x, net, 0, False)  # noqa: E731
    put = lambda x, y: y[None] if one else jax.lax.dynamic_update_index_in_dim(x, y, net, 0)  # noqa: E731
    params, moments = jax.tree.map(take, (learning.params, learning.moments))
    passengers = jax.tree.leaves(obs)[0].shape[0] - action.shape[0]

    def error(params: Weights) -> tuple[Float[Array, ""], Float[Array, "p a"]]:
        rows = obs if one else jax.tree.map(lambda x: x[passengers:], obs)
        whole = network(agent, spec, params)
        q, unit = networks.of_many(whole, rows), unit_of(whole)
        return loss(agent, q[-action.shape[0] :] / unit, action, target / unit), q[:passengers, : spec.num_actions]

    (value, q), gradient = jax.value_and_grad(error, has_aux=True)(params)
    if not one and passengers:
        q = q_values(agent, spec, learning.params, jax.tree.map(lambda x: x[:passengers], obs))
    shrink = jnp.minimum(1.0, agent.max_gradient / jnp.maximum(optax.tree.norm(gradient), 1e-12))
    change, moments = agent.optimizer().update(jax.tree.map(lambda g: g * shrink, gradient), moments, params)
    params = jax.tree.map(lambda p, c: p + agent.learning_rate * c, params, change)
    params, moments = jax.tree.map(put, (learning.params, learning.moments), (params, moments))
    return learning._replace(params=params, moments=moments), value, q
