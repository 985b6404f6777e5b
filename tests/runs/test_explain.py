"""Explained episodes: the numbers are those of training, whatever form the episode comes in, and they can be read."""

import dataclasses
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import highway_rl
from highway_rl import runs
from highway_rl.core.targets import targets
from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.data.ring import Rows
from highway_rl.deep import dqn
from highway_rl.deep.refresh import whole_targets
from highway_rl.runs.explain import rule_of

ALGOS = (
    "dqn",
    "soft-highway-dqn:depths=1,2,end,alpha=2,k=2",
    "double-dqn",
    "n-step-dqn:n=3",
    "n-step-highway-dqn:n=4",
    "soft-highway-dqn:bootstrap=epsilon-greedy,alpha=inf",
    "soft-highway-dqn:num_policies=3",
    "highway-gate-0:n=3",
    "highway-gate-3:n=5",
    "retrace:lam=0.9",
    "lambda-dqn",
)
STEP = 700
"""How far the agents were trained: ε is on its way down, and counts where it ends returns."""


def fresh(algo="soft-highway-dqn", task="late", **env):
    """An agent that learned nothing."""
    settings = {"network": "mlp", "epsilon_steps": 1_000, "capacity": 500}
    s = runs.setup(runs.Config(task, (algo,), settings=settings, env=env))
    run = s.runs[0]
    params = jax.jit(lambda: dqn.start(run.agent, s.env.spec, jax.random.key(1)).params)()
    return runs.TrainedAgent(s.config, s.env.spec, run.agent, params, run.label, 0, STEP, None)


class Given(NamedTuple):
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    behaviour: np.ndarray


def random_episode(agent, length, *, terminated, seed=0):
    """Observations of no task, among them some that are equal."""
    rng = np.random.default_rng(seed)
    like = agent.spec.observation
    obs = (rng.random((4, *like.shape)) < 0.5).astype(like.dtype)[rng.integers(4, size=length + 1)]
    ends = np.zeros(length, bool)
    ends[-1] = terminated
    actions = rng.integers(agent.spec.num_actions, size=length)
    return Given(obs, actions, rng.normal(size=length).astype(np.float32), ends, rng.uniform(0.1, 1, length))


def stored(agent, given):
    """The episode in a store, as training puts it there: between others that it has nothing to do with."""
    coded = jax.vmap(codec_of(agent.spec).encode)
    count = len(given.actions)
    zeros, ones = np.zeros(3, np.int32), np.ones(3, np.float32)
    obs = coded(given.observations)
    noise = Rows(~obs[:3], zeros, 9 * ones, zeros == np.array([1, 1, 0]), ones, zeros + 50, zeros, zeros == 0)
    nowhere = jnp.zeros_like(obs)
    steps = Rows(
        obs[:-1],
        given.actions.astype(np.int32),
        given.rewards,
        given.terminations,
        given.behaviour.astype(np.float32),
        np.full(count, 60, np.int32),
        np.zeros(count, np.int32),
        np.ones(count, bool),
    )
    cut = (np.arange(count) == count - 1) & ~given.terminations
    store = ring.empty(2 * count + 10, obs[0])
    store = ring.add(store, noise, np.array([False, False, True]), nowhere[:3], nowhere[0])
    first = int(store.newest)
    store = ring.add(store, steps, cut, obs[1:], nowhere[0])
    store = ring.add(store, noise, np.array([False, False, True]), nowhere[:3], nowhere[0])
    return jax.tree.map(lambda x: x[None], store), slice(first, first + count)


@pytest.mark.parametrize("algo", [*(pytest.param(a, marks=pytest.mark.long) for a in ALGOS[2:]), *ALGOS[:2]])
def test_targets_are_those_of_training(algo):
    """Of a refresh of that store, which knows nothing of explaining."""
    agent = fresh(algo, length=6)
    learning = dqn.Learning(agent.params, None, agent.params if agent.agent.doubles else None)
    refreshed = jax.jit(
        lambda store: whole_targets(agent.agent, agent.spec, learning, store, jnp.int32(STEP), jax.random.key(5))[0]
    )
    for terminated in (True, False):
        given = random_episode(agent, 11, terminated=terminated)
        store, mine = stored(agent, given)
        found = [row["target"] for row in agent.explain(given).rows]
        np.testing.assert_allclose(found, refreshed(store)[mine], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("algo", ["soft-highway-dqn:alpha=1", "highway-gate-0:n=3", "highway-gate-3:n=5", "n-step-dqn"])
def test_every_number_of_a_row(algo):
    """Against the formulas, step by step."""
    agent = fresh(algo, length=6)
    given = random_episode(agent, 9, terminated=True, seed=2)
    rule, gamma = rule_of(agent.agent), float(agent.agent.discount)
    q = agent.q_values(given.observations)
    rows = agent.explain(given).rows
    discount = np.where(given.terminations, 0, gamma).astype(np.float32)
    path = highway_rl.Trajectory(given.actions, given.rewards, discount, given.terminations)
    np.testing.assert_allclose([r["target"] for r in rows], targets(rule, path, q[:-1], q[1:]), rtol=1e-5, atol=1e-6)

    def back(i, depth):
        end = min(i + depth, 9)
        left = 0.0 if end == 9 else gamma ** (end - i) * q[end].max()
        return sum(gamma ** (k - i) * given.rewards[k] for k in range(i, end)) + left

    for i, row in enumerate(rows):
        action = given.actions[i]
        assert (row["step"], row["action"], row["reward"]) == (i, action, pytest.approx(given.rewards[i]))
        assert (row["value"], row["q"]) == pytest.approx((q[i].max(), q[i, action]), rel=1e-5, abs=1e-6)
        assert row["one_step"] == pytest.approx(back(i, 1), rel=1e-4, abs=1e-5)
        assert row["followed"] == pytest.approx(back(i, 99), rel=1e-4, abs=1e-5)
        names = {n: f"return_{'end' if n == highway_rl.TO_END else n}" for n in rule.backup.depths}
        for n, name in names.items():
            assert row[name] == pytest.approx(back(i, n), rel=1e-4, abs=1e-5)
        gate = rule.backup.gate_depth
        compared = q[i, action] if gate == 0 else back(i, gate or 1)
        assert row["reference"] == pytest.approx(compared, rel=1e-4, abs=1e-5)
        best = max([row["reference"], *(row[name] for name in names.values())])
        words = {"Q(s,a)": "q", "1-step": "one_step", "to the end": "return_end"}
        column = words.get(
            row["won"], "reference" if row["won"] == "3-step" and gate == 3 else f"return_{row['won'][0]}"
        )
        assert row[column] == pytest.approx(best, rel=1e-5, abs=1e-6)


def test_what_an_episode_may_look_like():
    agent = fresh(length=6)
    given = random_episode(agent, 5, terminated=False)._replace(behaviour=np.ones(5))
    expected = agent.explain(given).rows
    obs, actions, rewards, ends, _ = given
    steps = list(zip(obs[:-1], actions, rewards, ends, strict=True))
    forms = [
        (steps, obs[-1]),
        ([(o.tolist(), int(a), float(r), int(e)) for o, a, r, e in steps], obs[-1].tolist()),
        ({"obs": obs, "action": actions, "reward": rewards, "terminated": ends}, None),
        ({"obs": list(obs), "action": list(actions), "reward": rewards.tolist(), "terminated": False}, None),
        ({"obs": obs[:-1], "action": actions, "reward": rewards, "terminated": ends.astype(int)}, obs[-1]),
        (given._replace(observations=jnp.asarray(obs)), None),
    ]
    for form, last in forms:
        assert agent.explain(form, last).rows == expected
    done = [(*step[:3], i == 4) for i, step in enumerate(steps)]
    with_last, without = agent.explain(done, obs[0]).rows, agent.explain(done).rows
    assert with_last == without  # nothing follows a termination
    one = agent.explain(done[4:])
    assert [row["target"] for row in one.rows] == pytest.approx([rewards[4]])


def test_observations_of_several_arrays():
    """As one tree of arrays, and step by step."""
    agent = fresh(delay="end", length=6)
    episode = agent.episode(seed=3)
    count = len(episode.action)
    each = [jax.tree.map(lambda x, i=i: x[i], episode.obs) for i in range(count + 1)]
    steps = list(zip(each, episode.action, episode.reward, episode.terminated, strict=False))
    assert agent.explain(steps, each[-1]).rows == agent.explain(episode).rows
    assert len(agent.explain(episode).rows) == count


def test_what_is_no_episode():
    agent = fresh(length=6)
    good = random_episode(agent, 4, terminated=False)
    obs, actions, rewards, ends, _ = good
    form = {"obs": obs, "action": actions, "reward": rewards, "terminated": ends}
    num = agent.spec.num_actions
    cases = [
        (form | {"obs": obs[:-1]}, "the last step did not terminate: give last_obs, the observation after it"),
        (form | {"obs": obs[:2]}, r"obs has 2 observations of 4 steps: give 4, and the last one as last_obs, or 5"),
        (form | {"obs": obs[0]}, "obs is one observation: give one for every step"),
        (form | {"obs": obs[:, :-1]}, r"obs has shape .*: give"),
        (form | {"obs": [*obs[:4], obs[0][:-1]]}, r"obs has shape .*: give"),
        (form | {"action": actions + num}, rf"action={num + int(actions[0])}: give"),
        (form | {"action": actions * 0.5}, "action has dtype float64: give whole numbers"),
        (form | {"action": []}, r"action has "),
        (form | {"reward": rewards[:-1]}, r"reward has shape \(3,\): give \(4,\), one number a step"),
        (form | {"reward": rewards * np.nan}, "reward=.*: give a number that is finite"),
        (form | {"terminated": np.ones(4, bool)}, "terminated is true at step 0 of 4: give one episode, which ends"),
        (form | {"terminated": np.full(4, 0.5)}, r"terminated=0\.5: give bools, or 0 and 1"),
        (form | {"terminated": ends[:2]}, r"terminated has shape \(2,\): give \(4,\)"),
        (form | {"behaviour": np.zeros(4)}, "behaviour=.*: give a number > 0 and <= 1"),
        ({k: v for k, v in form.items() if k != "reward"}, "trajectory has no reward: give a list of"),
        (7, "trajectory has no obs: give a list of"),
        ([], "trajectory is a list of other things than steps: give a list of"),
        ([(obs[0], 1, 0.0)], "trajectory is a list of other things than steps"),
    ]
    for wrong, says in cases:
        with pytest.raises(ValueError, match=says):
            agent.explain(wrong)
    with pytest.raises(ValueError, match="last_obs is the last of obs already: leave it out"):
        agent.explain(form, obs[0])


def test_few_programs():
    """Episodes of nearly the same length share one."""
    agent = fresh(length=6)
    for length in (8, 9, 13, 15):
        agent.explain(random_episode(agent, length, terminated=True))
    assert agent._tell._cache_size() == 1


def test_it_can_be_read():
    agent = fresh("soft-highway-dqn", length=6)
    found = agent.explain(agent.episode())
    lines = str(found).splitlines()
    assert lines[0] == "soft-highway-dqn seed 0 on late, step 700"
    assert lines[2].split("   ")[-1].strip() == "followed"
    assert re.split(r"\s{2,}", lines[2].strip()) == (
        ["step", "action", "reward", "max Q", "Q(s,a)", "1-step", "2-step", "to the end", "won", "target", "followed"]
    )
    assert len(lines) == 4 + 6 + 3
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in str(found)
    assert re.split(r"\s{2,}", lines[4].strip())[0] == "0"
    assert sum(found.won.values()) == 6
    assert repr(found) == f"<{lines[0]}>"
    assert "discounted by 0.99" in lines[-1]
    assert "cut off" not in lines[-1]
    cut = agent.explain(random_episode(agent, 4, terminated=False))
    assert "the episode was cut off" in str(cut)
    assert "there is no gate" in str(fresh("dqn", length=6).explain(random_episode(agent, 4, terminated=True)))


@pytest.mark.long
@pytest.mark.parametrize("algo", ["soft-highway-dqn", "highway-gate-3:n=5", "dqn"])
@pytest.mark.parametrize("length", [1, pytest.param(5, marks=pytest.mark.full), 300])
def test_a_picture(algo, length, tmp_path):
    agent = fresh(algo, length=6)
    path = agent.explain(random_episode(agent, length, terminated=True)).plot(tmp_path / "made" / "episode.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_an_episode_is_played(whole):
    """Greedily, in its own environment or another, and cut where it has to be."""
    agent = highway_rl.load(whole[1])
    episode = agent.episode(seed=4)
    assert agent.act(episode.obs[:-1]).tolist() == episode.action.tolist()
    assert episode.reward.sum() == pytest.approx(agent.evaluate(episodes=1)["score"], abs=1e-6)
    short = agent.episode(max_steps=2)
    assert (len(short.action), len(short.obs), bool(short.terminated[-1])) == (2, 3, False)
    with pytest.raises(ValueError, match="max_steps=0"):
        agent.episode(max_steps=0)
    with pytest.raises(ValueError, match="give an environment like the one it was trained on"):
        agent.episode("minatar/breakout")


def test_an_episode_outside_jax():
    agent = fresh("soft-highway-dqn", task="CartPole-v1")
    episode = agent.episode(seed=5, max_steps=30)
    count = len(episode.action)
    assert (episode.obs.shape, episode.obs.dtype) == ((count + 1, 4), np.float32)
    found = agent.explain(episode)
    assert [row["reward"] for row in found.rows] == [1.0] * count
    assert found.terminated == bool(episode.terminated[-1])


def test_other_agents_of_a_program(whole):
    """An agent out of a program of several rules is explained by its own."""
    for label in whole[0].setup.labels:
        agent = highway_rl.load(whole[1], run=label)
        alone = fresh(label[0], length=6)
        depths = alone.agent.rules[0].backup.depths
        assert agent.explain(agent.episode()).depths == depths
        assert dataclasses.is_dataclass(rule_of(agent.agent))
