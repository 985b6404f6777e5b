"""The tabular agent: one loop, every tabular algorithm of the paper and its rivals.

    collect an episode with the ε-greedy policy  →  targets by a `TargetRule`  →  Q(s,a) += rate · (target − Q(s,a))

Without `Replay` the targets are those of the episode just seen, all computed from the Q before it (the offline form
of eligibility traces). With it they are Highway Q-learning's: per-policy datasets 𝒟⁽ᵐ⁾, an average within each of M
sampled policies, then gate and aggregate. Ties are broken at random in acting.

Paper: Sec. 6.2, App. B.1 (Algorithm Highway Q-Learning, Eq. 20).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from highway_rl import checks
from highway_rl.core import targets as rules
from highway_rl.core.backup import Backup
from highway_rl.core.bootstrap import EpsilonGreedy, EvenlyGreedy, Greedy, value_of
from highway_rl.core.targets import TargetRule, Trajectory, targets
from highway_rl.tabular.loop import Learner
from highway_rl.tabular.replay import Episodes, Replay, Tables, empty, replay_updates, store
from highway_rl.types import DiscreteEnv, Env, record, static


@record
class TabularAgent:
    """A target rule and how it is applied. The numbers are leaves: a sweep over them is a `vmap`."""

    rule: TargetRule
    learning_rate: Any = 0.1
    epsilon: Any = 0.2
    discount: Any = 1.0
    initial_value: Any = 0.0
    replay: Replay | None = static(default=None)

    def __post_init__(self) -> None:
        for name in ("learning_rate", "epsilon", "discount"):
            checks.unit_interval(name, getattr(self, name))
        if self.replay is not None and self.rule.trace is not None:
            raise ValueError("rule has a trace: give replay one without, such as highway_optimality")
        if self.replay is not None and not isinstance(self.rule.bootstrap, Greedy | EvenlyGreedy | EpsilonGreedy):
            raise ValueError("rule's bootstrap looks at the action taken: give replay one that looks at Q alone")
        if self.replay is not None and self.replay.chooser == "half" and self.rule.backup.gate_depth not in (1, None):
            raise ValueError("chooser='half' compares with the 1-step return: give gate_depth 1 or None, or 'sample'")


class Episode(NamedTuple):
    """One episode, padded to the horizon; row t is valid while t < length. `behaviour` is π(aₜ|sₜ)."""

    state: Int[Array, "t"]
    action: Int[Array, "t"]
    reward: Float[Array, "t"]
    discount: Float[Array, "t"]
    behaviour: Float[Array, "t"]
    next_state: Int[Array, "t"]
    valid: Bool[Array, "t"]


class Memory(NamedTuple):
    """What an agent carries from episode to episode: the table and, with replay, its V(s) and the newest episodes."""

    q: Float[Array, "s a"]
    value: Float[Array, "s"] | None = None
    episodes: Episodes | None = None


def check_task(env: Any, agent: TabularAgent | None = None) -> None:
    """Refuse an environment that a table cannot hold."""
    if not isinstance(env, DiscreteEnv):
        known = env.spec if isinstance(env, Env) else env
        seen = getattr(getattr(known, "observation", None), "dtype", "of no known type")
        raise ValueError(
            f"environment {str(getattr(known, 'name', env))!r} has observation {seen} with no number of states: "
            "give one whose observation is a state number, such as trace-back, choice, grid-world, watch-repair"
        )
    if agent is not None and agent.replay is not None and not env.clocked:
        raise ValueError(f"environment {env.spec.name!r} meets states twice in an episode: give replay a clocked one")


def start(env: DiscreteEnv, agent: TabularAgent) -> Memory:
    q = jnp.full((env.num_states, env.spec.num_actions), agent.initial_value, float)
    if agent.replay is None:
        return Memory(q)
    value = jnp.full(env.num_states, value_of(agent.rule.bootstrap, q[0], q[0]))
    return Memory(q, value, empty(agent.replay, env.horizon, q.size))


def behave(q: Float[Array, "a"], epsilon: Any, draw: Float[Array, ""]) -> tuple[Array, Array]:
    """An action of the ε-greedy policy (ties shared evenly) and its probability, from one uniform draw."""
    policy = EpsilonGreedy(epsilon)(q)
    action = jnp.minimum(jnp.sum(jnp.cumsum(policy) <= draw), q.shape[0] - 1).astype(jnp.int32)
    return action, policy[action]


def collect(env: DiscreteEnv, agent: TabularAgent, q: Float[Array, "s a"], key: PRNGKeyArray) -> Episode:
    """One episode under the ε-greedy policy of q. Nothing is worth anything after the horizon.

    A step needs one key: its own two words are as random as what is drawn from it, and serve for the action. Drawing
    inside the loop compiles several times faster than drawing an array before it.
    """
    state, obs = env.reset(jax.random.fold_in(key, 0))

    def step(carry: Any, time: Int[Array, ""]) -> tuple[Any, Episode]:
        state, obs, over = carry
        step_key = jax.random.fold_in(key, time + 1)
        draw = (jax.random.key_data(step_key)[0] >> 8).astype(float) * 2.0**-24
        action, probability = behave(q[obs], agent.epsilon, draw)
        new = env.step(state, action, step_key)
        reward = jnp.where(over, 0.0, new.reward)
        discount = jnp.where(over | new.terminated, 0.0, jnp.asarray(agent.discount, float))
        row = Episode(obs, action, reward, discount, probability, new.obs, ~over)
        return (new.state, new.obs, over | new.terminated | new.truncated), row

    _, episode = jax.lax.scan(step, (state, obs, jnp.bool_(False)), jnp.arange(env.horizon, dtype=jnp.int32))
    return episode


def learn(
    agent: TabularAgent, memory: Memory, episode: Episode, count: Int[Array, ""], key: PRNGKeyArray, going: Any = True
) -> Memory:
    """The table after one more episode; `count` is how many came before. Replay can stop where it is not `going`."""
    if agent.replay is None or memory.episodes is None or memory.value is None:
        return Memory(learn_episode(agent, memory.q, episode))
    episodes = store(agent.replay, memory.episodes, episode, memory.q.shape[1], count)
    tables = replay_updates(agent.replay, agent, Tables(memory.q, memory.value), episodes, count, key, going)
    return Memory(*tables, episodes)


def learn_episode(agent: TabularAgent, q: Float[Array, "s a"], episode: Episode) -> Float[Array, "s a"]:
    """Q(sₜ,aₜ) += rate · (targetₜ − Q(sₜ,aₜ)) for every step of the episode at once."""
    last = ~jnp.roll(episode.valid, -1) | (
        jnp.arange(episode.valid.shape[0], dtype=jnp.int32) == episode.valid.shape[0] - 1
    )
    action = episode.action.astype(int)
    data = Trajectory(action, episode.reward, episode.discount, last, episode.behaviour)
    rows = q[episode.state]
    goal = targets(agent.rule, data, rows, q[episode.next_state])
    now = jnp.take_along_axis(rows, action[:, None], 1)[:, 0]
    rate = jnp.where(episode.valid, jnp.asarray(agent.learning_rate, q.dtype), 0.0)
    return q.at[episode.state, episode.action].add(rate * (goal - now))


def learner(env: Any, agent: TabularAgent) -> Learner:
    """The agent in this environment, ready for `train`."""
    check_task(env, agent)

    def episode(memory: Memory, count: Int[Array, ""], going: Any, key: PRNGKeyArray) -> tuple[Memory, Array, Array]:
        seen = collect(env, agent, memory.q, key)
        memory = learn(agent, memory, seen, count, jax.random.fold_in(key, 0) if agent.replay else key, going)
        return memory, memory.q, env.on_track(seen.state, seen.action)

    return Learner(lambda key: start(env, agent), episode, agent.epsilon)


def highway_q_learning(
    horizon: int,
    *,
    policies: int | None = None,
    rollouts: int = 1,
    updates: int | None = None,
    alpha: Any = math.inf,
    gate_depth: int | None = 1,
    depths: Iterable[int] | None = None,
    capacity: int = 1024,
    epsilon: Any = 0.2,
    chooser: str = "sample",
    confidence: float = -2.0,
) -> TabularAgent:
    """Highway Q-learning with 𝒩 = {1,…,T−t}, M = `policies`, I_rollout = `rollouts`, I_update = `updates` (T if None).

    alpha = ∞ is the paper's maximum over policies and depths; a finite one its softmax; gate_depth None, 0 or 3 the
    ablations of the gate. Each update replaces Q(s,a) by its target. The newest `capacity` episodes are kept.

    chooser "half" is for tasks with chance in them (`targets.py`): it averages over 32 policies where the paper's
    "sample" takes the largest of 3, unless you name another number.

    Paper: App. B.1, Eq. 20; settings of App. C.2.
    """
    reach = tuple(range(1, horizon + 1)) if depths is None else tuple(depths)
    backup = Backup(reach, depth_alpha=alpha, policy_alpha=alpha, gate_depth=gate_depth)
    policies = {"sample": 3}.get(chooser, 32) if policies is None else policies
    replay = Replay(policies, rollouts, horizon if updates is None else updates, capacity, chooser, confidence)
    return TabularAgent(TargetRule(backup), learning_rate=1.0, epsilon=epsilon, replay=replay)


def q_learning(**settings: Any) -> TabularAgent:
    """r + γ max Q(s',·)."""
    return TabularAgent(rules.q_learning(), **settings)


def n_step_q_learning(n: int, **settings: Any) -> TabularAgent:
    """n rewards, then γⁿ max Q; no correction."""
    return TabularAgent(rules.n_step(n), **settings)


def n_step_sarsa(n: int, **settings: Any) -> TabularAgent:
    """n rewards, then γⁿ Q of the action taken."""
    return TabularAgent(rules.n_step_sarsa(n), **settings)


def monte_carlo(**settings: Any) -> TabularAgent:
    """An exponential moving average of the return: n-step with n = ∞. Paper: App. C.2."""
    return TabularAgent(rules.monte_carlo(), **settings)


def watkins_q_lambda(lam: Any = 0.9, **settings: Any) -> TabularAgent:
    """Q(λ) whose trace ends at the first action that is not greedy. Paper: App. C.2."""
    return TabularAgent(rules.watkins_q_lambda(lam), **settings)


def sarsa_lambda(lam: Any = 0.9, **settings: Any) -> TabularAgent:
    """SARSA(λ). Paper: App. C.2."""
    return TabularAgent(rules.sarsa_lambda(lam), **settings)


def tree_backup(lam: Any = 1.0, *, epsilon: Any = 0.2, **settings: Any) -> TabularAgent:
    """Tree Backup(λ) towards the agent's own ε-greedy policy."""
    return TabularAgent(rules.tree_backup(lam, EpsilonGreedy(epsilon)), epsilon=epsilon, **settings)


def q_sigma(sigma: Any = 0.5, lam: Any = 1.0, *, epsilon: Any = 0.2, **settings: Any) -> TabularAgent:
    """Q(σ): SARSA at σ = 1, Tree Backup at σ = 0."""
    return TabularAgent(rules.q_sigma(sigma, EpsilonGreedy(epsilon), lam), epsilon=epsilon, **settings)


def retrace(lam: Any = 1.0, **settings: Any) -> TabularAgent:
    """Retrace(λ) towards the greedy policy. Paper: Eq. 19."""
    return TabularAgent(rules.retrace(lam), **settings)


AGENTS: dict[str, Callable[..., TabularAgent]] = {
    "highway-q-learning": highway_q_learning,
    "watkins-q-lambda": lambda horizon, **settings: watkins_q_lambda(**settings),
    "sarsa-lambda": lambda horizon, **settings: sarsa_lambda(**settings),
    "monte-carlo": lambda horizon, **settings: monte_carlo(**settings),
    "q-learning": lambda horizon, **settings: q_learning(**settings),
    "n-step-q-learning": lambda horizon, n=3, **settings: n_step_q_learning(n, **settings),
    "n-step-sarsa": lambda horizon, n=3, **settings: n_step_sarsa(n, **settings),
    "tree-backup": lambda horizon, **settings: tree_backup(**settings),
    "q-sigma": lambda horizon, **settings: q_sigma(**settings),
    "retrace": lambda horizon, **settings: retrace(**settings),
}
"""Agent by name, from the horizon of the task and further settings."""


def tabular_agent(method: str, horizon: int, **settings: Any) -> TabularAgent:
    """The named agent for tasks of this horizon."""
    if method not in AGENTS:
        raise checks.unknown("method", method, AGENTS)
    return AGENTS[method](horizon, **settings)
