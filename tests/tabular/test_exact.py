"""Where nothing is random, what the agents learn from episodes is what the exact operator computes from the model."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl import operator
from highway_rl.mdp.model import MDP
from highway_rl.tabular import agent as tabular
from highway_rl.tabular import replay

LAYERS, WIDTH, ACTIONS, DISCOUNT = 5, 4, 3, 0.9
STATES = LAYERS * WIDTH + 1


def world(seed):
    """A deterministic model whose states tell the time, three policies without chance, and some Q."""
    rng = np.random.default_rng(seed)
    layer = np.arange(STATES - 1) // WIDTH
    successor = np.full((STATES, ACTIONS), STATES - 1)
    successor[:-1] = (layer[:, None] + 1) * WIDTH + rng.integers(0, WIDTH, (STATES - 1, ACTIONS))
    successor[-1 - WIDTH :] = STATES - 1
    reward = rng.normal(size=(STATES, ACTIONS))
    reward[-1] = 0
    discount = np.full((STATES, ACTIONS), DISCOUNT)
    discount[-1 - WIDTH :] = 0
    mdp = MDP.from_table(reward, successor[..., None], np.ones((STATES, ACTIONS, 1)), discount)
    policies = np.eye(ACTIONS)[rng.integers(0, ACTIONS, (3, STATES))]
    return mdp, policies, rng.normal(size=(STATES, ACTIONS))


def walk(mdp, policy, action, state=0):
    """The episode that takes the action first and follows the policy from then on."""
    steps = []
    for _ in range(LAYERS):
        after = int(mdp.successor[state, action, 0])
        steps.append((state, action, float(mdp.reward[state, action]), float(mdp.discount[state, action]), 1.0, after))
        state, action = after, int(policy[after].argmax())
    kinds = (jnp.int32, jnp.int32, float, float, float, jnp.int32)
    columns = [jnp.asarray(x, kind) for x, kind in zip(zip(*steps, strict=True), kinds, strict=True)]
    return tabular.Episode(*columns, jnp.ones(LAYERS, bool))


COVERED = ("q-learning", "n-step-sarsa", "tree-backup")  # by n-step Q-learning, SARSA(λ) and Q(σ)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=pytest.mark.full) if m in COVERED else m
        for m in tabular.AGENTS
        if m != "highway-q-learning"
    ],
)
def test_targets_of_an_episode_are_the_exact_operator(method):
    agent = tabular.tabular_agent(method, LAYERS, learning_rate=1.0, discount=DISCOUNT)
    learn = jax.jit(lambda q, episode: tabular.learn_episode(agent, q, episode))
    for seed in range(3):
        mdp, policies, q = world(seed)
        exact = np.asarray(operator(agent.rule, mdp, policies[:1])(q))
        for action in range(ACTIONS):
            episode = walk(mdp, policies[0], action)
            got = np.asarray(learn(jnp.asarray(q), episode))
            seen = np.asarray(episode.state), np.asarray(episode.action)
            np.testing.assert_allclose(got[seen], exact[seen], atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alpha": 0.7},
        *(pytest.param(x, marks=pytest.mark.long) for x in ({"alpha": 0.0}, {"gate_depth": None}, {"gate_depth": 0})),
        *(pytest.param(x, marks=pytest.mark.long) for x in ({"gate_depth": 3}, {"depths": (2, 4)})),
        {"chooser": "half", "policies": 3},
    ],
    ids=str,
)
def test_highway_updates_are_the_exact_operator(settings):
    """Three policies, an episode each: one update of (s,a) is the operator over exactly those policies."""
    alpha = settings.get("alpha", math.inf)
    agent = tabular.highway_q_learning(LAYERS, capacity=32, updates=1, **settings)
    agent = tabular.TabularAgent(agent.rule, learning_rate=1.0, discount=DISCOUNT, replay=agent.replay)

    @jax.jit
    def update(q, episodes, pair):
        kept = replay.empty(agent.replay, LAYERS, q.size)
        for i, episode in enumerate(episodes):
            kept = replay.store(agent.replay, kept, episode, ACTIONS, jnp.int32(i))
        first = (jnp.arange(3, dtype=jnp.int32) * LAYERS)[None, :, None]
        chosen = replay.Chosen(pair[None], first, jnp.full_like(first, LAYERS), jnp.array([3], jnp.int32))
        how = (agent.replay, agent.rule)
        return replay._in_turn(how, 1.0, DISCOUNT, replay.Tables(q, q.max(-1)), kept, chosen, jnp.bool_(True))

    for seed in range(3):
        mdp, policies, q = world(seed)
        exact = np.asarray(operator(agent.rule, mdp, policies)(q))
        for action in range(ACTIONS):
            episodes = [walk(mdp, policy, action) for policy in policies]
            got = np.asarray(update(jnp.asarray(q), episodes, jnp.int32(action)).q)
            np.testing.assert_allclose(got[0, action], exact[0, action], atol=1e-12, err_msg=f"alpha {alpha}")
            assert np.array_equal(np.delete(got.ravel(), action), np.delete(q.ravel(), action))
