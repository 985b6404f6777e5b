"""What an agent, a spec and a schedule refuse, each in one line that says what to give."""

import dataclasses

import jax
import pytest

from highway_rl.core import targets
from highway_rl.deep import loop, networks
from highway_rl.deep.dqn import DQN
from highway_rl.deep.refresh import make_agent
from highway_rl.deep.schedule import Schedule
from highway_rl.deep.settings import check_run
from highway_rl.envs import probes

SMALL = Schedule(steps=600, capacity=400, start=100, refresh=100)


def tiny(spec, key):
    return networks.FlatNetwork(spec, key, hidden=(32,))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"which": 1}, "which=1: give a number from 0 to 0"),
        ({"network": "mlp"}, "network='mlp': give a function"),
        ({"optimizer": None}, "optimizer=None: give a function"),
        ({"rule": ()}, "rule is an empty tuple: give at least one"),
        ({"rule": 3}, "rule=3: give a TargetRule"),
        ({"rule": (targets.retrace(), None)}, "rule=None: give a TargetRule"),
        ({"loss": "l1"}, "loss='l1'.*huber"),
        ({"discount": 1.5}, "discount=1.5: give"),
        ({"learning_rate": 0.0}, "learning_rate=0.0: give"),
        ({"max_gradient": -1.0}, "max_gradient=-1.0: give a number > 0"),
        ({"batch_size": 0}, "batch_size=0: give a whole number >= 1"),
        ({"rule": targets.retrace(), "num_policies": 2}, "num_policies=2: give 1: rules with a trace"),
    ],
)
def test_an_agent_says_what_it_needs(settings, says):
    with pytest.raises(ValueError, match=says):
        DQN(**settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"capacity": 50}, "capacity=50: give at least the steps between refreshes, refresh=100"),
        ({"start": 99}, "start=99: give at least the steps between refreshes, refresh=100"),
        ({"num_envs": 3}, "refresh=100: give a multiple of num_envs=3"),
        ({"capacity": 401, "num_envs": 2}, "capacity=401: give a multiple of num_envs=2"),
        ({"steps": 650}, "steps=650: give a multiple of refresh=100, such as 700"),
        ({"updates_per_step": 0.3}, "updates_per_step=0.3: give a number that times num_envs=1 is whole"),
        ({"policy_is": "step"}, "policy_is='step'.*refresh.*episode"),
        ({"capacity": 2**31}, "capacity=2147483648: give"),
    ],
)
def test_a_schedule_says_what_it_needs(settings, says):
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(SMALL, **settings)


def test_what_a_schedule_adds_up_to():
    plan = Schedule(steps=1200, capacity=400, start=100, refresh=100, num_envs=4, updates_per_step=0.5)
    assert (plan.periods, plan.turns, plan.updates_per_turn) == (12, 25, 2)


def test_a_batch_must_fit_into_the_store():
    with pytest.raises(ValueError, match="capacity=400: give at least the batch, batch_size=500"):
        check_run(DQN(batch_size=500), SMALL)


@pytest.mark.parametrize("actions", [0, 2.5, None])
def test_actions_must_be_finite(actions):
    env = probes.late(10)
    env = dataclasses.replace(env, spec=dataclasses.replace(env.spec, num_actions=actions))
    with pytest.raises(ValueError, match=r"late.*num_actions=.*: give a whole number >= 1"):
        loop.init(env, make_agent(DQN(network=tiny), env.spec), SMALL, jax.random.key(0))


def test_there_must_be_something_to_see():
    spec = dataclasses.replace(probes.late(10).spec, observation={})
    with pytest.raises(ValueError, match=r"late-10: observation=\{\}: give shape and type of at least one array"):
        make_agent(DQN(network=tiny), spec).init(jax.random.key(0))
