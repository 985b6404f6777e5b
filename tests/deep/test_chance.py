"""Random actions that are held: as many, in fewer and longer stretches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.deep import chance
from highway_rl.deep.dqn import DQN
from highway_rl.deep.refresh import make_agent
from highway_rl.deep.schedule import Schedule
from highway_rl.envs import probes

TURNS, ENVS, MANY = 20_000, 3, 10_000


@pytest.mark.parametrize("mean", [1.0, 2.0, 5.0])
def test_stretches_are_as_long_as_asked_and_as_many_turns_explore(mean):
    explores = jax.random.bernoulli(jax.random.key(0), 0.3, (TURNS, ENVS))
    action = jax.random.randint(jax.random.key(1), (TURNS, ENVS), 0, MANY)
    kept, held = chance.held(explores, action, jnp.full(TURNS, mean), jax.random.key(2))
    assert np.mean(kept) == pytest.approx(0.3, abs=0.02)
    changes = np.mean(held[1:] != held[:-1], axis=0)  # of so many actions hardly two are equal
    np.testing.assert_allclose(changes, 1 / mean, atol=0.015)
    assert np.mean(held[:, 0] == held[:, 1]) < 0.01  # each environment has its own
    if mean == 1:
        np.testing.assert_array_equal(held, action)
        np.testing.assert_array_equal(kept, explores)


def test_held_while_much_is_explored():
    """With ε = 1 for `hold` turns, with ε = 0.1 for hardly more than one."""
    env, times = probes.late(num_actions=MANY), {"steps": 40_000, "refresh": 10_000, "start": 10_000}
    agent = make_agent(DQN(epsilon_end=0.1, epsilon_steps=10_000), env.spec)

    def turns(hold, number):
        return chance.draw(env.spec, agent, Schedule(**times, hold=hold), jax.random.key(3), jnp.int32(number)).turns

    for number, epsilon, length in ((0, 1.0, 5.0), (2, 0.1, 1.4)):
        found, alone = turns(5, number), turns(1, number)
        assert np.mean(found.explores) == pytest.approx(epsilon, abs=0.02)
        assert np.mean(found.action[1:] != found.action[:-1]) == pytest.approx(1 / length, abs=0.03)
        assert np.mean(alone.action[1:] != alone.action[:-1]) > 0.99


@pytest.mark.parametrize("hold", [0, 0.5, float("nan"), float("inf"), "long", None])
def test_refused(hold):
    with pytest.raises(ValueError, match=r"hold=.*: give a number"):
        Schedule(hold=hold)
