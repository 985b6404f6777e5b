"""A gate that luck cannot open: facts as in the paper, luck chosen by one half and paid by the other."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.core.backup import Backup
from highway_rl.core.targets import TargetRule
from highway_rl.envs import make_task
from highway_rl.tabular import agent as tabular
from highway_rl.tabular.draws import spread
from highway_rl.tabular.loop import trainer
from highway_rl.tabular.targets import halved_target, highway_target, no_outcomes, noted
from highway_rl.types import NEVER

RULE = TargetRule(Backup((1, 2, 3, 4), depth_alpha=math.inf, policy_alpha=math.inf))


@pytest.mark.long
@pytest.mark.parametrize("alpha", [math.inf, 0.7, 0.0])
@pytest.mark.parametrize("gate", [1, None])
def test_where_nothing_is_random_it_is_the_papers_target(alpha, gate):
    rng = np.random.default_rng(0)
    rule = TargetRule(Backup((1, 2, 4), depth_alpha=alpha, policy_alpha=alpha, gate_depth=gate))
    single, left = jnp.asarray(rng.normal(size=(20, 5, 4))), jnp.asarray(rng.integers(0, 5, (20, 5)), jnp.int32)
    left = left.at[:, 0].set(4)
    if math.isinf(alpha):  # the paper's leaves masks out of a maximum, where returns past the end repeat the last
        last = jnp.take_along_axis(single, jnp.maximum(left - 1, 0)[..., None], -1)
        single = jnp.where(jnp.arange(4, dtype=jnp.int32) < left[..., None], single, last)
        single = jnp.where(left[..., None] > 0, single, single[:, :1])
        left = jnp.where(left > 0, left, left[:, :1])

    @jax.jit
    @jax.vmap
    def both(single, left):
        fact = jnp.arange(4, dtype=jnp.int32) < left[:, None]  # what is no step may be anything
        wanted = highway_target(rule, single[:, None], left[:, None], jnp.float64(0.0))
        return *halved_target(rule, single, left, fact), wanted

    found, sure, wanted = both(single, left)
    assert sure.all()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_luck_does_not_raise_the_target():
    """Returns of mean 0 at every depth, 8 policies: the largest of them promises 1.4 and more, one half's choice 0."""
    rng = np.random.default_rng(1)
    single, left = jnp.asarray(rng.normal(size=(5_000, 8, 4))), jnp.full(8, 4, jnp.int32)
    luck = jnp.zeros((8, 4), bool)
    found, sure = jax.jit(jax.vmap(lambda x: halved_target(RULE, x, left, luck)))(single)
    assert not sure.any()
    assert abs(float(jnp.mean(found))) < 4 * float(jnp.std(found)) / math.sqrt(5_000)
    paper = jax.jit(jax.vmap(lambda x: highway_target(RULE, x[:, None], left[:, None], jnp.float64(0.0))))(single)
    assert float(jnp.mean(paper)) > 1.4


@pytest.mark.parametrize("confidence", [-1.0, 0.0, 1.0])
def test_between_the_averages_of_the_two_returns(confidence):
    """G¹ is 0.3 and the long return 0 ± 1: the expected target is neither above 0.3 nor below 0, and nearer to 0.3 the
    less is needed to close the gate."""
    rng = np.random.default_rng(2)
    single = jnp.asarray(np.concatenate([np.full((5_000, 8, 1), 0.3), rng.normal(size=(5_000, 8, 3))], axis=2))
    left, luck = jnp.full(8, 4, jnp.int32), jnp.zeros((8, 4), bool)
    found, _ = jax.jit(jax.vmap(lambda x: halved_target(RULE, x, left, luck, confidence)))(single)
    assert -0.02 < float(jnp.mean(found)) <= 0.3
    closed = {-1.0: (0.02, 0.2), 0.0: (0.1, 0.28), 1.0: (0.2, 0.31)}[confidence]
    assert closed[0] < float(jnp.mean(found)) < closed[1]


@pytest.mark.long
def test_a_fact_is_not_averaged_away():
    """One policy of eight knows a way that pays 5 for sure; the others are luck around 0."""
    rng = np.random.default_rng(3)
    single = jnp.asarray(rng.normal(size=(8, 4))).at[2].set(5.0)
    fact = jnp.zeros((8, 4), bool).at[2].set(True)
    found, sure = halved_target(RULE, single, jnp.full(8, 4, jnp.int32), fact)
    assert float(found) == 5
    assert not sure


def test_random_pairs_are_noted():
    """A pair is random once its reward or its successor differs from what it gave before."""

    def episode(*steps):
        state, action, reward, successor = map(jnp.asarray, zip(*steps, strict=True))
        valid = jnp.ones(len(steps), bool).at[-1].set(False)  # the last one is padding
        return SimpleNamespace(
            state=state, action=action, reward=reward.astype(float), next_state=successor, valid=valid
        )

    seen = no_outcomes(8)
    for way in (
        episode((0, 0, 0, 1), (1, 1, 2, 3), (2, 0, 9, 0)),
        episode((0, 0, 0, 1), (1, 1, 2, 3), (2, 0, 8, 0)),
        episode((0, 1, 0, 1), (1, 0, 2, 3), (2, 0, 7, 0)),
    ):
        seen = noted(seen, way, 2)
    assert not seen.random.any()
    seen = noted(seen, episode((0, 0, 0, 2), (1, 0, 1, 3), (0, 1, 5, 0)), 2)
    assert np.flatnonzero(seen.random).tolist() == [0, 2]
    seen = noted(seen, episode((0, 0, 0, 2), (1, 0, 1, 3), (0, 1, 5, 0)), 2)
    assert np.flatnonzero(seen.random).tolist() == [0, 2]  # once random, always


@pytest.mark.parametrize("count", [0, 1, 5, 8, 9, 1000])
def test_spread_draws_are_distinct_and_from_everywhere(count):
    draws = jax.random.uniform(jax.random.key(0), (500, 8))
    rank, some = spread(draws, jnp.full(500, count, jnp.int32))
    assert (some.sum(1) == min(count, 8)).all()
    assert all(len(set(r[s].tolist())) == s.sum() for r, s in zip(np.asarray(rank), np.asarray(some), strict=True))
    assert (rank >= 0).all()
    assert (rank < max(count, 1)).all()
    if count == 1000:
        assert abs(float(rank.mean()) - 499.5) < 20


@pytest.mark.parametrize(("task", "most"), [("choice", 100), ("trace-back", 130)])
def test_it_solves_what_is_luck_and_what_is_not(task, most):
    env = make_task(task, delay=10)
    agent = tabular.highway_q_learning(env.horizon, chooser="half", capacity=512)
    train = trainer(env, tabular.learner(env, agent), max_episodes=1500, until="greedy")
    solved = np.asarray(train(jax.random.split(jax.random.key(0), 10)).greedy)
    assert (solved != NEVER).all()
    assert solved.mean() <= most


def test_bad_choosers():
    with pytest.raises(ValueError, match="chooser='best': give one of sample, half"):
        tabular.highway_q_learning(5, chooser="best")
    with pytest.raises(ValueError, match="confidence="):
        tabular.highway_q_learning(5, chooser="half", confidence=math.nan)
    with pytest.raises(ValueError, match="chooser='half' compares with the 1-step return: give gate_depth 1"):
        tabular.highway_q_learning(5, chooser="half", gate_depth=3)
    assert dataclasses.asdict(tabular.highway_q_learning(5).replay)["policies"] == 3
    assert tabular.highway_q_learning(5, chooser="half").replay.policies == 32
