"""Scales of observations and of values: they are those of the store, no gradient reaches them, they go where weights
go."""

import dataclasses
import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from highway_rl import runs
from highway_rl.data.codec import codec
from highway_rl.deep import dqn, networks, scales
from highway_rl.deep.dqn import DQN
from highway_rl.deep.rescale import rescaled
from highway_rl.deep.weights import weights_of
from highway_rl.envs.registry import make_env
from highway_rl.types import Env, Spec, Step

LIKE = {"bits": jax.ShapeDtypeStruct((2,), bool), "numbers": jax.ShapeDtypeStruct((3,), jnp.float32)}
SPEC = Spec("mixed", LIKE, 2)


def tiny(spec, key):
    return networks.FlatNetwork(spec, key, hidden=(8,))


def some(count, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.normal([5, 0, 7], [100, 0.01, 0], (count, 3)).astype(np.float32)
    return {"bits": rng.random((count, 2)) > 0.5, "numbers": numbers}


def test_it_is_the_network_of_scaled_numbers():
    """Mean and deviation of the real rows alone; bits stay; what never changes is only shifted."""
    net = scales.scaled(tiny, True, False)(SPEC, jax.random.key(0))
    obs, real = some(50), np.arange(50) < 40
    rows = jnp.asarray(codec(LIKE).encode_rows([obs["bits"], obs["numbers"]]))
    seen = scales.with_numbers_of(net, SPEC, rows, jnp.asarray(real))
    kept = obs["numbers"][real].astype(np.float64)
    np.testing.assert_allclose(seen.mean[0], kept.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(seen.deviation[0], np.maximum(kept.std(0), 1e-3), rtol=1e-4)
    scaled = {"bits": obs["bits"], "numbers": (obs["numbers"] - seen.mean[0]) / seen.deviation[0]}
    np.testing.assert_allclose(jax.vmap(seen)(obs), jax.vmap(net.network)(scaled), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(jax.vmap(net)(obs), jax.vmap(net.network)(obs))  # before the first refresh


def test_an_update_leaves_the_numbers_alone():
    agent = DQN(network=tiny, normalize=True, learning_rate=0.1, batch_size=4)
    learning = dqn.start(agent, SPEC, jax.random.key(0))
    obs = {name: jnp.asarray(x) for name, x in some(4).items()}
    after, _, _ = dqn.update(agent, SPEC, learning, 0, obs, jnp.zeros(4, jnp.int32), jnp.ones(4))
    before, after = (dqn.network(agent, SPEC, jax.tree.map(lambda x: x[0], x.params)) for x in (learning, after))
    for a, b in zip((*before.mean, *before.deviation), (*after.mean, *after.deviation), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(before.network.head.weight, after.network.head.weight)


def test_a_unit_grows_when_it_is_ten_times_too_small():
    """The largest reward of the real rows; a record that is not ten times as large changes nothing, and nor does any
    where most steps pay."""
    net = scales.scaled(tiny, False, True)(SPEC, jax.random.key(0))
    real = np.arange(60) < 40
    records = (([3, -9], 1, 0), ([20, 50], 50, 0), ([400, -400], 50, 0), ([7, -501], 501, -501))
    for rewards, unit, floor in records:
        paid = np.concatenate([rewards, np.zeros(38), np.full(20, 9e5)]).astype(np.float32)
        often = np.where(paid == 0, 0.1, paid).astype(np.float32)
        net = scales.with_unit_of(scales.with_unit_of(net, often, real, paid > 1e9), paid, real, paid > 1e9)
        assert (float(net.unit), float(net.floor)) == (unit, floor)
    ends = np.full(60, 5_020.0, np.float32)
    assert float(scales.with_unit_of(net, ends, real, ends < 0).unit) == 501  # every step pays
    assert float(scales.with_unit_of(net, ends, real, ends > 0).unit) == 5_020  # every episode is one step long
    obs = jax.tree.map(lambda x: jnp.asarray(x[0]), some(1))
    np.testing.assert_allclose(net(obs), 501 * net.network(obs) - 501, rtol=1e-6)


def test_an_update_in_units_is_the_update_of_rewards_in_units():
    """Targets of 300 and a unit of 100 move the weights as targets of 3 and a unit of one."""
    agent = DQN(network=tiny, rescale=True, learning_rate=0.1, batch_size=4, loss="squared", max_gradient=0.1)
    learning = dqn.start(agent, SPEC, jax.random.key(0))
    obs, action = {name: jnp.asarray(x) for name, x in some(4).items()}, jnp.zeros(4, jnp.int32)

    def updated(unit):
        params = jax.vmap(
            lambda w: weights_of(eqx.tree_at(lambda n: n.unit, dqn.network(agent, SPEC, w), jnp.asarray(unit)))
        )(learning.params)
        after, error, _ = dqn.update(
            agent, SPEC, learning._replace(params=params), 0, obs, action, 3 * unit * jnp.ones(4)
        )
        return dqn.network(agent, SPEC, jax.tree.map(lambda x: x[0], after.params)), error

    (one, error), (many, same) = updated(1.0), updated(100.0)
    np.testing.assert_allclose(error, same, rtol=1e-6)
    assert (float(one.unit), float(many.unit)) == (1, 100)
    for a, b in zip(jax.tree.leaves(one.network), jax.tree.leaves(many.network), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("worth", "optimizer"), [(0.0, optax.adam), (5.0, optax.adam), (5.0, optax.sgd)])
def test_what_was_learned_keeps_its_unit(worth, optimizer):
    """A reward of 100 is a unit while networks that learned say next to nothing; values of five stay what they
    are, also where rewards become rare only later."""
    agent = DQN(
        network=tiny,
        rescale=True,
        learning_rate=0.03,
        batch_size=16,
        loss="squared",
        optimizer=functools.partial(optimizer, 1.0),
    )
    learning = dqn.start(agent, SPEC, jax.random.key(0))
    seen = {name: jnp.asarray(x) for name, x in some(16).items()} | {"numbers": jnp.zeros((16, 3))}
    coded = codec(LIKE)
    rows = jnp.asarray(coded.encode_rows([np.asarray(seen["bits"]), np.asarray(seen["numbers"])]))
    reward = jnp.zeros(16).at[3].set(100.0)
    stored = SimpleNamespace(obs=rows, reward=reward, real=jnp.ones(16, bool), terminated=jnp.zeros(16, bool))

    def unit(learning):
        params = rescaled(agent, SPEC, learning, stored, jnp.arange(16), jnp.arange(16))
        return float(dqn.network(agent, SPEC, jax.tree.map(lambda x: x[0], params)).unit)

    assert optimizer is optax.sgd or unit(learning) == 100  # before the first update, whatever it says
    for _ in range(300):
        for action in range(SPEC.num_actions):
            learning, *_ = dqn.update(agent, SPEC, learning, 0, seen, jnp.full(16, action), jnp.full(16, worth))
    assert unit(learning) == (100 if worth == 0 else 1)


def faraway(shift=300.0, scale=50.0):
    """Two kinds of days, told by a number on a scale of its own; the right action is the day's kind."""

    def see(key):
        day = jax.random.bernoulli(key)
        return day, (shift + scale * day)[None].astype(jnp.float32)

    def step(day, action, key):
        new, obs = see(key)
        return Step(new, obs, (action == day).astype(jnp.float32), jnp.asarray(False), jax.random.bernoulli(key, 0.2))

    return Env(Spec("faraway", jax.ShapeDtypeStruct((1,), jnp.float32), 2), see, step)


@pytest.mark.long
def test_it_is_saved_with_the_agent(tmp_path):
    """Trained, as a file, and loaded: the store's numbers come along, and so do the values."""
    small = {"capacity": 500, "start": 100, "refresh": 100, "network": "mlp", "normalize": True, "discount": 0.0}
    agent = runs.train(faraway(), "dqn", steps=600, episodes=5, **small)
    inside = dqn.network(agent.agent, agent.spec, jax.tree.map(lambda x: x[0], agent.params))
    assert 290 < float(inside.mean[0][0]) < 360
    assert 10 < float(inside.deviation[0][0]) < 30
    same = runs.load(agent.save(tmp_path / "agent.safetensors"))
    obs = np.array([[300.0], [350.0]], np.float32)
    np.testing.assert_array_equal(agent.q_values(obs), same.q_values(obs))
    assert agent.act(obs).tolist() == [0, 1]


def rich():
    """The task `late`, which pays 400 in place of 1 at the end of fifteen steps."""
    env = make_env("late", length=15)

    def step(state, action, key):
        out = env.step(state, action, key)
        return dataclasses.replace(out, reward=400 * out.reward)

    return env.wrapped(name="rich", observation=env.spec.observation, reset=env.reset, step=step)


@pytest.mark.long
def test_what_pays_hundreds_late_is_valued_as_soon(tmp_path):
    """The preset counts in the largest reward, which is found at the first refresh; counted in ones the same updates
    get hardly anywhere. Values are told in what is paid, also by the file."""
    small = {"capacity": 1_000, "start": 250, "refresh": 250, "k": 1}
    units, ones = (runs.train(rich(), "dqn", steps=2_000, episodes=5, rescale=x, **small) for x in (True, False))
    assert runs.setup(runs.Config("late", ("dqn",))).runs[0].agent.rescale
    whole = dqn.network(units.agent, units.spec, jax.tree.map(lambda x: x[0], units.params))
    assert (float(whole.unit), float(whole.floor)) == (400, 0)
    path = units.episode(seed=0, max_steps=15)
    most, little = (float(np.max(agent.q_values(path.obs))) for agent in (units, ones))
    assert 2 * little < 200 < most < 800
    same = runs.load(units.save(tmp_path / "agent.safetensors"))
    np.testing.assert_array_equal(units.q_values(path.obs), same.q_values(path.obs))


@pytest.mark.parametrize("name", ["normalize", "rescale"])
def test_it_is_a_word_of_two(name):
    with pytest.raises(ValueError, match=f"{name}='often': give true or false"):
        runs.setup(runs.Config("late", ("dqn",), settings={name: "often"}))
    assert runs.setup(runs.Config("late", ("dqn:normalize=true",))).runs[0].agent.normalize is True
