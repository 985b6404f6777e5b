"""The wrappers on our environments: what each adds, and that nothing is lost."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.envs import minatar
from highway_rl.envs.wrappers import auto_reset, delay_reward, sticky_actions, time_limit
from highway_rl.types import Env, Spec, Step, record


def counter(rewards, length):
    """Counts its steps; pays what the list says; ends after so many steps; its observation is (steps, action)."""
    table = jnp.asarray(rewards, jnp.float32)

    def reset(key):
        return jnp.asarray(0), jnp.asarray([0, -1])

    def step(state, action, key):
        new = state + 1
        return Step(new, jnp.stack([new, action]), table[state], new >= length, jnp.asarray(False))

    return Env(Spec("counter", jax.ShapeDtypeStruct((2,), jnp.int32), 4), reset, step)


def roll(env, actions, key=None):
    key = jax.random.key(0) if key is None else key
    state, first = env.reset(key)

    def step(state, x):
        out = env.step(state, *x)
        return out.state, out

    return first, jax.lax.scan(step, state, (jnp.asarray(actions), jax.random.split(key, len(actions))))[1]


def test_sticky_actions_repeat_the_executed_action():
    asked = np.arange(4000) % 4
    _, out = roll(sticky_actions(counter(np.zeros(4000), 4000), 0.25), asked)
    played = np.asarray(out.obs[:, 1])
    before = np.concatenate([[0], played[:-1]])
    assert np.all((played == asked) | (played == before))
    repeats = np.mean(played[before != asked] == before[before != asked])
    assert abs(repeats - 0.25) < 0.03
    for probability, expected in ((0.0, asked), (1.0, np.zeros(4000))):
        _, out = roll(sticky_actions(counter(np.zeros(4000), 4000), probability), asked)
        np.testing.assert_array_equal(out.obs[:, 1], expected)


def test_time_limit_truncates_and_termination_wins():
    _, out = roll(time_limit(counter(np.zeros(9), 9), 5), np.zeros(5, int))
    np.testing.assert_array_equal(out.truncated, [0, 0, 0, 0, 1])
    assert not np.any(out.terminated)
    _, out = roll(time_limit(counter(np.zeros(9), 5), 5), np.zeros(5, int))
    assert bool(out.terminated[-1])
    assert not np.any(out.truncated)


def test_auto_reset_keeps_the_final_observation_and_the_last_action():
    env = auto_reset(sticky_actions(counter(np.zeros(3), 3), 0.0))
    _, out = roll(env, np.full(7, 2))
    np.testing.assert_array_equal(out.obs[:, 0], [1, 2, 3, 1, 2, 3, 1])
    np.testing.assert_array_equal(out.state.obs[:, 0], [1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(out.state.inner.last_action, 2)
    wrapped = auto_reset(time_limit(sticky_actions(counter(np.zeros(9), 9), 0.0), 3))
    _, out = roll(wrapped, np.full(4, 1))
    np.testing.assert_array_equal(out.truncated, [0, 0, 1, 0])
    np.testing.assert_array_equal(out.state.inner.inner.last_action, 1)
    np.testing.assert_array_equal(out.state.inner.elapsed, [1, 2, 0, 1])


def test_delay_pays_at_the_end_every_k_steps_or_at_random():
    rewards = [0, 1, 0, 2, 1, 0, 3, 0, 1, 1]
    actions = np.zeros(10, int)
    env = counter(rewards, 10)
    _, out = roll(delay_reward(env, width=8), actions)
    np.testing.assert_array_equal(out.reward, [0] * 9 + [9])
    np.testing.assert_array_equal(np.argmax(out.obs.feature, -1), [0, 1, 1, 2, 3, 3, 4, 4, 5, 6])
    first, out = roll(delay_reward(env, width=8, feature="score"), actions)
    assert int(np.argmax(first.feature)) == 0
    np.testing.assert_array_equal(np.argmax(out.obs.feature, -1), [0, 1, 1, 3, 4, 4, 7, 7, 7, 7])
    np.testing.assert_array_equal(out.obs.feature.sum(-1), 1)
    _, out = roll(delay_reward(env, 4, width=8, feature="score"), actions)
    np.testing.assert_array_equal(out.reward, [0, 0, 0, 3, 0, 0, 0, 4, 0, 2])
    np.testing.assert_array_equal(np.argmax(out.obs.feature, -1), [0, 1, 1, 0, 1, 1, 4, 0, 1, 0])
    ones = counter(np.ones(2000), 2000)
    _, out = roll(delay_reward(ones, range(2, 7), width=8), np.zeros(2000, int))
    paid = np.asarray(out.reward)
    gaps = paid[paid > 0][:-1]
    assert paid.sum() == 2000
    assert set(gaps.astype(int)) == {2, 3, 4, 5, 6}
    assert abs(gaps.mean() - 4) < 0.25
    cut = time_limit(counter(np.ones(9), 9), 4)
    _, out = roll(delay_reward(cut, width=8), np.zeros(4, int))
    np.testing.assert_array_equal(out.reward, [0, 0, 0, 4])


def test_delay_refuses_what_it_cannot_do():
    env = counter([0], 1)
    for bad, message in (
        ({"width": 0}, "width=0: give a whole number >= 1"),
        ({"width": 4, "feature": "sum"}, "feature='sum': give one of count, score"),
        ({"width": 4, "until": "later"}, "until='later': give 'end', a number of steps or a range"),
        ({"width": 4, "until": 0}, "until=0: give a whole number >= 1"),
        ({"width": 4, "until": 1.5}, "until=1.5: give 'end'"),
        ({"width": 2.5}, "width=2.5: give"),
        ({"width": 4, "until": True}, "until=True: give 'end'"),
        ({"width": 4, "until": range(0, 3)}, r"until=range\(0, 3\): give a range of 1 to 256"),
    ):
        with pytest.raises(ValueError, match=message):
            delay_reward(env, **bad)
    with pytest.raises(ValueError, match="steps=0: give"):
        time_limit(env, 0)
    with pytest.raises(ValueError, match=r"probability=-0.1: give a number from 0 to 1"):
        sticky_actions(env, -0.1)


@record
class Tally:
    """The score of the episode so far, kept below the wrapper under test."""

    inner: object
    score: jax.Array
    last: jax.Array


def tally(env):
    def reset(key):
        inner, obs = env.reset(key)
        return Tally(inner, jnp.asarray(0.0), jnp.asarray(0.0)), obs

    def step(state, action, key):
        out = env.step(state.inner, action, key)
        return dataclasses.replace(out, state=Tally(out.state, state.score + out.reward, out.reward))

    return dataclasses.replace(env, reset=reset, step=step)


def conserves(game, until, episodes):
    """Plays each board to its first end; compares what was paid with what was earned."""
    env = delay_reward(tally(minatar.make(game)), until, feature="score", width=512)

    @jax.jit
    def run(key):
        state, _ = jax.vmap(env.reset)(jax.random.split(key, episodes))
        ended = jnp.zeros(episodes, bool)

        def step(carry):
            state, ended, paid, t = carry
            each = jax.random.split(jax.random.fold_in(key, t), episodes)
            actions = jax.random.randint(jax.random.fold_in(key, -t), (episodes,), 0, 6)
            out = jax.vmap(env.step)(state, actions, each)
            keep = lambda old, new: jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), old, new)  # noqa: E731
            paid = paid + jnp.where(ended, 0.0, out.reward)
            return jax.tree.map(keep, state, out.state), ended | out.terminated, paid, t + 1

        first = (state, ended, jnp.zeros(episodes), 1)
        return jax.lax.while_loop(lambda carry: ~carry[1].all(), step, first)

    state, _, paid, _ = run(jax.random.key(5))
    np.testing.assert_array_equal(paid, state.inner.score)
    np.testing.assert_array_equal(state.owed, 0)
    return np.asarray(paid)


@pytest.mark.long
@pytest.mark.parametrize("until", ["end", 7, range(1, 20)])
def test_delay_conserves_ten_thousand_scores(until):
    assert conserves("breakout", until, 10_000).sum() > 1000


@pytest.mark.full
@pytest.mark.parametrize("until", ["end", 7, range(1, 20)])
@pytest.mark.parametrize("game", minatar.GAMES)
def test_delay_conserves_ten_thousand_scores_in_full(game, until):
    assert conserves(game, until, 10_000).sum() > 100


def test_with_the_score_a_payment_follows_from_the_observation():
    """What a step pays is (feature + what the step earns) at an end and nothing else before: no history enters."""
    env = auto_reset(delay_reward(tally(minatar.make("space_invaders")), feature="score", width=256))
    key = jax.random.key(2)
    state, first = env.reset(key)

    def step(state, key):
        seen = jnp.argmax(state.obs.feature)
        out = env.step(state, jax.random.randint(key, (), 0, 6), key)
        return out.state, (seen, out.obs.feature, out.reward, out.terminated)

    _, (seen, after, reward, ended) = jax.lax.scan(step, state, jax.random.split(key, 3000))
    seen, after, reward, ended = (np.asarray(leaf) for leaf in (seen, after, reward, ended))
    earned = np.argmax(after, -1) - seen
    assert np.all(earned >= 0)
    np.testing.assert_array_equal(reward, np.where(ended, seen + earned, 0))
    assert ended.sum() > 10
    assert int(np.argmax(first.feature)) == 0


def test_with_the_count_it_does_not_where_a_reward_exceeds_one():
    actions = np.zeros(3, int)
    small, big = (roll(delay_reward(counter(r, 3), width=8), actions)[1] for r in ([1, 0, 0], [5, 0, 0]))
    np.testing.assert_array_equal(small.obs.feature, big.obs.feature)
    assert float(small.reward[-1]) != float(big.reward[-1])


def test_where_all_is_paid_all_ends():
    """A truncation pays what is owed to the end, and becomes a termination: nothing may be added to it. What is paid
    every so many steps goes on after a cut, with nothing owed."""
    cut = time_limit(counter([1, 2, 3, 4, 5], 9), 3)
    _, out = roll(delay_reward(cut, "end", feature="amount"), np.zeros(3, int))
    np.testing.assert_array_equal(out.reward, [0, 0, 6])
    np.testing.assert_array_equal(out.terminated, [0, 0, 1])
    assert not np.any(out.truncated)
    _, out = roll(delay_reward(cut, 2, feature="amount"), np.zeros(3, int))
    np.testing.assert_array_equal(out.reward, [0, 3, 3])
    np.testing.assert_array_equal(out.truncated, [0, 0, 1])
    assert (float(out.obs.feature[-1, 0]), bool(out.terminated[-1])) == (0, False)
