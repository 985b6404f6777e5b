"""The kernels for GPUs do what the plain formula does: here in Pallas's interpreter, and translated for a GPU."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from highway_rl.data.codec import codec_of, decoded
from highway_rl.deep import dqn, fused, loop, networks
from highway_rl.deep.dqn import DQN
from highway_rl.deep.learning import Batch
from highway_rl.deep.refresh import make_agent
from highway_rl.deep.schedule import Schedule
from highway_rl.envs import make_env, probes
from highway_rl.types import Spec

RUNS, TURNS, UPDATES = 2, 2, 2


def rounded(x, digits):
    """Numbers with few digits, whose products half precision holds without rounding."""
    return jnp.round(x * 2**digits) / 2**digits


def case(game, agent, envs, few_digits):
    """Networks that have learned a little, batches and observations to act on: all random."""
    spec = make_env(f"minatar/{game[0]}", **game[1]).spec
    rng, width = np.random.default_rng(0), codec_of(spec).width
    learning = jax.vmap(lambda key: dqn.start(agent, spec, key))(jax.random.split(jax.random.key(1), RUNS))
    if few_digits:
        learning = learning._replace(params=jax.tree.map(lambda x: rounded(x, 5), learning.params))
    bits = lambda *shape: jnp.asarray(rng.integers(256, size=(RUNS, *shape)) & rng.integers(256, size=width), jnp.uint8)  # noqa: E731
    shape, heads = (RUNS, TURNS, UPDATES), (agent.heads,) if agent.heads > 1 else ()
    batches = Batch(
        jnp.asarray(rng.integers(agent.num_networks, size=shape), jnp.int32),
        bits(TURNS, UPDATES, agent.batch_size, width),
        jnp.asarray(rng.integers(spec.num_actions, size=(*shape, agent.batch_size)), jnp.int32),
        jnp.asarray(9 * rng.choice([-1, 1], size=(*shape, agent.batch_size, *heads)), jnp.float32),
    )
    return spec, learning, batches, bits(envs, width)


def plain(agent, spec, at, learning, batches, here):
    batch = jax.tree.map(lambda x: x[at], batches)
    obs = decoded(codec_of(spec), jnp.concatenate([here, batch.obs]))
    learning, error, q = dqn.update(agent, spec, learning, batch.net, obs, batch.taken, batch.target)
    return learning, error, dqn.best(q)


def together(f, *args):
    return jax.jit(jax.vmap(f))(*args)


DELAYED, NOT = {"delay": "end"}, {}
LEARNED = DQN(chooser="learned", num_networks=2)
CASES = [
    pytest.param(("breakout", DELAYED), DQN(max_gradient=0.01), 1, marks=pytest.mark.long),
    (("asterix", DELAYED), LEARNED, 1),
    pytest.param(("asterix", NOT), DQN(num_networks=2, max_gradient=1e9), 2, marks=pytest.mark.full),
    pytest.param(("seaquest", DELAYED), DQN(num_networks=4, loss="squared"), 1, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("game", "agent", "envs"), CASES)
def test_an_update_is_the_plain_one(game, agent, envs):
    """Weights, moments, loss and actions, clipped or not; of several networks the others are left as they were."""
    at = (1, 0)
    spec, learning, batches, here = case(game, agent, envs, few_digits=True)
    sizes = fused.fits(agent, spec, envs)
    after, loss, best = together(functools.partial(plain, agent, spec, at), learning, batches, here)
    kernels = lambda learning, batches, here: fused.learn(agent, sizes, learning, batches, at, here, interpret=True)  # noqa: E731
    found, found_loss, found_best = together(kernels, learning, batches, here)
    np.testing.assert_array_equal(found_best, best)
    np.testing.assert_allclose(found_loss, loss, rtol=1e-5)
    conv, places = (sizes.taps + 1) * sizes.filters, zip(jax.tree.leaves(found), jax.tree.leaves(after), strict=True)
    for (ours, theirs), before in zip(places, jax.tree.leaves(learning), strict=True):
        moved, wanted = np.asarray(ours - before), np.asarray(theirs - before)
        # what comes back is kept in half precision, eleven digits: all that these cases have, if slopes are cut at one,
        # but for the convolution's
        loose = (np.arange(moved.shape[-1]) < conv) & (ours.ndim == 3) | (agent.loss != "huber")
        close = np.where(loose, 2e-3, 2e-5) * np.abs(wanted).max() + np.where(loose, 2e-3, 2e-5) * np.abs(wanted)
        assert (np.abs(moved - wanted) <= close + 1e-8).all()
        for run, net in enumerate(np.asarray(batches.net)[:, 1, 0]):
            others = np.arange(agent.num_networks) != net
            assert not moved[run][others].any()
            assert moved[run][net].any()


@pytest.mark.parametrize(("game", "agent", "envs"), CASES[:2])
def test_values_of_the_store_are_the_plain_ones(game, agent, envs):
    spec, learning, batches, _ = case(game, agent, envs, few_digits=False)
    rows = batches.obs[:, 0, 0, :21]  # a last program with fewer rows than the others
    sizes = fused.fits(agent, spec, 1)
    kernels = lambda net, r: dqn.joined(agent, spec, fused.prepared(sizes, net.params, interpret=True)(r))  # noqa: E731
    found = together(kernels, learning, rows)
    values = lambda net, r: dqn.prepared(agent, spec, net.params)(decoded(codec_of(spec), r))  # noqa: E731
    np.testing.assert_allclose(found, together(values, learning, rows), atol=3e-3)


def translated(f, *args):
    return jax.jit(f).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.long
def test_a_gpu_trains_with_the_kernels_and_a_cpu_without():
    env, plan = make_env("minatar/breakout", delay="end"), Schedule(steps=200, start=100, refresh=100, capacity=100)
    for agent, kernels in ((DQN(), 8), (LEARNED, 8), (DQN(optimizer=lambda: optax.adam(1.0)), 0)):
        made = make_agent(agent, env.spec)
        run = jax.eval_shape(lambda made=made: loop.init(env, made, plan, jax.random.key(0)))
        period = lambda run, made=made: loop.advance(env, made, plan, run, 1, 1)  # noqa: E731
        assert translated(period, run).count("xla.gpu.triton") == kernels
        assert "triton" not in jax.jit(period).trace(run).lower(lowering_platforms=("cpu",)).as_text()


EVERY = [(game, k) for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders") for k in (1, 2, 4)]


@pytest.mark.full
@pytest.mark.parametrize(("game", "k"), EVERY)
def test_every_game_is_translated(game, k):
    agent = DQN(num_networks=k)
    spec, learning, batches, here = case((game, DELAYED), agent, 1, few_digits=False)
    sizes = fused.fits(agent, spec, 1)
    text = translated(jax.vmap(lambda *x: fused.learn(agent, sizes, x[0], x[1], (0, 1), x[2])), learning, batches, here)
    assert text.count("xla.gpu.triton") == 7


def test_what_does_not_fit_takes_the_plain_formula():
    spec = make_env("minatar/breakout", delay="end").spec
    assert fused.fits(DQN(), spec, 1) == fused.Sizes(32, 1, 1, (10, 10, 4), (3, 1), 16, 64, 128, 6)
    deep = functools.partial(networks.BoardNetwork, hidden=(128, 128))
    dueling = networks.NETWORKS.find("dueling-minatar")
    adam = lambda: optax.adam(1.0)  # noqa: E731
    for other in ({"batch_size": 24}, {"optimizer": adam}, {"network": deep}, {"network": dueling}):
        assert fused.fits(dataclasses.replace(DQN(), **other), spec, 1) is None
    assert fused.fits(DQN(), spec, 8) is not None
    assert fused.fits(DQN(), spec, 9) is None  # more than a GPU has run, and so are these
    assert fused.fits(DQN(batch_size=64), spec, 1) is None
    large = Spec("large", jax.ShapeDtypeStruct((30, 30, 3), bool), 4)
    assert fused.fits(DQN(), large, 1) is None
    assert fused.fits(DQN(), probes.late(3).spec, 1) is None
