"""The games as environments: inputs, action sets, randomness, pictures, one compilation."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.envs import keys, minatar
from highway_rl.envs.minatar.render import ansi, palette, rgb, topmost
from highway_rl.envs.minatar.seaquest_state import MAX_OXYGEN, tenths
from highway_rl.envs.minatar.words import compress, expand
from highway_rl.envs.wrappers import auto_reset

ALL_GAMES = minatar.GAMES


def returns_and_lengths(game, boards, episodes, seed):
    """Scores and lengths of whole episodes of random play: the first `episodes / boards` of every board."""
    env = auto_reset(minatar.make(game))
    each = episodes // boards

    def board(key):
        start, run = jax.random.split(key)
        state, _ = env.reset(start)

        def step(carry):
            state, t, done, score, length, scores, lengths = carry
            for_action, for_step = jax.random.split(jax.random.fold_in(run, t))
            out = env.step(state, jax.random.randint(for_action, (), 0, 6), for_step)
            score, length = score + out.reward, length + 1
            scores = scores.at[done].set(jnp.where(out.terminated, score, scores[done]))
            lengths = lengths.at[done].set(jnp.where(out.terminated, length, lengths[done]))
            zero = out.terminated
            return (
                out.state,
                t + 1,
                done + zero,
                jnp.where(zero, 0.0, score),
                jnp.where(zero, 0, length),
                scores,
                lengths,
            )

        first = (state, 0, 0, 0.0, 0, jnp.zeros(each), jnp.zeros(each, jnp.int32))
        out = jax.lax.while_loop(lambda carry: carry[2] < each, step, first)
        return out[-2], out[-1]

    scores, lengths = jax.jit(jax.vmap(board))(jax.random.split(jax.random.key(seed), boards))
    return np.asarray(scores).ravel(), np.asarray(lengths).ravel()


def original_returns_and_lengths(game, episodes, seed):
    minatar_package = pytest.importorskip("minatar")
    env = minatar_package.Environment(game)
    env.seed(seed)
    source = np.random.RandomState(seed + 1)
    scores, lengths = [], []
    for _ in range(episodes):
        env.reset()
        score, length, terminal = 0.0, 0, False
        while not terminal:
            reward, terminal = env.act(source.randint(6))
            score, length = score + reward, length + 1
        scores.append(score)
        lengths.append(length)
    return np.asarray(scores), np.asarray(lengths)


def assert_same_mean(ours, theirs, what):
    error = np.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs))
    gap = abs(ours.mean() - theirs.mean())
    assert gap <= 3 * error, f"{what}: {ours.mean():.4f} against {theirs.mean():.4f}, standard error {error:.4f}"


@pytest.mark.parametrize("game", ["asterix", "breakout"])
def test_random_play_scores_like_the_original(game):
    ours = returns_and_lengths(game, 100, 400, 0)
    theirs = original_returns_and_lengths(game, 300, 0)
    assert_same_mean(ours[0], theirs[0], "score")
    assert_same_mean(ours[1], theirs[1], "length")


@pytest.mark.full
@pytest.mark.parametrize("game", ALL_GAMES)
def test_random_play_scores_like_the_original_in_full(game):
    count = 500 if game == "freeway" else 4000
    ours = returns_and_lengths(game, count // 4, count, 0)
    theirs = original_returns_and_lengths(game, count, 0)
    for name, mine, other in zip(("score", "length"), ours, theirs, strict=True):
        print(f"{game} {name}: ours {mine.mean():.4f}, original {other.mean():.4f}, {count} episodes each")
        assert_same_mean(mine, other, f"{game} {name}")


@pytest.mark.parametrize("game", ALL_GAMES)
def test_shapes_and_action_sets(game):
    for actions, count in (("all", 6), ("minimal", len(minatar.rules(game).minimal_actions))):
        env = minatar.make(game, actions=actions)
        assert env.spec.num_actions == count
        _, board = jax.eval_shape(env.reset, jax.random.key(0))
        assert (board.shape, board.dtype) == (env.spec.observation.shape, env.spec.observation.dtype)
        assert board.shape[-1] == len(minatar.rules(game).channels)


def test_minimal_action_is_the_one_it_stands_for():
    small, full = (minatar.make("breakout", actions=a, sticky=0.0) for a in ("minimal", "all"))
    key = jax.random.key(1)
    state, _ = small.reset(key)
    other, _ = full.reset(key)
    for i, action in enumerate(minatar.rules("breakout").minimal_actions):
        mine, theirs = small.step(state, i, key), full.step(other, action, key)
        np.testing.assert_array_equal(mine.obs, theirs.obs)


def test_one_compilation_and_seeds():
    env = auto_reset(minatar.make("asterix"))
    traces = []

    @jax.jit
    def run(key):
        traces.append(1)
        state, _ = env.reset(key)

        def step(state, key):
            out = env.step(state, 3, key)
            return out.state, out.obs

        return jax.lax.scan(step, state, jax.random.split(key, 60))[1]

    same = [np.asarray(run(jax.random.key(seed))) for seed in (0, 0, 1)]
    assert len(traces) == 1
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0] != same[2]).any()


def test_bad_input_says_what_is_wrong():
    with pytest.raises(ValueError, match="unknown game 'pong': choose from asterix, breakout"):
        minatar.make("pong")
    with pytest.raises(ValueError, match=r"sticky=1.5: give a number from 0 to 1"):
        minatar.make("breakout", sticky=1.5)
    with pytest.raises(ValueError, match="actions='some': give one of all, minimal"):
        minatar.make("breakout", actions="some")
    with pytest.raises(ValueError, match=r"oxygen='1.0.10': give None to breakout, only seaquest has oxygen"):
        minatar.make("breakout", oxygen="1.0.10")
    with pytest.raises(ValueError, match=r"oxygen='2': give one of 1.0.11, 1.0.10"):
        minatar.make("seaquest", oxygen="2")


def test_words_are_uniform_and_streams_differ():
    some = jax.random.split(jax.random.key(3), 20000)
    words = np.stack(jax.vmap(keys.words)(some)).astype(np.uint64)
    counts = np.stack([np.bincount((w >> 24).astype(int), minlength=256) for w in words])
    chi = ((counts - 20000 / 256) ** 2 / (20000 / 256)).sum(axis=1)
    assert (chi < 350).all(), "255 degrees of freedom"
    in_order = np.stack(
        jax.vmap(lambda i: jnp.stack(keys.words(jax.random.wrap_key_data(jnp.stack([i * 0, i])))))(
            jnp.arange(20000, dtype=jnp.uint32)
        )
    )
    correlation = np.corrcoef(in_order.astype(np.float64).T)
    assert np.abs(correlation - np.eye(4)).max() < 0.03
    lagged = [np.corrcoef(in_order[:-1, i].astype(float), in_order[1:, i].astype(float))[0, 1] for i in range(4)]
    assert np.abs(lagged).max() < 0.03
    first, second = (jax.random.key_data(keys.derive(jax.random.key(0), i)) for i in (0, 1))
    assert (np.asarray(first) != np.asarray(second)).all()
    np.testing.assert_array_equal(np.bincount(np.asarray(keys.below(jnp.arange(0, 2**32, 2**20, jnp.uint32), 4))), 1024)


@pytest.mark.parametrize("game", ALL_GAMES)
def test_a_state_survives_its_packing(game):
    chosen = minatar.rules(game)
    state = chosen.init(chosen.draw(jax.random.key(0)))
    again = expand(chosen.state, compress(state, jnp.asarray(7)))
    for mine, other in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(mine, other)


def test_numbers_at_the_ends_of_their_bits():
    chosen = minatar.rules("seaquest")
    state = dataclasses.replace(
        chosen.init(None), oxygen=jnp.asarray(-1), crew=jnp.asarray(-(2**30)), x=jnp.asarray(9), shot=jnp.asarray(1023)
    )
    again = expand(chosen.state, compress(state))
    assert [int(n) for n in (again.oxygen, again.crew, again.x, again.shot)] == [-1, -(2**30), 9, 1023]
    oxygen = np.arange(-1, MAX_OXYGEN + 1)
    np.testing.assert_array_equal(tenths(oxygen), oxygen * 10 // MAX_OXYGEN)


def test_old_style_and_long_keys_work():
    env = minatar.make("asterix")
    for key in (jax.random.PRNGKey(0), jax.random.key(0, impl="rbg")):
        state, board = env.reset(key)
        assert env.step(state, 1, key).obs.shape == board.shape


def test_pictures_have_the_colours_of_the_original():
    pytest.importorskip("seaborn")
    import seaborn

    for channels in (4, 6, 7, 10):
        expected = np.asarray(seaborn.color_palette("cubehelix", channels))[:, :3] * 255
        assert np.abs(palette(channels)[1:].astype(float) - expected).max() <= 1
    board = np.zeros((10, 10, 4), bool)
    board[2, 3, [0, 2]] = True
    assert topmost(board)[2, 3] == 3
    picture = rgb(board, 3)
    assert picture.shape == (30, 30, 3)
    np.testing.assert_array_equal(picture[6, 9], palette(4)[3])
    assert picture[0, 0].sum() == 0
    assert ansi(board).count("\r\n") == 9
    with pytest.raises(ValueError, match="scale=0: give"):
        rgb(board, 0)
