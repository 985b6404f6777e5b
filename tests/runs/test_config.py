"""Configs: presets, what overrides what, environments as objects."""

import dataclasses
import re

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from training import COUNTED, SMALL

import highway_rl
from highway_rl import runs
from highway_rl.core.bootstrap import EpsilonGreedy, Greedy
from highway_rl.envs import make_env
from highway_rl.types import HostEnv


def agent(task="late", algo="dqn", **config):
    settings = {"capacity": 2_000} | config.pop("settings", {})
    return runs.setup(runs.Config(task, (algo,), settings=settings, **config)).runs[0].agent


def test_the_paper_on_its_games():
    for env, discount in (({"delay": "end"}, 0.996), ({}, 0.99)):
        found = agent("minatar/breakout", "soft-highway-dqn", env=env)
        assert isinstance(found.rule.bootstrap, EpsilonGreedy)
        assert (found.num_networks, found.discount) == (2, discount)
        assert found == agent("minatar/breakout", "soft-highway-dqn", env=env, preset="paper")


def test_presets_of_other_tasks():
    general, explorer = agent(), agent(preset="explorer")
    assert general == agent(preset="general")
    assert (general.loss, general.num_networks, general.learning_rate) == ("squared", 2, 5e-4)
    assert (explorer.loss, explorer.num_networks, explorer.learning_rate) == ("huber", 1, 2.5e-4)
    assert isinstance(explorer.rule.bootstrap, Greedy)


def test_settings_override_presets_and_texts_override_settings():
    assert agent(preset="paper", settings={"k": 4}).num_networks == 4
    assert agent(preset="paper", settings={"num_networks": 4}).num_networks == 4
    assert agent(algo="dqn:k=1", preset="paper", settings={"k": 4}).num_networks == 1
    assert agent(algo="maxmin-dqn", settings={"k": 4}).num_networks == 2  # its own
    assert agent(algo="maxmin-dqn:k=3", settings={"k": 4}).num_networks == 3
    assert isinstance(agent(preset="paper", settings={"bootstrap": "greedy"}).rule.bootstrap, Greedy)
    assert isinstance(agent(algo="dqn:bootstrap=greedy", preset="paper").rule.bootstrap, Greedy)
    assert agent("minatar/breakout", env={"delay": "end"}, settings={"discount": 0.9}).discount == 0.9
    steps = lambda **config: runs.setup(runs.Config("late", ("dqn",), **config)).steps  # noqa: E731
    assert (steps(), steps(steps=1_000)) == (runs.PRESETS["general"]["steps"], 1_000)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"preset": "papr"}, "unknown preset 'papr': did you mean 'paper'?"),
        ({"preset": "mine"}, "unknown preset 'mine': choose from explorer, paper, general"),
        ({"settings": {"depth": 3}}, "settings has no option 'depth': choose from"),
        ({"settings": {"depth": 3}}, "learning_rate"),
        ({"settings": {"steps": 100}}, "settings has steps: give --steps"),
        ({"settings": {"k": [1, 2]}}, "num_networks=[1, 2]: give one value; a list sweeps in the text of a run"),
        ({"settings": {"network": "resnet"}}, "unknown network 'resnet'"),
        ({"seeds": 0}, "seeds=0: give a whole number >= 1"),
        ({"seed": 2**32 - 1, "seeds": 2}, "seed=4294967295: give one with which the last of seeds=2 is below 2**32"),
        ({"episodes": 0}, "episodes=0"),
        ({"report_every": 0}, "report_every=0"),
        ({"imports": ("no.such.module",)}, "module 'no.such.module' cannot be imported"),
    ],
)
def test_what_is_refused(config, says):
    with pytest.raises(ValueError, match=re.escape(says)) as told:
        runs.setup(runs.Config("late", ("dqn",), **config))
    assert "\n" not in str(told.value)


@pytest.mark.long
def test_an_environment_as_an_object(tmp_path):
    """It trains under its own name in this process; two of one name are two environments."""
    made = make_env("late", length=4)
    named = lambda name: dataclasses.replace(made, spec=dataclasses.replace(made.spec, name=name))  # noqa: E731
    mine, other, late = (
        named("mine"),
        dataclasses.replace(named("mine"), reset=lambda key: made.reset(key)),
        named("late"),
    )
    config = runs.Config(mine, ("dqn",))
    assert config.task == "mine"
    assert runs.Config(mine).task == "mine"
    assert runs.Config(other).task == "mine-2"
    assert runs.setup(config).env is mine
    assert runs.setup(runs.Config(other)).env is other
    assert runs.Config(late).task == "late-2"  # not what is called late already
    assert runs.setup(runs.Config(late)).env is late

    settings = SMALL | {"capacity": 200, "k": 1}
    agent = highway_rl.train(mine, "dqn", steps=200, out=tmp_path / "run", **settings)
    assert isinstance(agent.spec.num_actions, int)
    again = highway_rl.load(tmp_path / "run")
    obs = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), mine.spec.observation)
    np.testing.assert_array_equal(again.q_values(obs), agent.q_values(obs))


def test_gymnasium_environments_come_by_id_class_function_and_object():
    def longer(limit=9):
        return gymnasium.wrappers.TimeLimit(CartPoleEnv(), limit)

    assert runs.Config(gymnasium.make("CartPole-v1")).task == "CartPole-v1"
    made = {
        "CartPole-v1": runs.setup(runs.Config("CartPole-v1")),
        "longer": runs.setup(runs.Config(longer, env={"limit": 5})),
        "environment": runs.setup(runs.Config(lambda: CartPoleEnv(sutton_barto_reward=True))),
        "gymnasium.envs.classic_control.cartpole:CartPoleEnv": runs.setup(
            runs.Config(CartPoleEnv)  # by the name that finds it again in another process
        ),
    }
    for name, found in made.items():
        assert isinstance(found.env, HostEnv)
        assert found.env.spec.name == found.config.task
        assert re.fullmatch(rf"{re.escape(name)}(-\d+)?", found.config.task)  # a number, if a test before took the name
        assert found.env.spec.num_actions == 2


@pytest.mark.parametrize("env", [CartPoleEnv(), 3, gymnasium.vector.SyncVectorEnv([CartPoleEnv])])
def test_what_cannot_be_made_again_says_what_to_do(env):
    for use in (runs.Config, highway_rl.train):
        with pytest.raises(ValueError, match=r"give a name, module:name, a gymnasium.Env class, a function"):
            use(env)


def test_memory_is_counted_before_anything_is_built(monkeypatch):
    from highway_rl.runs import estimate

    huge = dataclasses.replace(COUNTED, seeds=1_000, settings=COUNTED.settings | {"capacity": 10_000_000})
    with pytest.raises(ValueError, match=r"need about .* GB of memory and .* GB are free: give fewer seeds"):
        runs.setup(huge, to_train=True)
    monkeypatch.setattr(estimate, "free_memory", lambda: None)  # nobody says
    estimate.check_memory(estimate.Estimate(1e30, 1.0))


def test_the_estimate_of_memory_is_on_the_safe_side():
    """Never less than the state itself; programs come one after the other, so the largest counts."""
    from highway_rl.runs.estimate import estimate

    s = runs.setup(dataclasses.replace(COUNTED, algos=("dqn", "dqn:k=2", "retrace"), seeds=3))
    kinds = list({id(run.agent): (run.label, run.agent, run.schedule) for run in s.runs}.values())
    held = []
    for program in s.programs:
        leaves = [
            x for x in jax.tree.leaves(program.shapes()) if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        ]
        held.append(sum(np.prod(x.shape) * x.dtype.itemsize for x in leaves))
    need = estimate(s.env, kinds, 3)
    assert max(held) < need.memory < 5 * sum(held)
    assert estimate(s.env, kinds, 6).memory == pytest.approx(2 * need.memory)
    longer = [(label, agent, dataclasses.replace(times, steps=10 * times.steps)) for label, agent, times in kinds]
    assert 10 <= estimate(s.env, longer, 3).seconds / need.seconds < 20  # a store that is fuller takes longer


def test_a_refresh_values_what_is_there_and_asked_for():
    from highway_rl.runs.estimate import refreshed

    def rows(algo, steps, **settings):
        (run,) = runs.setup(runs.Config("late", algo, steps=steps, settings={"capacity": 1_000} | settings)).runs
        return refreshed(run.agent, run.schedule)

    assert rows("retrace", 500) == 250  # half of the time fewer, half of it more
    assert rows("retrace", 4_000) == 1_000 * (1 - 1 / 8)
    few = {"refresh": 1, "batch_size": 2}
    assert rows("dqn", 4_000, **few) == pytest.approx(2, rel=0.01)
    assert rows("soft-highway-dqn", 4_000, **few) == pytest.approx(4, rel=0.01)  # its returns of one and of two steps


def test_settings_are_plain_data():
    found = runs.Config("late", settings={"k": np.int64(2), "discount": np.float32(0.5)}, env={"length": np.array(7)})
    assert (found.settings, found.env) == ({"k": 2, "discount": 0.5}, {"length": 7})
    assert [type(value) for value in (*found.settings.values(), *found.env.values())] == [int, float, int]
    with pytest.raises(ValueError, match="give a number, a word"):
        runs.Config("late", settings={"k": object()})


@pytest.mark.parametrize(
    ("count", "steps", "refresh", "capacity"),
    [
        (8, 50_000, 200, 100_000),
        (8, 2_000, 200, 100_000),
        (3, 30_000, 240, 100_002),
        (10, 50_000, 250, 100_000),
        (7, 50_000, 252, 100_002),
    ],
)
def test_more_environments_fit_what_nobody_named(count, steps, refresh, capacity):
    """The nearest refresh that both divide; where there is none, the nearest that the environments divide."""
    config = runs.Config("late", ("dqn",), steps=steps, settings={"num_envs": count})
    if steps % refresh:
        with pytest.raises(ValueError, match=f"steps={steps}: give a multiple of refresh={refresh}"):
            runs.setup(config)
        return
    found = runs.setup(config).runs[0].schedule
    assert (found.refresh, found.capacity) == (refresh, capacity)
    with pytest.raises(ValueError, match=rf"refresh=101: give a multiple of num_envs={count}, such as "):
        runs.setup(dataclasses.replace(config, settings={"num_envs": count, "refresh": 101}))
