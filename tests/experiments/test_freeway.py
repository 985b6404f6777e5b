"""The study of Freeway: what is shown, and what is counted at the bottom."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.deep import dqn
from highway_rl.envs.minatar.common import UP
from highway_rl.envs.minatar.freeway import BOTTOM, CLOCK
from highway_rl.envs.registry import make_env
from highway_rl.experiments import freeway, freeway_play
from highway_rl.experiments.deep import as_deep
from highway_rl.records.rows import read_rows
from highway_rl.runs import Config, setup


@pytest.mark.parametrize("bars", [False, True])
@as_deep()
def test_the_time_is_shown_and_nothing_else_differs(bars):
    env, plain = freeway.timed(parts=25, bars=bars), make_env(freeway.GAME, delay="end")
    key = jax.random.key(0)
    (state, obs), (other, same) = env.reset(key), plain.reset(key)
    length = -(-(CLOCK + 1) // 25)
    up = jnp.int32(UP)
    step, also = jax.jit(env.step), jax.jit(plain.step)
    for t in range(2 * length + 2):
        assert np.array_equal(obs.obs, same.obs)
        count, time = obs.feature[: freeway_play.COUNTS], obs.feature[freeway_play.COUNTS :]
        last = int(np.flatnonzero(time)[-1])
        assert (last, len(time)) == (t // length, 25)
        if bars:
            assert count.sum() == 1 + int(jnp.argmax(same.feature))
            assert count[: count.sum()].all()
            assert time[: last + 1].all()
        else:
            assert np.array_equal(count, same.feature)
            assert time.sum() == 1
        key, now = jax.random.split(key)
        one, two = step(state, up, now), also(other, up, now)
        (state, obs), (other, same) = (one.state, one.obs), (two.state, two.obs)
        assert one.reward == two.reward


def test_what_is_thought_at_the_bottom():
    q = np.zeros((4, 6))
    q[:, UP] = [1.0, -1.0, 5.0, 3.0]
    told = np.arange(80.0).reshape(4, 20)
    played = freeway_play.Play(np.array([BOTTOM, BOTTOM, 3, BOTTOM]), np.array([0, 0, 0, 2]), q, told)
    assert freeway_play.at_the_bottom(played) == [
        {"count": 0, "steps_there": 2, "value": 0.5, "gap": 0.0, "share": 0.5},
        {"count": 2, "steps_there": 1, "value": 3.0, "gap": 3.0, "share": 1.0},
    ]
    assert freeway_play.along_the_road(played) == [  # of two crossings only the bottom is looked at
        {"row": 3, "made": 0, "steps_there": 1, "value": 5.0, "gap": 5.0, "share": 1.0},
        {"row": BOTTOM, "made": 0, "steps_there": 2, "value": 0.5, "gap": 0.0, "share": 0.5},
    ]
    assert freeway_play.if_told(played)[:2] == [{"told": 0, "value": 80 / 3}, {"told": 5, "value": 83 / 3}]


@pytest.mark.long
@pytest.mark.parametrize("bars", [False, True])
@as_deep()
def test_told_what_is_so_it_thinks_what_it_thinks(bars):
    """Where no crossing is made, the value if told none is the value."""
    made = setup(Config(freeway.TIMED, ("dqn",), env={"parts": 4, "bars": bars}, preset="paper", settings={"k": 1}))
    agent, key = made.programs[0].agent, jax.random.key(0)
    params = dqn.start(agent, made.env.spec, key).params
    played = freeway_play.player(agent, made.env, bars)(params, 1.0, jax.random.split(key, 1))
    none = played.crossings == 0
    np.testing.assert_allclose(played.told[none, 0], played.q[none].max(axis=1), rtol=1e-5)
    assert np.abs(played.told[:, 1] - played.told[:, 0]).max() > 1e-4


@pytest.mark.parametrize("discount", [0.996, 0.999])
def test_what_standing_still_is_worth(discount):
    """x(T(1−γ)² − ln x) = 1 − x for small steps; nothing to wait for is worth it all."""
    x, clock = freeway.kept(discount), CLOCK
    g = -np.log(discount)
    assert x * (clock * g * (1 - discount) - np.log(x)) == pytest.approx(1 - x, abs=0.01)
    assert freeway.kept(discount, clock=1) == 1.0
    assert freeway.kept(discount, clock=100) > x


def test_up_to_how_many_crossings_another_one_pays():
    c = freeway.pays(0.996)
    assert 0.996**27 * (c + 1) == pytest.approx(c)
    assert freeway.pays(0.999) > c > freeway.pays(0.996, steps=42)


def test_the_table_of_the_page_is_that_of_the_rows():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "freeway.md").read_text(encoding="utf-8")
    rows, facts = read_rows(root / "results" / "freeway.csv")
    assert (facts["scale"], facts["finished"]) == ("paper", facts["cells"])
    (table,) = freeway.tables(rows)
    for line in (table.columns, *table.rows):
        told = "| " + " | ".join(line) + " |"
        assert told.casefold() in page.casefold()


def test_the_words_above_the_figures_are_those_of_the_rows():
    root = Path(__file__).parents[2]
    rows, _ = read_rows(root / "results" / "freeway.csv")
    why, columns = freeway.notes(rows)
    (table,) = freeway.tables(rows)
    lines = {line[0]: line for line in table.rows}
    for name in (freeway.PAPER, freeway.BARRED):
        training, greedy = (float(lines[name][i]) for i in (2, 3))
        assert f"{training:.0f} times in training and {greedy:.0f} times greedily" in why
    assert f"at the bottom of the road for {lines[freeway.PAPER][6]} of greedy play" in why
    assert "worth 0.77·c at any time (γ = 0.996)" in why
    assert "pay up to 9 crossings" in why
    assert "docs/freeway.md" in why
    for column in ("whose", "at the bottom, greedy", "up is best there"):
        assert column in table.columns
        assert f"“{column}”" in columns


def test_the_words_need_no_more_than_the_first_variant():
    rows, _ = read_rows(Path(__file__).parents[2] / "results" / "freeway.csv")
    why, _ = freeway.notes([row for row in rows if row["variant"] == freeway.PAPER])
    assert "bars" not in why
    quick, _ = freeway.notes([row for row in rows if row["variant"] == "time shown, γ = 0.999"])
    assert quick.startswith("The board does not show")
