"""The host loop beside the compiled one: the same store, tallies and learning; what fails loses nothing."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.deep import host
from highway_rl.runs import Config, fit, load_all, setup
from highway_rl.types import Env, Spec, Step

LENGTH = 7
SETTINGS = {"refresh": 20, "start": 20, "capacity": 60, "batch_size": 4, "k": 1, "network": "mlp", "num_envs": 2}
SPEC = Spec("clock", jax.ShapeDtypeStruct((1,), jnp.float32), 2)


class Clock(gymnasium.Env):
    """Shows the time, pays it, ends at LENGTH: by termination, or cut."""

    broken_at = 10**9

    def __init__(self, cut=True):
        self.observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.cut, self.time, self.steps = cut, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time, self.steps = self.time + 1, self.steps + 1
        if self.steps == self.broken_at:
            raise OSError("the lamp is out")
        ended = self.time == LENGTH
        return np.array([self.time], np.float32), self.time, ended and not self.cut, ended and self.cut, {}


def compiled_clock(cut):
    show = lambda t: t[None].astype(jnp.float32)  # noqa: E731

    def reset(key):
        return jnp.int32(0), show(jnp.int32(0))

    def step(state, action, key):
        time = state + 1
        ended = time == LENGTH
        return Step(time, show(time), time.astype(jnp.float32), ended & (not cut), ended & cut)

    return Env(SPEC, reset, step)


def vectors(num_envs, cut=True):
    mode = gymnasium.vector.AutoresetMode.NEXT_STEP
    return gymnasium.vector.SyncVectorEnv([lambda: Clock(cut)] * num_envs, autoreset_mode=mode)


def played(task, options=None, periods=3, seeds=2, **settings):
    """The runs and curves of so many periods."""
    program = setup(Config(task, seeds=seeds, steps=1_000, env=options or {}, settings=SETTINGS | settings)).programs[0]
    go, run, curves = program.compiled(), program.start()(), []
    for period in range(periods):
        run, curve = go(run, jnp.int32(period), jnp.int32(0), jnp.bool_(True))
        curves.append(jax.device_get(curve))
    if isinstance(go, host.HostLoop):
        go.close()
    return run, curves


def in_time(run, drop=0):
    """What the store of the first run's first environment holds, oldest first."""
    mine = jax.tree.map(lambda x: x[0, 0], run.store)
    rows = jax.device_get(ring.in_order(mine, mine.rows))
    obs = jax.vmap(codec_of(SPEC).decode)(rows.obs)
    found = [np.asarray(obs)[:, 0], rows.reward, rows.terminated, rows.real, rows.behaviour, rows.policy, rows.born]
    return np.stack([np.asarray(x, float) for x in found], axis=1)[drop:]


@pytest.mark.parametrize("cut", [pytest.param(True, marks=pytest.mark.long), False])
def test_the_store_and_the_tallies_are_those_of_the_compiled_loop(cut):
    """Actions change nothing in this world. The host's store begins with one row more, before the first episode."""
    with jax.enable_x64(False):
        here, curves = played(Clock, {"cut": cut}, capacity=60)
        there, expected = played(compiled_clock(cut), capacity=60)
    there_rows, here_rows = in_time(there), in_time(here)
    known = there_rows[:, 3] > 0
    first = np.argmax(known)
    np.testing.assert_array_equal(here_rows[first:, [0, 1, 2, 3, 5, 6]], there_rows[first:, [0, 1, 2, 3, 5, 6]])
    for mine, theirs in zip(curves, expected, strict=True):
        for name in ("step", "episodes", "score", "length", "epsilon", "broken"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), err_msg=name)
    assert np.isfinite(curves[-1].loss).all()
    assert (curves[-1].loss > 0).all()


@pytest.mark.long
def test_calls_that_begin_an_episode_are_no_steps():
    """A vector environment in mode NEXT_STEP: every path is whole, and the calls in between are not learned from."""
    with jax.enable_x64(False):
        run, curves = played(vectors, {"cut": True}, periods=4, capacity=100)
    rows = in_time(run)
    real = rows[rows[:, 3] > 0]
    np.testing.assert_array_equal(real[:14, 0], [*range(LENGTH), *range(LENGTH)])
    np.testing.assert_array_equal(real[:14, 1], [*range(1, LENGTH + 1), *range(1, LENGTH + 1)])
    last = np.flatnonzero((rows[:, 0] == LENGTH - 1) & (rows[:, 3] > 0))
    assert (rows[last[:-1] + 1, 0] == LENGTH).all()  # the true last observation follows
    assert (rows[last[:-1] + 1, 3] == 0).all()
    assert {float(x) for c in curves for x in c.length.ravel() if np.isfinite(x)} == {float(LENGTH)}


@pytest.mark.long
def test_runs_do_not_depend_on_their_neighbours():
    with jax.enable_x64(False):
        both, _ = played(Clock, seeds=2)
        one, _ = played(Clock, seeds=1)
    for x, y in zip(jax.tree.leaves(both.learning), jax.tree.leaves(one.learning), strict=True):
        np.testing.assert_allclose(x[0], y[0], rtol=1e-4, atol=1e-6)


def test_what_fails_is_saved_and_goes_on(tmp_path, monkeypatch):
    """The steps before the failure stay in the store, its period is played again, and the end is the same as ever."""
    config = Config("clock", seeds=1, steps=200, settings=SETTINGS, episodes=2, report_every=20)
    from highway_rl.envs.registry import ENVS, register_env

    register_env("clock", Clock)
    monkeypatch.setattr(Clock, "broken_at", 47)
    with (
        jax.enable_x64(False),
        pytest.raises(host.Interrupted, match="at step 92: clock, environment 0 of 2: it raised OSError: the lamp"),
    ):
        fit(config, tmp_path / "run")
    with jax.enable_x64(False):
        _, _, step, _ = load_all(tmp_path / "run")
        assert step == 80
        monkeypatch.setattr(Clock, "broken_at", 10**9)
        trained = fit(config, tmp_path / "run", resume=True)
    assert trained.finished
    assert trained.scores[0]["score"] == sum(range(1, LENGTH + 1))
    ENVS.known.pop("clock")
    ENVS.added.pop("clock")


def test_what_fails_in_one_of_several_runs_is_named():
    made = []

    def worlds():
        made.append(Clock())
        made[-1].broken_at = 9 if len(made) == 4 else 10**9  # the second run's second one
        return made[-1]

    program = setup(Config(worlds, seeds=2, seed=5, steps=1_000, settings=SETTINGS)).programs[0]
    made.clear()
    with jax.enable_x64(False), pytest.raises(host.Interrupted, match="of seed 6: worlds, environment 1 of 2: it rais"):
        program.compiled()(program.start()(), jnp.int32(0), jnp.int32(0), jnp.bool_(True))


@pytest.mark.long
def test_a_resumed_store_keeps_its_steps_and_is_cut(tmp_path):
    """The episode under way ends there as if cut; a fresh one begins."""
    with jax.enable_x64(False):
        run, _ = played(Clock, periods=2, seeds=1, capacity=200)
        before = in_time(run)
        program = setup(Config(Clock, steps=1_000, settings=SETTINGS | {"capacity": 200})).programs[0]
        go = program.compiled()
        after, _ = go(run, jnp.int32(2), jnp.int32(0), jnp.bool_(True))
        go.close()
    rows = in_time(after)
    new = np.flatnonzero((rows[:, 3] > 0) & (rows[:, 6] >= 40))
    old = rows[: new[0]]
    np.testing.assert_array_equal(old[old[:, 3] > 0], before[before[:, 3] > 0])
    assert rows[new[0] - 1, 3] == 0  # the observation at which the old episode was left
    assert rows[new[0] - 1, 0] == before[-1, 0]
    assert rows[new[0], 0] == 0
