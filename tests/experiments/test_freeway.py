"""The study of Freeway: what is shown, and what is counted at the bottom."""

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.envs.minatar.common import UP
from highway_rl.envs.minatar.freeway import BOTTOM, CLOCK
from highway_rl.envs.registry import make_env
from highway_rl.experiments import freeway
from highway_rl.experiments.deep import as_deep


@as_deep()
def test_the_time_is_shown_and_nothing_else_differs():
    env, plain = freeway.timed(parts=25), make_env(freeway.GAME, delay="end")
    key = jax.random.key(0)
    (state, obs), (other, same) = env.reset(key), plain.reset(key)
    length = -(-(CLOCK + 1) // 25)
    up = jnp.int32(UP)
    step, also = jax.jit(env.step), jax.jit(plain.step)
    for t in range(2 * length + 2):
        assert np.array_equal(obs.obs, same.obs)
        assert np.array_equal(obs.feature[:-25], same.feature)
        assert int(jnp.argmax(obs.feature[-25:])) == t // length
        key, now = jax.random.split(key)
        one, two = step(state, up, now), also(other, up, now)
        (state, obs), (other, same) = (one.state, one.obs), (two.state, two.obs)
        assert one.reward == two.reward


def test_what_is_thought_at_the_bottom():
    q = np.zeros((4, 6))
    q[:, UP] = [1.0, -1.0, 5.0, 3.0]
    played = freeway.Play(np.array([BOTTOM, BOTTOM, 3, BOTTOM]), np.array([0, 0, 0, 2]), q)
    assert freeway.at_the_bottom(played) == [
        {"count": 0, "steps_there": 2, "value": 0.5, "gap": 0.0, "share": 0.5},
        {"count": 2, "steps_there": 1, "value": 3.0, "gap": 3.0, "share": 1.0},
    ]
