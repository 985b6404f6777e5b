"""Observations of several frames: the store keeps each frame once, and everything is as if it kept them all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.data import ring
from highway_rl.data.codec import codec, codec_of
from highway_rl.deep import loop
from highway_rl.deep.dqn import DQN
from highway_rl.deep.networks import mlp
from highway_rl.deep.refresh import frames, hashes, make_agent
from highway_rl.deep.schedule import Schedule
from highway_rl.types import Env, Spec, Step

FRAMES = 3
SHOWN = {"picture": jax.ShapeDtypeStruct((2, 2, FRAMES), jnp.uint8), "beside": jax.ShapeDtypeStruct((2,), bool)}


def flicker(kept_once: bool) -> Env:
    """A picture that changes at random, its last three frames side by side; episodes end, or are cut."""

    def see(state):
        return {"picture": state[0], "beside": jnp.stack([state[1] > 2, state[1] % 2 == 0])}

    def new(key):
        return jax.random.randint(key, (2, 2), 0, 256).astype(jnp.uint8)

    def reset(key):
        first = new(jax.random.fold_in(key, 0))
        state = jnp.repeat(first[..., None], FRAMES, axis=2), jnp.int32(0)
        return state, see(state)

    def step(state, action, key):
        picture = jnp.concatenate([state[0][..., 1:], new(jax.random.fold_in(key, 1))[..., None]], axis=2)
        after = picture, state[1] + 1
        ends = jax.random.uniform(jax.random.fold_in(key, 2)) < 0.15
        cut = after[1] >= 7
        return Step(after, see(after), (picture[0, 0, -1] > 128) * (action == 1) * 1.0, ends, cut & ~ends)

    return Env(Spec("flicker", SHOWN, 2, horizon=7, frames=FRAMES if kept_once else 1), reset, step)


@pytest.mark.long
@pytest.mark.parametrize(("policies", "envs"), [pytest.param(1, 1, marks=pytest.mark.full), (2, 2)])
def test_a_run_is_the_same(policies, envs):
    """To the bit while nothing is forgotten; afterwards rows whose frames are gone are not drawn, which changes it."""
    found = {}
    for kept_once in (False, True):
        env = flicker(kept_once)
        agent = DQN(network=mlp, batch_size=8, epsilon_steps=100.0, num_policies=policies)
        schedule = Schedule(steps=120, start=40, refresh=20, capacity=400, num_envs=envs)
        found[kept_once] = jax.jit(lambda k, e=env, a=agent, s=schedule: loop.train(e, make_agent(a, e.spec), s, k))(
            jax.random.key(0)
        )
    (plain, curve), (once, same) = found[False], found[True]
    assert once.store.rows.obs.shape[-1] == 1 + 4
    assert plain.store.rows.obs.shape[-1] == 1 + 4 * FRAMES
    for a, b in zip(jax.tree.leaves((plain.learning, curve)), jax.tree.leaves((once.learning, same)), strict=True):
        np.testing.assert_array_equal(a, b)
    coded = codec_of(flicker(True).spec)
    at, _ = frames(coded, once.store)
    seen = jax.vmap(coded.decode)(coded.whole(once.store.rows.obs.reshape(-1, 5), at))
    wanted = jax.vmap(codec(SHOWN).decode)(plain.store.rows.obs.reshape(-1, 13))
    written = np.asarray(plain.store.rows.born.reshape(-1) > 0)
    np.testing.assert_array_equal(seen["picture"][written], wanted["picture"][written])
    np.testing.assert_array_equal(seen["beside"][written], wanted["beside"][written])
    ours, theirs = (
        np.asarray(hashes(c, s.store)).reshape(-1, 2)[written] for c, s in ((coded, once), (codec(SHOWN), plain))
    )
    equal = lambda h: (h[:, None] == h[None]).all(-1)  # noqa: E731
    np.testing.assert_array_equal(equal(ours), equal(theirs))


@pytest.mark.long
def test_forgotten_frames_are_not_drawn():
    """A full ring: every row that may be drawn has the frames it was made with."""
    agent = DQN(network=mlp, batch_size=8, epsilon_end=1.0)  # acts the same whatever it learns
    schedule = Schedule(steps=200, start=40, refresh=20, capacity=50)
    wide = {}
    for kept_once in (False, True):
        env = flicker(kept_once)
        run, _ = jax.jit(lambda k, e=env: loop.train(e, make_agent(agent, e.spec), schedule, k))(jax.random.key(1))
        coded = codec_of(env.spec)
        at, usable = frames(coded, run.store)
        rows = coded.whole(run.store.rows.obs.reshape(at.shape[0], -1), at)
        wide[kept_once] = jax.vmap(coded.decode)(rows), run.store.rows, usable
    (plain, rows, _), (once, same, usable) = wide[False], wide[True]
    np.testing.assert_array_equal(rows.real, same.real)
    drawn = np.asarray(same.real.reshape(-1) & usable)
    assert same.real.sum() - drawn.sum() <= FRAMES - 1
    np.testing.assert_array_equal(plain["picture"][drawn], once["picture"][drawn])
    lost = np.asarray(plain["picture"] != once["picture"]).any((1, 2, 3)) & np.asarray(same.real.reshape(-1))
    assert lost.any()
    assert not (lost & drawn).any()


def test_frames_are_of_bytes():
    with pytest.raises(ValueError, match="frames=3: give one observation of bytes whose last axis has that length"):
        codec(jax.ShapeDtypeStruct((2, 2, 3), jnp.float32), 3)
    assert ring.frames(ring.empty(4, jnp.zeros(2, jnp.uint8)), 3).shape == (5, 3)
