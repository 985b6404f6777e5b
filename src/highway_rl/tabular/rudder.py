"""RUDDER: an LSTM learns to predict the return, and differences of its predictions become the reward.

    r'ₜ = gₜ − gₜ₋₁ + (R − g_{T−1}) / T          so that Σₜ r'ₜ = R, the return of the episode

gₜ is the prediction after step t. Any tabular agent learns from r' instead of r. With discount 0 its target is r'
itself, the Q-value estimation of the RUDDER paper; with a trace and discount 1 it is RUDDER on top of Q(λ).

The LSTM has neither forget nor output gate; its cell input looks at the input only, its input gate at the past only
(settings of the RUDDER authors' demonstration code). Differences: the input is the step's action with the state it led
to, plain and as a change; returns are scaled by their own mean and deviation; and a training round has a fixed number
of updates, so that seeds stay in step. The newest `capacity` episodes are kept.

Paper: App. C.2 (the rival of Highway Q-learning); Arjona-Medina et al., 2019.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from highway_rl import checks
from highway_rl.tabular import agent as tabular
from highway_rl.tabular.agent import Episode, TabularAgent
from highway_rl.tabular.loop import Learner
from highway_rl.types import DiscreteEnv, record, static


@record
class Rudder:
    """The agent that learns from the redistributed reward, and how the LSTM is trained."""

    agent: TabularAgent
    units: int = static(default=16)
    step_size: float = static(default=1e-2)
    weight_decay: float = static(default=1e-6)
    batch: int = static(default=8)
    wait: int = static(default=256)
    interval: int = static(default=25)
    updates: int = static(default=20)
    capacity: int = static(default=2048)

    def __post_init__(self) -> None:
        for name in ("units", "batch", "wait", "interval", "updates", "capacity"):
            checks.whole(name, getattr(self, name), 1)
        if self.agent.replay is not None:
            raise ValueError("agent has a replay: give RUDDER one that learns from the last episode")


class LstmWeights(NamedTuple):
    cell: Float[Array, "f u"]
    cell_bias: Float[Array, "u"]
    gate: Float[Array, "u u"]
    gate_bias: Float[Array, "u"]
    out: Float[Array, "u"]
    out_bias: Float[Array, ""]


class RudderMemory(NamedTuple):
    """The table, the LSTM and its optimiser, the scale of returns, and the newest episodes."""

    q: Float[Array, "s a"]
    weights: LstmWeights
    optimiser: Any
    scale: Float[Array, "2"]
    state: Int[Array, "e t"]
    action: Int[Array, "e t"]
    next_state: Int[Array, "e t"]
    total: Float[Array, "e"]
    length: Int[Array, "e"]


def rudder(*, epsilon: Any = 0.2, learning_rate: Any = 0.1, **settings: Any) -> Rudder:
    """RUDDER with Q-value estimation: Q(s,a) is the mean redistributed reward."""
    return Rudder(tabular.q_learning(discount=0.0, epsilon=epsilon, learning_rate=learning_rate), **settings)


def rudder_q_lambda(lam: Any = 0.9, *, epsilon: Any = 0.2, learning_rate: Any = 0.1, **settings: Any) -> Rudder:
    """RUDDER on top of Watkins Q(λ); lam = 0 is RUDDER on top of Q-learning."""
    return Rudder(tabular.watkins_q_lambda(lam, epsilon=epsilon, learning_rate=learning_rate), **settings)


def start(env: DiscreteEnv, rudder: Rudder, key: PRNGKeyArray) -> RudderMemory:
    inputs = 2 * jax.eval_shape(env.features, env.spec.observation).shape[0] + env.spec.num_actions
    weights = init(inputs, rudder.units, key)
    rows = jnp.zeros((rudder.capacity, env.horizon), jnp.int32)
    return RudderMemory(
        tabular.start(env, rudder.agent).q,
        weights,
        _optimiser(rudder).init(weights),
        jnp.array([0.0, 1.0], float),
        rows,
        rows,
        rows,
        jnp.zeros(rudder.capacity, float),
        jnp.ones(rudder.capacity, jnp.int32),
    )


def learner(env: Any, rudder: Rudder) -> Learner:
    """RUDDER in this environment, ready for `train`."""
    tabular.check_task(env)

    def episode(
        memory: RudderMemory, count: Int[Array, ""], going: Any, key: PRNGKeyArray
    ) -> tuple[RudderMemory, Array, Array]:
        seen = tabular.collect(env, rudder.agent, memory.q, key)
        memory = learn(env, rudder, memory, seen, count, jax.random.fold_in(key, 0))
        return memory, memory.q, env.on_track(seen.state, seen.action)

    return Learner(lambda key: start(env, rudder, key), episode, rudder.agent.epsilon)


def init(inputs: int, units: int, key: PRNGKeyArray) -> LstmWeights:
    """Weights N(0, 0.1²), cell bias N(0, 1), gate bias N(−3, 1)."""
    sizes = (inputs * units, units, units * units, units, units)
    draw = jax.random.normal(key, (1 << (sum(sizes) - 1).bit_length(),))
    cell, cell_bias, gate, gate_bias, out, _ = jnp.split(draw, [sum(sizes[: i + 1]) for i in range(5)])
    return LstmWeights(
        0.1 * cell.reshape(inputs, units),
        cell_bias,
        0.1 * gate.reshape(units, units),
        gate_bias - 3.0,
        0.1 * out,
        jnp.zeros((), float),
    )


def _optimiser(rudder: Rudder) -> optax.GradientTransformation:
    return optax.adamw(rudder.step_size, weight_decay=rudder.weight_decay)


def inputs(env: DiscreteEnv, state: Array, action: Array, next_state: Array) -> Float[Array, "t f"]:
    """What the LSTM sees of each step: the new state, its change, the action."""
    features = jax.vmap(env.features)
    acted = (action[:, None] == jnp.arange(env.spec.num_actions, dtype=jnp.int32)).astype(float)
    return jnp.concatenate([features(next_state), features(next_state) - features(state), acted], axis=1)


def predict(weights: LstmWeights, x: Float[Array, "t f"]) -> Float[Array, "t"]:
    """The prediction of the return after every step: cₜ = cₜ₋₁ + σ(U hₜ₋₁ + b) · tanh(W xₜ + b'), hₜ = tanh cₜ."""
    candidate = jnp.tanh(x @ weights.cell + weights.cell_bias)

    def step(cell: Float[Array, "u"], new: Float[Array, "u"]) -> tuple[Any, Any]:
        cell = cell + jax.nn.sigmoid(jnp.tanh(cell) @ weights.gate + weights.gate_bias) * new
        return cell, cell

    _, cells = jax.lax.scan(step, jnp.zeros_like(weights.cell_bias), candidate)
    return jnp.tanh(cells) @ weights.out + weights.out_bias


def loss(
    weights: LstmWeights, x: Float[Array, "b t f"], total: Float[Array, "b"], length: Int[Array, "b"]
) -> Float[Array, ""]:
    """The squared error at the end, plus half its mean over all steps, which moves credit to where it is due."""
    error = jnp.square(jax.vmap(predict, (None, 0))(weights, x) - total[:, None])
    last = jnp.take_along_axis(error, length[:, None] - 1, axis=1)[:, 0]
    each = jnp.where(jnp.arange(x.shape[1], dtype=jnp.int32) < length[:, None], error, 0.0)
    return jnp.mean(last + 0.5 * (each.sum(1) / length.astype(float)))


def redistribute(prediction: Float[Array, "t"], total: Float[Array, ""], length: Int[Array, ""]) -> Float[Array, "t"]:
    """Differences of consecutive predictions, the rest spread evenly over the episode's steps: their sum is the
    return. Rows after the end get nothing."""
    change = jnp.diff(prediction, prepend=0.0)
    rest = (total - prediction[length - 1]) / length.astype(float)
    return jnp.where(jnp.arange(prediction.shape[0], dtype=jnp.int32) < length, change + rest, 0.0)


def learn(
    env: DiscreteEnv, rudder: Rudder, memory: RudderMemory, episode: Episode, count: Int[Array, ""], key: PRNGKeyArray
) -> RudderMemory:
    """Store the episode, train the LSTM if it is time, and learn from the redistributed reward once it was trained."""
    place = count % rudder.capacity
    total, length = jnp.sum(episode.reward), jnp.sum(episode.valid, dtype=jnp.int32)
    memory = memory._replace(
        state=memory.state.at[place].set(episode.state),
        action=memory.action.at[place].set(episode.action),
        next_state=memory.next_state.at[place].set(episode.next_state),
        total=memory.total.at[place].set(total),
        length=memory.length.at[place].set(length),
    )
    stored = count + 1
    due = (stored >= rudder.wait) & ((stored - rudder.wait) % rudder.interval == 0)
    weights, optimiser, scale = jax.lax.cond(
        due,
        lambda: train(env, rudder, memory, jnp.minimum(stored, rudder.capacity), key),
        lambda: (memory.weights, memory.optimiser, memory.scale),
    )
    x = inputs(env, episode.state, episode.action, episode.next_state)
    reward = redistribute(scale[0] + scale[1] * predict(weights, x), total, length)
    q = tabular.learn_episode(rudder.agent, memory.q, episode._replace(reward=reward))
    q = jnp.where(stored >= rudder.wait, q, memory.q)
    return memory._replace(q=q, weights=weights, optimiser=optimiser, scale=scale)


def train(env: DiscreteEnv, rudder: Rudder, memory: RudderMemory, stored: Int[Array, ""], key: PRNGKeyArray) -> tuple:
    """One round: `updates` Adam steps on batches drawn from the stored episodes."""
    held = jnp.arange(rudder.capacity, dtype=jnp.int32) < stored
    mean = jnp.mean(memory.total, where=held)
    deviation = jnp.maximum(jnp.std(memory.total, where=held), 1e-6)

    def update(carry: Any, i: Int[Array, ""]) -> tuple[Any, None]:
        weights, optimiser = carry
        draw = jax.random.uniform(jax.random.fold_in(key, i), (rudder.batch,))
        rows = jnp.minimum((draw * stored.astype(float)).astype(jnp.int32), stored - 1)
        x = jax.vmap(lambda s, a, n: inputs(env, s, a, n))(
            memory.state[rows], memory.action[rows], memory.next_state[rows]
        )
        gradient = jax.grad(loss)(weights, x, (memory.total[rows] - mean) / deviation, memory.length[rows])
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to its own step count
            step, optimiser = _optimiser(rudder).update(gradient, optimiser, weights)
        return (optax.apply_updates(weights, step), optimiser), None

    (weights, optimiser), _ = jax.lax.scan(
        update, (memory.weights, memory.optimiser), jnp.arange(rudder.updates, dtype=jnp.int32)
    )
    return weights, optimiser, jnp.stack([mean, deviation])
