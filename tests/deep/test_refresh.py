"""A refresh as the loop asks for it: batches of real rows with their targets, by each kind of bootstrap."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.core import targets
from highway_rl.core.backup import TO_END
from highway_rl.core.bootstrap import Double, EpsilonGreedy, greedy
from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.deep import dqn, networks, refresh
from highway_rl.deep.dqn import DQN
from highway_rl.deep.refresh import looks_everywhere, make_agent, needed
from highway_rl.types import Spec

SPEC = Spec("stub", jax.ShapeDtypeStruct((7,), jnp.float32), 3)
ACTION, REWARD = np.array([2, 0, 1, 1, 0]), np.array([0.5, -1.0, 2.0, 0.25, 3.0])
TERMINATED = np.array([False, False, True, False, False])
RULES = {
    "greedy": targets.q_learning(),
    "epsilon-greedy": targets.q_learning(bootstrap=EpsilonGreedy()),
    "double": targets.q_learning(bootstrap=Double()),
}
SHAPE = (6, 2)


def tiny(spec, key):
    return networks.FlatNetwork(spec, key, hidden=(8,))


AGENT = DQN(rule=tuple(RULES.values()), network=tiny, discount=0.8, epsilon_steps=100.0, batch_size=16)


def observation(number):
    return jnp.eye(7, dtype=jnp.float32)[number]


def store():
    """Five steps whose observations are 0 … 4, each followed by the next, the fourth cut with 6 as its last one."""
    encode = codec_of(SPEC).encode
    coded = lambda *numbers: jnp.stack([encode(observation(n)) for n in numbers])  # noqa: E731
    rows = ring.Rows(
        coded(0, 1, 2, 3, 4),
        jnp.asarray(ACTION, jnp.int32),
        jnp.asarray(REWARD, jnp.float32),
        jnp.asarray(TERMINATED),
        jnp.ones(5, jnp.float32),
        jnp.zeros(5, jnp.int32),
        jnp.arange(5, dtype=jnp.int32),
        jnp.ones(5, bool),
    )
    cut = jnp.arange(5) == 3
    filled = ring.add(ring.empty(9, coded(0)[0]), rows, cut, coded(1, 2, 3, 6, 5), coded(5)[0])
    return jax.tree.map(lambda x: x[None], filled)


FOLLOWS = np.array([1, 2, 3, 6, 5])


@pytest.fixture(scope="module")
def refreshed():
    """(rule, step) → the learning after, the batches, and the values of the newer and the older networks."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        learning = dqn.start(AGENT, SPEC, jax.random.key(0))
        learning = learning._replace(older=dqn.start(AGENT, SPEC, jax.random.key(9)).params)
        tables = [
            np.asarray(dqn.q_values(AGENT, SPEC, p, jnp.eye(7)), np.float64) for p in (learning.params, learning.older)
        ]
        kept, keys = store(), jax.random.split(jax.random.key(3), 3)

        @jax.jit
        def go(which, step):
            agent = make_agent(dataclasses.replace(AGENT, which=which), SPEC)
            return agent.refresh(learning, kept, step, keys, SHAPE, True)

    return learning, go, *tables


def value(bootstrap, epsilon, newer, older):
    """What a return ends in, at every observation."""
    if bootstrap == "double":
        return older[np.arange(7), newer.argmax(axis=1)]
    if bootstrap == "epsilon-greedy":
        return (1 - epsilon) * newer.max(axis=1) + epsilon * newer.mean(axis=1)
    return newer.max(axis=1)


@pytest.mark.parametrize("bootstrap", RULES)
@pytest.mark.parametrize(("step", "epsilon"), [(0, 1.0), (40, 0.64), (500, 0.1)])
def test_targets_in_batches(refreshed, bootstrap, step, epsilon):
    """r + γV(s') for every row drawn, with the agent's ε at that step, the newer networks' choices, the older prices.
    Three rules with three bootstraps are one agent."""
    learning, go, newer, older = refreshed
    after, batches, _ = go(list(RULES).index(bootstrap), jnp.int32(step))
    following = np.where(TERMINATED, 0.0, value(bootstrap, epsilon, newer, older)[FOLLOWS])
    expected = REWARD + 0.8 * following
    seen = np.asarray(jax.vmap(jax.vmap(jax.vmap(codec_of(SPEC).decode)))(batches.obs))
    row = seen.argmax(axis=-1)
    assert row.shape == (*SHAPE, 16)
    assert set(row.reshape(-1)) == {0, 1, 2, 3, 4}  # all that is real, and nothing else
    np.testing.assert_array_equal(batches.taken, ACTION[row])
    np.testing.assert_allclose(batches.target, expected[row], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after.older.small, learning.params.small)
    np.testing.assert_array_equal(after.params.small, learning.params.small)


def test_the_bootstraps_differ(refreshed):
    """Where they would agree the comparison could not fail."""
    _, _, newer, older = refreshed
    found = [value(name, 0.64, newer, older)[FOLLOWS] for name in RULES]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(found[one] - found[other]).max() > 0.1


def test_without_a_rule_that_doubles_no_older_networks_are_kept():
    agent = DQN(rule=targets.q_learning(), network=tiny)
    assert dqn.start(agent, SPEC, jax.random.key(0)).older is None
    assert dqn.start(AGENT, SPEC, jax.random.key(0)).older is not None


def test_a_rule_doubles_also_inside_a_mixture():
    """Q(σ) whose target policy is chosen by the newer networks."""
    assert dqn.doubles(targets.q_sigma(0.5, Double()))
    assert not dqn.doubles(targets.q_sigma(0.5, greedy))
    assert not dqn.doubles(targets.q_learning(bootstrap=EpsilonGreedy()))


def test_a_spec_is_enough():
    """Networks, their values and their choices need no environment."""
    learning = dqn.start(AGENT, SPEC, jax.random.key(0))
    q = dqn.q_values(AGENT, SPEC, learning.params, jnp.eye(7))
    assert q.shape == (7, 3)
    np.testing.assert_array_equal(dqn.act(AGENT, SPEC, learning, jnp.eye(7)), np.argmax(q, axis=1))
    np.testing.assert_allclose(dqn.prepared(AGENT, SPEC, learning.params)(jnp.eye(7)), q, rtol=1e-6)


SOME = {
    "n-step": targets.n_step(3),
    "soft-highway": targets.soft_highway((1, 2, TO_END)),
    "gate of the value itself": dataclasses.replace(
        targets.highway((4,)), backup=dataclasses.replace(targets.highway((4,)).backup, gate_depth=0)
    ),
    "double": targets.n_step(2, bootstrap=Double()),
    "retrace": targets.retrace(),
}


def random_store():
    """Two rings of 40 rows that have gone round: paths of all lengths, ended, cut or under way."""
    rng = np.random.default_rng(0)

    def filled(seed):
        coded = jnp.asarray(rng.integers(256, size=(60, codec_of(SPEC).width)), jnp.uint8) & 0x3F
        ended, cut = rng.random(60) < 0.1, rng.random(60) < 0.1
        rows = ring.Rows(
            coded,
            jnp.asarray(rng.integers(3, size=60), jnp.int32),
            jnp.asarray(rng.normal(size=60), jnp.float32),
            jnp.asarray(ended),
            jnp.ones(60, jnp.float32) / 3,
            jnp.zeros(60, jnp.int32),
            jnp.arange(60, dtype=jnp.int32),
            jnp.ones(60, bool),
        )
        return ring.add(ring.empty(39, coded[0]), rows, jnp.asarray(cut & ~ended), coded[::-1], coded[7])

    return jax.tree.map(lambda *x: jnp.stack(x), filled(0), filled(1))


@pytest.fixture(scope="module")
def both():
    """(name, look) → batches of a refresh, of a few rows at a time, that looks at everything or not; by "all" those of
    every rule that has no trace, side by side."""
    plain = [name for name, rule in SOME.items() if not rule.trace]
    traced = [name for name, rule in SOME.items() if rule.trace]
    programs = {}
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        patch.setattr(refresh, "ROWS_AT_ONCE", 7)
        kept, keys = random_store(), jax.random.split(jax.random.key(3), 3)
        for names in (plain, traced):
            agent = DQN(rule=tuple(SOME[name] for name in names), network=tiny, batch_size=4)
            learning = dqn.start(agent, SPEC, jax.random.key(0))
            learning = learning._replace(older=dqn.start(agent, SPEC, jax.random.key(9)).params)

            def go(which, look, agent=agent, learning=learning):
                made = make_agent(dataclasses.replace(agent, which=which), SPEC)
                return made.refresh(learning, kept, jnp.int32(1_000), keys, (3, 2), look)

            for look in (True, False):
                compiled = jax.jit(go).lower(0, look).compile()
                programs |= {(name, look): functools.partial(compiled, i, look) for i, name in enumerate(names)}
            if names is plain:
                together = jax.jit(jax.vmap(go, (0, None))).lower(jnp.arange(len(names)), False).compile()
                programs["all", False] = functools.partial(together, jnp.arange(len(names)), False)
    return lambda name, look: programs[name, look]()


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_without_a_look_the_batches_are_the_same(both, name):
    (_, batches, seen), (_, few, unseen) = both(name, True), both(name, False)
    jax.tree.map(np.testing.assert_array_equal, few, batches)
    assert np.isfinite(seen.value)
    assert np.isnan(unseen.value)


@pytest.mark.long
def test_runs_that_share_a_loop_get_what_they_would_alone(both):
    """They need different numbers of rows, and go through as many as the one that needs most."""
    _, batches, _ = both("all", False)
    plain = [name for name, rule in SOME.items() if not rule.trace]
    for i, name in enumerate(plain):
        _, alone, _ = both(name, False)
        jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y, rtol=1e-5), batches, alone)


@pytest.mark.parametrize("name", [name for name, rule in SOME.items() if not rule.trace])
def test_needed_rows_are_those_that_returns_end_in(name):
    """Walked step by step; and far from all of them."""
    kept = jax.tree.map(lambda x: x[0], random_store())
    data = ring.trajectory(ring.in_order(kept, kept.rows), 0.9)
    chosen = np.arange(40) % 9 == 4
    rule = SOME[name]
    found = np.asarray(needed(DQN(rule=rule), data, jnp.asarray(chosen)))
    expected = np.zeros(40, bool)
    for i in np.flatnonzero(chosen):
        depths = {*rule.backup.depths, rule.backup.gate_depth or 1}
        for depth in depths if rule.backup.gate_depth else rule.backup.depths:
            end = i
            while end - i + 1 < depth and not data.last[end]:
                end += 1
            expected[end + 1 : end + 2] |= bool(data.discount[end] > 0)
        expected[i] |= rule.backup.gate_depth == 0
    assert (found == expected).all()
    assert 0 < found.sum() < 20


def test_a_trace_or_pooled_policies_look_everywhere():
    assert {name for name, rule in SOME.items() if looks_everywhere(DQN(rule=rule))} == {
        name for name, rule in SOME.items() if rule.trace
    }
    assert looks_everywhere(DQN(rule=SOME["soft-highway"], num_policies=2))


@pytest.mark.long
def test_large_observations_are_learned_from_where_they_lie(monkeypatch):
    """The store and the batch's rows in place of a copy of them: the same networks after the same updates."""
    learned = []
    with jax.enable_x64(False):
        for limit in (refresh.LARGE, 0):
            monkeypatch.setattr(refresh, "LARGE", limit)
            made, learning = make_agent(AGENT, SPEC), dqn.start(AGENT, SPEC, jax.random.key(0))
            keys = jax.random.split(jax.random.key(1), 3)
            learning, batches, _ = made.refresh(learning, store(), jnp.int32(5), keys, SHAPE, True)
            assert (batches.row is None) == (limit > 0)
            for turn in range(3):
                learning, loss, _ = made.learn(learning, batches, (turn, 1), jnp.zeros((0, 28), jnp.uint8))
            learned.append((learning, loss))
    jax.tree.map(np.testing.assert_array_equal, *learned)
