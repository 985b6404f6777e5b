"""The tabular agent: known values, two views of traces, Algorithm 3 against a plain loop, seeds, errors."""

import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.core import targets as rules
from highway_rl.core.targets import TargetRule
from highway_rl.envs import make_task
from highway_rl.tabular import agent as tabular
from highway_rl.tabular import draws, replay
from highway_rl.tabular.loop import trainer
from highway_rl.types import NEVER, DiscreteEnv, Env, Spec, Step

STATE = jax.ShapeDtypeStruct((), np.int32)


def probe(steps: int, reward, *, start: int = 2) -> DiscreteEnv:
    """A corridor of `steps` states whose action says what it pays: `reward(time, action, last)`."""

    def step(state, action, key):
        last = state == steps - 1
        there = jnp.minimum(state + 1, steps).astype(jnp.int32)
        paid = jnp.asarray(reward(state, action, last), float)
        return Step(there, there, paid, last, jnp.zeros_like(last))

    return DiscreteEnv(
        Spec("probe", STATE, 2, horizon=steps),
        lambda key: (jnp.int32(0), jnp.int32(0)),
        step,
        num_states=steps + 1,
        clocked=True,
        solved=lambda q: q[0, 1] > q[0, 0],
        on_track=lambda states, actions: actions[0] == 1,
        features=lambda state: state[None].astype(float),
    )


def learned(env, agent, episodes, seeds=4, **options):
    learner = tabular.learner(env, agent)
    keys = jax.random.split(jax.random.key(3), seeds)
    return trainer(env, learner, max_episodes=episodes, until="cap", **options)(keys)


BY_ACTION = probe(3, lambda time, action, last: jnp.where(last, 1.0 + action.astype(float), 0.0))
"""The last action pays 1 or 2, nothing else matters: with discount ½ the greedy value of step t is 2·½^(2−t)."""


@pytest.mark.parametrize("method", [m for m in tabular.AGENTS if m != "highway-q-learning"])
def test_probe_with_known_values(method):
    """Every method learns that the last action 1 pays 2; the greedy ones also the values before it."""
    q = np.asarray(learned(BY_ACTION, tabular.tabular_agent(method, 3, discount=0.5), 800).kept.q)
    np.testing.assert_allclose(q[:, 2], np.array([[1.0, 2.0]] * 4), atol=2e-3)
    if method in ("q-learning", "watkins-q-lambda", "retrace"):
        np.testing.assert_allclose(q[:, :2].max(-1), np.array([[0.5, 1.0]] * 4), atol=2e-3)


@pytest.mark.parametrize("settings", [{}, {"rollouts": 2, "capacity": 128}, {"policies": 1}, {"depths": (1, 2)}])
def test_highway_probe_is_exact(settings):
    agent = tabular.highway_q_learning(3, **{"capacity": 64, **settings})
    q = np.asarray(learned(BY_ACTION, agent, 120).kept.q)
    np.testing.assert_allclose(q[:, :3], np.array([[[2.0, 2.0], [2.0, 2.0], [1.0, 2.0]]] * 4), atol=1e-12)


def filled(env, agent, q, episodes):
    """The memory after some episodes, and the episodes themselves."""
    explore = tabular.q_learning(epsilon=1.0)
    keys = jax.random.split(jax.random.key(5), episodes)
    seen = jax.jit(jax.vmap(lambda key: tabular.collect(env, explore, q, key)))(keys)

    def put(kept, xs):
        count, episode = xs
        return replay.store(agent.replay, kept, episode, env.spec.num_actions, count), None

    counts = jnp.arange(episodes, dtype=jnp.int32)
    return jax.lax.scan(put, replay.empty(agent.replay, env.horizon), (counts, seen))[0], seen


def random_episode(rng, steps, states, actions):
    state = rng.permutation(states)[:steps]
    return tabular.Episode(
        jnp.asarray(state, jnp.int32),
        jnp.asarray(rng.integers(0, actions, steps), jnp.int32),
        jnp.asarray(rng.normal(size=steps)),
        jnp.asarray(np.r_[np.full(steps - 1, 0.9), 0.0]),
        jnp.full(steps, 0.5),
        jnp.asarray(np.r_[state[1:], 0], jnp.int32),
        jnp.ones(steps, bool),
    )


@pytest.mark.parametrize("kind", ["watkins", "sarsa", "monte carlo"])
def test_forward_view_is_offline_traces(kind):
    """Must hold to 1e-10: targets of the episode against a backward eligibility trace written out."""
    rng = np.random.default_rng(0)
    agent = {
        "watkins": tabular.watkins_q_lambda(0.9),
        "sarsa": tabular.sarsa_lambda(0.9),
        "monte carlo": tabular.monte_carlo(),
    }[kind]
    lam = 1.0 if kind == "monte carlo" else 0.9
    learn = jax.jit(lambda q, e: tabular.learn_episode(agent, q, e))
    for _ in range(5):
        e = random_episode(rng, 12, 20, 3)
        q = rng.normal(size=(20, 3))
        got = np.asarray(learn(jnp.asarray(q), e))
        change, trace = np.zeros_like(q), np.zeros_like(q)
        s, a, r, g, n = (np.asarray(x) for x in (e.state, e.action, e.reward, e.discount, e.next_state))
        for t in range(12):
            if kind == "watkins" and t and q[s[t], a[t]] < q[s[t]].max():
                trace[:] = 0
            trace[s[t], a[t]] += 1
            follow = q[n[t]].max() if kind == "watkins" or t == 11 else q[n[t], a[t + 1]]
            change += 0.1 * (r[t] + g[t] * follow - q[s[t], a[t]]) * trace
            trace *= g[t] * lam
        np.testing.assert_allclose(got, q + change, atol=1e-10)


def plain_updates(q, kept, chosen, backup):
    """Algorithm 3's inner loop as the paper prints it, over raw episodes."""
    horizon = kept["state"].shape[1]
    for pair, places, lefts in zip(*(np.asarray(x) for x in chosen[:3]), strict=True):
        by_policy = []
        for place, left in zip(places, lefts, strict=True):
            rollouts = []
            for p, steps in zip(place, left, strict=True):
                if steps:
                    e, t = divmod(int(p), horizon)
                    returns, total = [], 0.0
                    for n in range(1, steps + 1):
                        total += kept["reward"][e, t + n - 1]
                        returns.append(total + (q[kept["state"][e, t + n]].max() if n < steps else 0.0))
                    rollouts.append(returns)
            if rollouts:
                mean = np.mean(rollouts, axis=0)
                by_policy.append(np.maximum(mean, mean[0]) if backup.gate_depth == 1 else mean)
        if math.isinf(backup.depth_alpha):
            goal = max(m.max() for m in by_policy)
        else:
            goal = np.mean([m.mean() for m in by_policy])
        q[pair // q.shape[1], pair % q.shape[1]] = goal
    return q


@pytest.mark.parametrize(
    ("rollouts", "alpha", "gate"), [(1, math.inf, 1), (2, math.inf, 1), (1, 0.0, 1), (2, 0.0, None)]
)
def test_highway_updates_are_the_papers(rollouts, alpha, gate):
    """The ring, the search and the returns by subtraction against the printed algorithm on the same draws."""
    env = make_task("trace-back", delay=5)
    agent = tabular.highway_q_learning(5, rollouts=rollouts, alpha=alpha, gate_depth=gate, capacity=64, updates=20)
    rng = np.random.default_rng(1)
    q = jnp.asarray(rng.normal(size=(env.num_states, 4)) * 20)
    kept, seen = filled(env, agent, q, 40)
    raw = {"state": np.asarray(seen.state), "reward": np.asarray(seen.reward)}
    count, key = jnp.int32(39), jax.random.key(7)
    chosen = jax.jit(lambda kept: replay.choose(agent.replay, kept, count, key))(kept)
    tables = replay.Tables(q, q.max(-1))
    got = jax.jit(lambda *x: replay.replay_updates(agent.replay, agent, *x, count, key))(tables, kept)
    want = plain_updates(np.array(q), raw, chosen, agent.rule.backup)
    np.testing.assert_allclose(np.asarray(got.q), want, atol=1e-10)
    np.testing.assert_array_equal(np.asarray(got.value), np.asarray(got.q).max(-1))


def test_the_search_finds_every_policy_equally():
    """M policies of those that met (s,a): different, right, and each as likely as the other."""
    env = make_task("trace-back", delay=4)
    agent = tabular.highway_q_learning(4, capacity=64, updates=400)
    kept, _ = filled(env, agent, jnp.zeros((env.num_states, 4)), 50)
    chosen = jax.jit(lambda kept: replay.choose(agent.replay, kept, jnp.int32(49), jax.random.key(1)))(kept)
    pairs, places, lefts, _ = (np.asarray(x) for x in chosen)
    table = np.asarray(kept.pair_at)
    seen = {}
    for pair, place, left in zip(pairs, places[..., 0], lefts[..., 0], strict=True):
        episode, time = place // 4, place % 4
        met = np.flatnonzero(table[time[0]] == pair)
        found = episode[left > 0]
        assert len(set(found)) == len(found) == min(3, len(met))
        assert set(found) <= set(met)
        if time[0] == 0:
            seen.setdefault(int(pair), []).append(found)
    most = max(seen.values(), key=len)
    counts = np.bincount(np.concatenate(most), minlength=50)
    assert (counts > 0).sum() >= 8


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_distinct_draws_are_uniform_sets(count):
    uniform = jax.random.uniform(jax.random.key(0), (6000, 3))
    ranks, some = (np.asarray(x) for x in draws.distinct(uniform, jnp.full(6000, count, jnp.int32)))
    sets = [tuple(sorted(r[m])) for r, m in zip(ranks, some, strict=True)]
    expected = list(itertools.combinations(range(count), min(3, count)))
    frequency = np.array([sets.count(x) for x in expected]) / 6000
    assert len(set(sets)) == len(expected)
    np.testing.assert_allclose(frequency, 1 / len(expected), atol=0.02)


def test_nth_bit():
    words = np.random.default_rng(0).integers(1, 2**32, 3, dtype=np.uint32)
    for word in words:
        places = [i for i in range(32) if int(word) >> i & 1]
        got = draws.nth_bit(jnp.full(len(places), word), jnp.arange(len(places), dtype=jnp.int32))
        assert np.asarray(got).tolist() == places


def test_one_policy_of_depth_one_is_q_learning():
    """Must hold: M = 1, 𝒩 = {1} gives the same table as Q-learning's target on the same draws."""
    env = make_task("trace-back", delay=6)
    highway = tabular.highway_q_learning(6, policies=1, depths=(1,), capacity=64)
    plain = tabular.TabularAgent(TargetRule(rules.q_learning().backup), learning_rate=1.0, replay=highway.replay)
    a, b = (np.asarray(learned(env, agent, 40).kept.q) for agent in (highway, plain))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a).max() > 0


@pytest.mark.long
def test_vmapped_seeds_are_looped_seeds_and_compile_once():
    env = make_task("trace-back", delay=4)
    train = trainer(env, tabular.learner(env, tabular.highway_q_learning(4, capacity=64)), max_episodes=50, until="cap")
    keys = jax.random.split(jax.random.key(0), 3)
    together = train(keys)
    alone = [train(keys[i : i + 1]) for i in range(3)]
    for i, one in enumerate(alone):
        np.testing.assert_array_equal(together.kept.q[i], one.kept.q[0])
        assert together.greedy[i] == one.greedy[0]
    assert not np.array_equal(together.kept.q[0], together.kept.q[1])
    grouped = train(keys[:, None])
    np.testing.assert_array_equal(grouped.kept.q[:, 0], together.kept.q)
    before = train._cache_size()
    train(jax.random.split(jax.random.key(9), 3))
    assert train._cache_size() == before


def test_solved_rules():
    """A task that every policy solves at once is solved at episode 1, and by the moving average when it must be."""
    env = probe(3, lambda time, action, last: jnp.where(time == 0, action.astype(float), 0.0))
    result = learned(env, tabular.monte_carlo(learning_rate=1.0), 400, seeds=8, average_rate=0.05)
    assert np.asarray(result.greedy).max() < 60
    assert np.asarray(result.average).max() < NEVER
    assert np.asarray(result.right).min() > 0.8


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tabular.tabular_agent("magic", 5), "unknown method 'magic': choose from highway-q-learning"),
        (lambda: tabular.q_learning(epsilon=1.5), "epsilon=1.5"),
        (lambda: tabular.monte_carlo(learning_rate=-1), "learning_rate=-1"),
        (lambda: tabular.highway_q_learning(5, policies=0), "policies=0: give"),
        (lambda: tabular.highway_q_learning(5, capacity=100), "capacity=100: give a multiple of 32"),
        (lambda: tabular.TabularAgent(rules.retrace(), replay=replay.Replay()), "rule has a trace"),
        (
            lambda: trainer(BY_ACTION, tabular.learner(BY_ACTION, tabular.q_learning()), max_episodes=0),
            "max_episodes=0: give a whole number >= 1",
        ),
    ],
)
def test_bad_settings_are_refused(make, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        make()
    assert "\n" not in str(error.value)


def test_continuous_observations_are_refused():
    sky = Env(Spec("sky", jax.ShapeDtypeStruct((3,), np.float32), 2), lambda key: None, lambda s, a, k: None)
    with pytest.raises(ValueError, match=r"'sky' has observation float32 .*: give .*trace-back"):
        tabular.learner(sky, tabular.q_learning())


@pytest.mark.full
def test_highway_on_trace_back_at_every_delay():
    """Must hold: at most 150 episodes on average at delays 6…100, without growth."""
    from highway_rl.experiments import toy_delayed

    cell = {"kind": "solve", "base_seed": 0, "first": 0, "seeds": 100, "task": "trace-back", "cap": 3000}
    mean = {}
    for delay in toy_delayed.DELAYS["paper"]["trace-back"]:
        rows = list(toy_delayed.run(**cell, delay=delay, method="Highway Q-learning"))
        mean[delay] = np.mean([row["greedy"] for row in rows])
    print(mean, toy_delayed.slope(mean))
    assert max(mean.values()) <= 150
    assert abs(toy_delayed.slope(mean)) <= 0.15


def test_highway_on_trace_back_does_not_need_more_with_delay():
    """The same at reduced size."""
    medians = []
    for delay in (6, 12):
        env = make_task("trace-back", delay=delay)
        agent = tabular.highway_q_learning(delay, capacity=256)
        medians.append(np.median(learned(env, agent, 256, seeds=24, keep=lambda memory: ()).greedy))
    assert max(medians) <= 150
