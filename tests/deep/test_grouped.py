"""The chooser "grouped": which returns are facts, what the other rows of a pair earned, what luck can no longer do."""

import collections
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl import runs
from highway_rl.core import targets
from highway_rl.core.backup import TO_END
from highway_rl.core.targets import Trajectory
from highway_rl.deep import dqn, grouping
from highway_rl.deep.dqn import DQN

DEPTHS = (1, 2, TO_END)
GROUPED = DQN(targets.soft_highway(DEPTHS), chooser="grouped", discount=0.9, loss="squared")


def walks(seed, episodes=60, length=5, states=3, chance=0.5):
    """Random walks over few states in which the state 0 pays what a coin says, and state 1 goes where it says."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(episodes):
        state = 2
        for t in range(length):
            action, coin = int(rng.integers(2)), bool(rng.random() < chance)
            reward = float(coin) if state == 0 else 0.5 * action
            after = (2 * coin if action else 0) if state == 1 else (state + action) % states
            rows.append((state, action, reward, 0.0 if t == length - 1 else 0.9, t == length - 1))
            state = after
    state, action, reward, discount, last = (np.array(x) for x in zip(*rows, strict=True))
    data = Trajectory(
        action, reward.astype(np.float32), discount.astype(np.float32), last, np.ones(len(rows), np.float32)
    )
    return jax.tree.map(jnp.asarray, data), state


def hashed(state):
    return grouping.hash_rows(jnp.asarray(state[:, None], jnp.uint8))


def in_python(data, state, returns, reference, counts, confidence, optimism):
    """Row by row, with dictionaries: the estimates of each return, and of the 1-step one."""
    data = jax.tree.map(np.asarray, data)
    rows = range(len(state))
    follows = [state[i + 1] if data.discount[i] else None for i in rows]
    outcomes = collections.defaultdict(set)
    for i in rows:
        outcomes[state[i], data.action[i]].add((data.reward[i], follows[i]))
    met = collections.Counter((state[i], data.action[i]) for i in rows)
    random = [len(outcomes[state[i], data.action[i]]) > 1 for i in rows]
    often = [met[state[i], data.action[i]] >= grouping.OFTEN for i in rows]
    for paid in (False, True):
        kind = [i for i in rows if bool(data.reward[i]) == paid]
        known = [random[i] for i in kind if often[i]]
        if 2 * sum(known) > len(known):
            random = [r or (i in kind and not often[i]) for i, r in enumerate(random)]
    found, one = np.array(returns), np.array(reference)
    for i in rows:
        others = [j for j in rows if j != i and counts[j] and (state[j], data.action[j]) == (state[i], data.action[i])]
        end = i
        while not data.last[end]:
            end += 1
        if not any(random[i : end + 1]):
            continue
        found[i] = -np.inf  # the shorter ones end in values, and do not compete
        if not counts[i]:
            others = []
        if many := len(others) + optimism:
            ahead = returns[others, -1] - reference[others]
            error = ahead.std() / math.sqrt(len(others)) if others else 0.0
            found[i, -1] = (returns[others, -1].sum() + optimism * returns[i, -1]) / many - confidence * error
            one[i] = (reference[others].sum() + optimism * reference[i]) / many
    return found, one


@pytest.mark.long
@pytest.mark.parametrize(("seed", "confidence", "optimism"), [(0, 0.0, 0.0), (1, 1.5, 1.0), (2, -2.0, 0.5)])
def test_estimates_are_those_of_dictionaries(seed, confidence, optimism):
    data, state = walks(seed, episodes=40, states=4)
    state = state + 4 * (np.arange(len(state)) % 5)  # tells the time, so that not every pair is random
    rng = np.random.default_rng(seed)
    returns, reference = (
        rng.normal(size=(len(state), 3)).astype(np.float32),
        rng.normal(size=len(state)).astype(np.float32),
    )
    counts = rng.random(len(state)) < 0.7
    pairs = grouping.alike(hashed(state), data, jnp.ones(len(state), bool), jnp.asarray(counts))
    args = GROUPED.rule.backup, jnp.asarray(returns), jnp.asarray(reference), data, pairs, confidence, optimism
    found, one = grouping.estimates(*args)
    wanted = in_python(data, state, returns, reference, counts, confidence, optimism)
    facts = np.all(wanted[0] == returns, axis=1)
    assert 0.05 < facts.mean() < 0.95
    assert np.any(facts != ~np.asarray(pairs.random))  # luck that comes later counts, too
    np.testing.assert_allclose(found, wanted[0], atol=2e-5 + 1e-3 * abs(confidence))  # a small variance is rounding
    np.testing.assert_allclose(one, wanted[1], atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_caution_pays_the_average_less_what_luck_adds_to_the_largest(far):
    data, state = walks(0, episodes=90, states=4)
    state = state + 4 * (np.arange(len(state)) % 5)
    rng = np.random.default_rng(0)
    target, reference = (far + rng.normal(size=(2, len(state)))).astype(np.float32)
    counts = rng.random(len(state)) < 0.7
    pairs = grouping.alike(hashed(state), data, jnp.ones(len(state), bool), jnp.asarray(counts))
    found = grouping.cautious(jnp.asarray(target), jnp.asarray(reference), data, pairs, 2.0, num_actions=2)
    action, last, discount = (np.asarray(x) for x in (data.action, data.last, data.discount))

    def alike(i):
        same = [j for j in range(len(state)) if counts[j] and (state[j], action[j]) == (state[i], action[i])]
        return same if counts[i] and pairs.random[i] and len(same) >= grouping.OFTEN else []

    same = [alike(i) for i in range(len(state))]
    error = [reference[s].std(ddof=1, dtype=np.float64) / math.sqrt(len(s)) if s else 0.0 for s in same]
    after = np.array([0.0 if last[i] else discount[i] * error[i + 1] for i in range(len(state))])
    for i, s in enumerate(same):  # the larger of two: 1/√π
        wanted = target[s].mean(dtype=np.float64) - 2 * after[s].mean() / math.sqrt(math.pi) if s else target[i]
        assert found[i] == pytest.approx(wanted, abs=2e-4 + 5e-7 * far)
    changed = sum(map(bool, same))
    assert 20 < changed < np.sum(counts & np.asarray(pairs.random))
    assert any(after[s].any() for s in same)


def test_the_largest_of_some_normal_numbers():
    drawn = np.random.default_rng(0).normal(size=(200_000, 4)).max(axis=1)
    assert grouping.largest_of(4) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / math.sqrt(drawn.size))
    assert grouping.largest_of(1) == pytest.approx(0, abs=1e-6)
    assert grouping.largest_of(2) == pytest.approx(1 / math.sqrt(math.pi), abs=1e-6)


@pytest.mark.long
def test_without_chance_it_is_the_paper_s_gate():
    data, state = walks(0, chance=0.0)
    state = state + 3 * (np.arange(len(state)) % 5)  # tells the time: when an episode ends is no chance either
    real = jnp.ones(len(state), bool)
    pairs = grouping.alike(hashed(state), data, real, real)
    assert not np.any(pairs.random)
    q = jax.random.normal(jax.random.key(1), (len(state), 2))
    found = dqn.targets(GROUPED, GROUPED.rule, data, q, 0, pairs=pairs)
    paper = dqn.targets(dataclasses.replace(GROUPED, chooser="sample"), GROUPED.rule, data, q, 0)
    np.testing.assert_allclose(found.target, paper.target, atol=1e-6)
    np.testing.assert_array_equal(found.returns, paper.returns)


@pytest.mark.long
def test_luck_does_not_pay():
    """Coins that are worth nothing: the paper's gate promises more the longer it looks, this one does not."""
    rng, length, episodes = np.random.default_rng(0), 30, 300
    rows = length * episodes
    time = np.tile(np.arange(length), episodes)
    last = time == length - 1
    data = Trajectory(
        np.zeros(rows, np.int32),
        rng.choice([-1.0, 1.0], rows).astype(np.float32),
        np.where(last, 0.0, 1.0).astype(np.float32),
        last,
        np.ones(rows, np.float32),
    )
    data, real = jax.tree.map(jnp.asarray, data), jnp.ones(rows, bool)
    pairs = grouping.alike(hashed(time), data, real, real)
    q, rule = jnp.zeros((rows, 1)), targets.highway(TO_END)
    paper = dqn.targets(dataclasses.replace(GROUPED, chooser="sample"), rule, data, q, 0).target
    found = dqn.targets(GROUPED, rule, data, q, 0, pairs=pairs).target
    start = time == 0
    assert float(np.mean(np.asarray(paper)[start])) > 1.5
    assert abs(float(np.mean(np.asarray(found)[start]))) < 4 * math.sqrt(length / episodes)
    assert abs(float(np.mean(found))) < 0.25


def test_rows_that_share_a_bucket_by_accident_are_left_alone(monkeypatch):
    """In one bucket all do; then nothing is random, and nothing is averaged."""
    monkeypatch.setattr(grouping, "buckets", lambda rows: 1)
    data, state = walks(0)
    real = jnp.ones(len(state), bool)
    pairs = grouping.alike(hashed(state), data, real, real)
    assert not np.any(pairs.random)
    assert not np.any(pairs.counts)


def test_rows_that_are_not_real_are_no_part_of_any_pair():
    data, state = walks(0)
    real = jnp.arange(len(state)) % 3 != 0
    pairs = grouping.alike(hashed(state), data, real, jnp.ones(len(state), bool))
    assert not np.any(pairs.random & ~real)
    assert not np.any(pairs.counts & ~real)


@pytest.mark.long
def test_it_trains_and_tells_how_much_is_luck():
    told = []
    config = runs.Config(
        "umbrella", ("soft-highway-dqn:chooser=grouped", "dqn:chooser=grouped"), env={"length": 6}, steps=2_000,
        preset="general", settings={"network": "mlp", "capacity": 2_000, "confidence": 0.5, "caution": 1}, episodes=20,
    )  # fmt: skip
    runs.fit(config, None, report=lambda news: told.extend(news.get("rows", ())))
    last = told[-1]
    assert last["noise_1"] > 0.5  # a coin of one
    soft = next(row for row in reversed(told) if row["algo"].startswith("soft"))
    assert soft["noise_end"] > soft["noise_1"]
    assert 0 < soft["luck"] < 1


def test_refused():
    with pytest.raises(ValueError, match=r"confidence=2: give a number equal to 0, or chooser=grouped"):
        DQN(confidence=2)
    with pytest.raises(ValueError, match=r"confidence=nan: give a number that is finite"):
        DQN(chooser="grouped", confidence=math.nan)
    with pytest.raises(ValueError, match=r"caution=1: give a number equal to 0, or chooser=grouped"):
        DQN(caution=1)
    with pytest.raises(ValueError, match=r"caution=-1: give a number that is finite and at least 0"):
        DQN(chooser="grouped", caution=-1)
