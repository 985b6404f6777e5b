"""The delayed-reward tasks: what they pay, that states tell all, jit and vmap, Gymnasium, errors."""

import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from highway_rl.envs import make, make_task
from highway_rl.envs.tasks.delayed import DOWN, LEFT, RIGHT, UP, choice_tree
from highway_rl.integrations.gymnasium_tasks import IDS

TASKS = ("trace-back", "choice", "grid-world", "watch-repair", "example-walk")


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compiling is what takes the time of these small programs, so they are compiled without optimisation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def play(env, actions, key):
    """States before each step, rewards, and whether it ended, for a given list of actions."""
    state, obs = env.reset(jax.random.fold_in(key, 999))

    def step(carry, xs):
        state, obs = carry
        action, time = xs
        new = env.step(state, action, jax.random.fold_in(key, time))
        return (new.state, new.obs), (obs, new.reward, new.terminated)

    times = jnp.arange(len(actions), dtype=jnp.int32)
    return jax.lax.scan(step, (state, obs), (jnp.asarray(actions, jnp.int32), times))[1]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_clocked_and_ends_on_time(name):
    env = make_task(name, delay=6)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, env.spec.num_actions, (32, env.horizon))
    keys = jax.random.split(jax.random.key(0), 32)
    states, rewards, ended = jax.jit(jax.vmap(lambda a, k: play(env, a, k)))(actions, keys)
    assert states.dtype == np.int32
    assert states.min() >= 0
    assert states.max() < env.num_states
    assert np.asarray(ended).tolist() == [[False] * (env.horizon - 1) + [True]] * 32
    assert np.isfinite(rewards).all()
    times = [set(np.asarray(states[:, t])) for t in range(env.horizon)]
    assert all(not (a & b) for i, a in enumerate(times) for b in times[:i])
    assert jax.vmap(env.features)(states.ravel()).shape[0] == states.size


@pytest.mark.parametrize(("placement", "good", "bad"), [("early", (-50, 150), (50, 0)), ("end", (0, 100), (0, 50))])
@pytest.mark.parametrize("delay", [3, 6, 20])
def test_trace_back_pays_for_up_then_right(placement, good, bad, delay):
    env = make_task("trace-back", delay=delay, placement=placement)
    pairs = [(first, second) for first in range(4) for second in range(4)]
    actions = np.array([[*pair, *[UP] * (delay - 2)] for pair in pairs])
    _, rewards, _ = jax.vmap(lambda a, k: play(env, a, k))(actions, jax.random.split(jax.random.key(0), 16))
    want = np.zeros((16, delay))
    for i, pair in enumerate(pairs):
        want[i, 1], want[i, -1] = good if pair == (UP, RIGHT) else bad
    np.testing.assert_array_equal(rewards, want)


def test_trace_back_moves_as_told_twice_and_at_random_after():
    env = make_task("trace-back", delay=20)
    keys = jax.random.split(jax.random.key(0), 200)
    ends = {}
    for name, actions in {"a": [UP, RIGHT] + [DOWN] * 18, "b": [UP, RIGHT] + [LEFT] * 18}.items():
        states = np.asarray(jax.vmap(lambda k, a=actions: play(env, a, k)[0])(keys))
        assert len(set(states[:, 1])) == len(set(states[:, 2])) == 1
        assert len(set(states[:, -1])) > 20
        ends[name] = states
    np.testing.assert_array_equal(ends["a"], ends["b"])


def test_choice_has_the_gap_and_deviation_it_says():
    env = make_task("choice", delay=10)
    keys = jax.random.split(jax.random.key(0), 20_000)
    totals = [np.asarray(jax.vmap(lambda k, a=a: play(env, [a] * 10, k)[1].sum())(keys)) for a in (0, 1)]
    sigma = choice_tree(10, 9, 1.0, 0).deviation
    np.testing.assert_allclose([x.std() for x in totals], sigma, rtol=0.02)
    np.testing.assert_allclose(totals[0].mean() - totals[1].mean(), sigma / 4.4, atol=1e-9)


def test_watch_repair_profits():
    """Brands 1 and 2 gain 3.5, brands 0 and 3 lose 1.5; leaving a watch pays nothing."""
    env = make_task("watch-repair", delay=50)
    keys = jax.random.split(jax.random.key(0), 20_000)
    states, rewards, _ = jax.jit(jax.vmap(lambda k: play(env, [1] * 50, k)))(keys)
    brand, total = np.asarray(states[:, 0]), np.asarray(rewards).sum(1)
    np.testing.assert_allclose([total[brand == b].mean() for b in range(4)], [-1.5, 3.5, 3.5, -1.5], atol=0.6)
    assert not np.asarray(play(env, [0] * 50, jax.random.key(1))[1]).any()


def test_grid_world_pays_half_the_time_at_the_bomb():
    env = make_task("grid-world", delay=4)
    _, rewards, _ = jax.vmap(lambda k: play(env, [DOWN] * 6, k))(jax.random.split(jax.random.key(0), 400))
    total = np.asarray(rewards)
    assert total[0, 0] == pytest.approx(-0.09 * 1 * 3)
    assert abs((total[:, -1] > 500).mean() - 0.5) < 0.1
    away = np.asarray(play(env, [UP] * 6, jax.random.key(0))[1])
    assert (away > 0).all()
    q = jnp.zeros((env.num_states, 4))
    assert not env.solved(q)
    assert env.solved(q.at[:, DOWN].set(1.0))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("trace-back", {"delay": 2}, "delay=2: give a whole number from 3"),
        ("choice", {"delay": 0}, "delay=0: give a whole number from 3"),
        ("grid-world", {"delay": 31}, "delay=31: give a whole number from 3 to 30"),
        ("watch-repair", {"delay": 10_001}, "delay=10001: give"),
        ("trace-back", {"placement": "late"}, "placement='late': give one of early, end"),
        ("choice", {"gap": -1.0}, "gap=-1.0: give"),
        ("choice", {"gap": 0.0}, "the two subtrees pay the same: give a gap above 0"),
        ("choice", {"width": 1}, "the two subtrees pay the same"),
        ("choice", {"noise": 0.5}, "noise=0.5: give 2 numbers >= 0"),
        ("choice", {"noise": (0, 1, 2)}, "noise=.*: give 2 numbers"),
        ("watch-repair", {"deviation": "abc"}, "deviation='abc': give 4 numbers >= 0"),
        ("watch-repair", {"deviation": (float("nan"),) * 4}, "deviation=nan: give"),
        ("choice", {"size": 3}, "choice has no option 'size': choose from delay"),
        ("maze-of-time", {}, "unknown task 'maze-of-time': choose from trace-back"),
    ],
)
def test_bad_options_are_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        make_task(name, **options)


@pytest.mark.parametrize("leave", [None, 0, 1, 2, 3])
def test_the_example_walked_pays_what_its_table_does(leave):
    """The rewards of every way through the paper's MDP, in the order of its transitions."""
    actions = [int(t == leave) for t in range(10)]
    _, rewards, _ = play(make_task("example-walk"), actions, jax.random.key(0))
    table = make("example")
    state, paid = 0, []
    for action in actions:
        paid.append(float(table.reward[state, action]))
        state = int(table.successor[state, action, 0])
    assert np.asarray(rewards).tolist() == paid


def test_a_task_is_made_like_any_environment():
    assert make("trace-back", delay=7).horizon == 7


@pytest.mark.parametrize("name", TASKS)
def test_gymnasium_accepts_them(name):
    env = gymnasium.make(f"highway_rl/{IDS[name]}-v0", delay=5)
    check_env(env.unwrapped, skip_render_check=True)
    runs = []
    for _ in range(2):
        seen = [env.reset(seed=3)[0]]
        for t in range(env.unwrapped.env.horizon):
            obs, reward, ended, _, _ = env.step(t % 2)
            seen += [obs, reward]
        assert ended
        runs.append(seen)
    assert runs[0] == runs[1]


def test_importing_the_gymnasium_module_registers_them():
    made = "gymnasium.make('highway_rl/TraceBack-v0', delay=7)"
    code = f"import gymnasium, highway_rl.integrations.gymnasium; print({made}.spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "highway_rl/TraceBack-v0"
    assert IDS == {
        "trace-back": "TraceBack",
        "choice": "Choice",
        "grid-world": "GridWorld",
        "watch-repair": "WatchRepair",
        "example-walk": "ExampleWalk",
    }
