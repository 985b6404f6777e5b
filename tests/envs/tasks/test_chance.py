"""Late tasks with chance: what the wrappers change, and what they do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.envs import make
from highway_rl.envs.tasks import chance
from highway_rl.envs.tasks.late import key_door, lock

COMBINATION = jnp.array([1, 2, 1])  # (i² + 1) mod 4


def play(env, act, key, steps):
    """Rewards, ends and observations of one episode and what would follow it."""

    def one(carry, key):
        state, time = carry
        out = env.step(state, act(time), key)
        return (out.state, time + 1), (out.reward, out.terminated, out.truncated, out.obs)

    first, rest = jax.random.split(key)
    return jax.lax.scan(one, (env.reset(first)[0], jnp.int32(0)), jax.random.split(rest, steps))[1]


def many(env, act, steps, count=2_000, seed=0):
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.jit(jax.vmap(lambda key: play(env, act, key, steps)))(keys)


def test_noise_has_mean_zero_and_its_deviation():
    reward, _, _, _ = many(chance.noisy(key_door(), 0.3), lambda t: 0, 4)
    assert abs(float(reward.mean())) < 4 * 0.3 / np.sqrt(reward.size)
    assert float(reward.std()) == pytest.approx(0.3, rel=0.05)


def test_a_slip_takes_any_action():
    """One slip in four goes where it was to go anyway."""
    wanted = play(key_door(), lambda t: 0, jax.random.key(0), 1)[3][0]
    found = many(chance.slippery(key_door(), 0.4), lambda t: 0, 1)[3][:, 0]
    assert float(np.mean(np.all(found == wanted, axis=1))) == pytest.approx(0.6 + 0.4 / 4, abs=0.05)


def test_a_gamble_pays_twice_or_nothing():
    plain = lock(wait=1)
    right = lambda t: COMBINATION[jnp.minimum(t, 2)]  # noqa: E731
    assert float(play(plain, right, jax.random.key(0), 4)[0].sum()) == 1
    paid = many(chance.gamble(plain), right, 4)[0].sum(axis=1)
    assert set(np.unique(paid)) == {0.0, 2.0}
    assert float(paid.mean()) == pytest.approx(1, abs=0.1)


def test_what_is_paid_later_is_paid_once_after_a_random_time():
    env = chance.paid_later(lock(wait=1), 0.2)
    right = lambda t: COMBINATION[jnp.minimum(t, 2)]  # noqa: E731
    reward, ended, cut, obs = many(env, right, 80)
    first = np.argmax(ended, axis=1)
    assert not np.any(cut)
    assert np.all(ended.any(axis=1))
    at_end = np.take_along_axis(np.asarray(reward), first[:, None], 1)
    np.testing.assert_array_equal(at_end, 1)
    assert all(float(row[:end].sum()) == 0 for row, end in zip(np.asarray(reward), first, strict=True))
    assert float(np.mean(first - 3)) == pytest.approx(1 / 0.2 - 1, rel=0.1)  # its own last step may pay at once
    assert not np.any(obs.over[:, :3])
    assert np.all(obs.over[:, 3])
    wrong = many(env, lambda t: 0, 80, count=50)
    assert float(np.abs(wrong[0]).max()) == 0


@pytest.mark.parametrize("name", chance.CHANCE)
def test_each_is_a_task_by_name(name):
    env = make(name)
    state, obs = env.reset(jax.random.key(0))
    assert jax.tree.structure(obs) == jax.tree.structure(env.spec.observation)
    out = env.step(state, jnp.int32(0), jax.random.key(1))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), out.obs) == jax.tree.map(
        lambda x: (x.shape, x.dtype), env.spec.observation
    )


@pytest.mark.parametrize(
    ("make_it", "says"),
    [
        (lambda: chance.noisy(key_door(), -1.0), "deviation"),
        (lambda: chance.slippery(key_door(), 1.5), "probability"),
        (lambda: chance.paid_later(key_door(), 0.0), "chance"),
    ],
)
def test_refused(make_it, says):
    with pytest.raises(ValueError, match=says):
        make_it()
