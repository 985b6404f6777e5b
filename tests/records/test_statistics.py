"""Statistics of comparisons: against SciPy and exact distributions, by what leaves them unchanged, by coverage."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, mannwhitneyu, norm, spearmanr, trim_mean

from highway_rl.records.statistics import (
    Interval,
    aggregate,
    curve_interval,
    interval,
    iqm,
    mean,
    normalised,
    probability_of_improvement,
    profile,
    rank_correlation,
    ratio_of_means,
)

quickly = settings(max_examples=60, deadline=None)
numbers = st.floats(-1e3, 1e3, allow_subnormal=False)
few = st.integers(-3, 3).map(float)  # ties are common
lists = st.lists(numbers, min_size=1, max_size=23)
games = st.dictionaries(st.sampled_from("abcd"), st.lists(few, min_size=1, max_size=5), min_size=1)


def sample(seed: int, seeds: tuple[int, ...] = (6, 3, 9)) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    return {name: chance.normal(i, 1 + i, n) for i, (name, n) in enumerate(zip("abcdefgh", seeds, strict=False))}


def assert_same(a: Interval, b: Interval) -> None:
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-10, atol=1e-12)


# iqm and mean


@quickly
@given(lists)
def test_iqm_is_scipys_trimmed_mean(values):
    assert iqm(values) == pytest.approx(trim_mean(values, 0.25), abs=1e-9)
    assert mean(values) == pytest.approx(np.mean(values), abs=1e-9)


@quickly
@given(lists, numbers, st.floats(-50, 50))
def test_iqm_shifts_and_scales_with_its_values(values, shift, scale):
    moved = [scale * x + shift for x in values]
    assert iqm(moved) == pytest.approx(scale * iqm(values) + shift, abs=1e-6)


def test_iqm_by_hand():
    assert iqm([9, 1, 2]) == 4  # fewer than 4 values: the mean
    assert iqm([300, 2, 1, -900]) == 1.5
    assert iqm([[300, 2], [1, -900]]) == 1.5  # the flat list
    assert iqm([-1e9, 1, 2, 3, 1e9]) == 2  # 5 // 4 = 1 at either end


@pytest.mark.parametrize("statistic", [iqm, mean])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_an_axis_and_without_nan(statistic, axis):
    chance = np.random.default_rng(0)
    values = chance.normal(size=(9, 7, 8))
    values[chance.random(values.shape) < 0.4] = np.nan
    values[:, 2, 3] = values[1, :, 3] = values[4, 5, :] = np.nan
    found = statistic(values, axis=axis)
    lines = np.moveaxis(values, axis, -1)
    for index in np.ndindex(found.shape):
        line = lines[index]
        rest = line[~np.isnan(line)]
        expected = {iqm: lambda x: trim_mean(x, 0.25), mean: np.mean}[statistic](rest) if rest.size else np.nan
        np.testing.assert_allclose(found[index], expected, rtol=1e-12)
    assert np.isnan(found).any()


# the bootstrap


def test_the_ends_are_those_of_the_exact_distribution():
    """Two games with two seeds have 16 equally likely draws; all seeds in one pot would have 256, and a wider band."""
    by_game = {"small": [0.0, 1.0], "large": [0.0, 10.0]}
    exact = [
        np.mean([*a, *b]) for a in itertools.product([0, 1], repeat=2) for b in itertools.product([0, 10], repeat=2)
    ]
    for confidence in (0.3, 0.6, 0.8, 0.95):
        found = interval(mean, by_game, confidence=confidence, repeats=20_000)
        ends = np.quantile(exact, [0.5 - confidence / 2, 0.5 + confidence / 2], method="inverted_cdf")
        assert found.value == 2.75
        np.testing.assert_allclose(found[1:], ends)
    assert found.high == 5.5


def test_of_many_seeds_it_is_the_normal_interval():
    x = np.random.default_rng(3).normal(5, 2, 400)
    for confidence in (0.5, 0.95):
        found = interval(mean, {"game": x}, confidence=confidence, repeats=8000)
        half = norm.ppf(0.5 + confidence / 2) * x.std() / np.sqrt(x.size)
        np.testing.assert_allclose(found, [x.mean(), x.mean() - half, x.mean() + half], atol=0.05 * half + 0.002)


@pytest.mark.parametrize(("confidence", "least", "most"), [(0.95, 0.89, 0.98), (0.6, 0.5, 0.68)])
@pytest.mark.parametrize("statistic", [mean, iqm])
def test_coverage(statistic, confidence, least, most):
    """Of 400 samples of three games, unlike in place and width, so many intervals hold the true value."""
    centres, widths = np.array([-1.0, 0.0, 1.0]) * (statistic is mean) * 40, [1, 2, 3]
    chance = np.random.default_rng(0)
    held = 0
    for i in range(400):
        by_game = {str(k): chance.normal(c, w, 16) for k, (c, w) in enumerate(zip(centres, widths, strict=True))}
        found = interval(statistic, by_game, confidence=confidence, repeats=200, seed=i)
        held += found.low <= 0 <= found.high
    assert least <= held / 400 <= most


def test_few_seeds_have_intervals_that_are_too_narrow():
    """What the module says of itself: about 74 of 100 with 3 seeds, 90 with 10."""
    chance = np.random.default_rng(0)
    for seeds, share in ((3, 0.74), (10, 0.90)):
        found = [interval(mean, {"game": chance.normal(size=seeds)}, repeats=200, seed=i) for i in range(400)]
        assert np.mean([x.low <= 0 <= x.high for x in found]) == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize("statistic", [mean, np.mean, iqm])
def test_games_far_apart_do_not_widen_the_interval(statistic):
    """A game moved by a million moves the mean's interval and leaves its width; the pooled one would be ruined."""
    near = sample(0, (8, 8, 8, 8))
    far = {game: x + 1e6 * i for i, (game, x) in enumerate(near.items())}
    width = [np.subtract(*interval(statistic, x, repeats=500)[2:0:-1]) for x in (near, far)]
    if statistic is iqm:  # it drops the outer games, and what is left varies as two games do
        assert 0 < width[1] < 5
    else:
        assert width[1] == pytest.approx(width[0], abs=1e-6)


def test_more_confidence_is_wider_and_more_seeds_are_narrower():
    x = np.random.default_rng(0).normal(size=10)
    a, b, c = (interval(mean, {"game": x}, confidence=p) for p in (0.5, 0.9, 0.99))
    assert c.low < b.low < a.low < a.value < a.high < b.high < c.high
    many = interval(mean, {"game": np.tile(x, 25)}, confidence=0.9)
    assert (b.high - b.low) / (many.high - many.low) == pytest.approx(5, rel=0.1)


def test_one_seed_is_drawn_as_it_is():
    found = interval(iqm, {"a": [1.0], "b": [5.0]})
    assert found == (3, 3, 3)
    several = [0.0, 1.0, 5.0, 7.0]
    alone = interval(mean, {"a": several}, repeats=300)
    beside = interval(mean, {"a": several, "b": [2.0]}, repeats=300)  # only `a` varies: its share of the list is 4/5
    np.testing.assert_allclose(beside, 0.8 * np.array(alone) + 0.4)
    assert beside.low < beside.value < beside.high


def test_the_same_seed_gives_the_same_and_another_does_not():
    a, b = sample(0), sample(1)
    calls = [
        lambda seed: np.array(interval(iqm, a, repeats=100, seed=seed)),
        lambda seed: np.array(aggregate({"m": a}, repeats=100, seed=seed)["m"]),
        lambda seed: np.array(probability_of_improvement(a, b, repeats=100, seed=seed)),
        lambda seed: np.array(profile(a, [0.0, 0.5], repeats=100, seed=seed)),
        lambda seed: np.array(curve_interval(a["a"][:, None], repeats=100, seed=seed)),
    ]
    before = np.random.get_state()[1].tolist()
    for call in calls:
        np.testing.assert_array_equal(call(1), call(1))
        assert (call(1) != call(2)).any()
    assert np.random.get_state()[1].tolist() == before


# normalised and aggregate


def test_normalised_puts_low_at_0_and_high_at_1():
    scores = {"m": {"a": [10, 20, 15], "b": [3]}, "n": {"a": [0], "b": [-1, 1]}}
    found = normalised(scores, {"a": 10, "b": 3}, {"a": 20, "b": 1})
    assert {m: {g: x.tolist() for g, x in of.items()} for m, of in found.items()} == {
        "m": {"a": [0, 1, 0.5], "b": [0]},
        "n": {"a": [-1], "b": [2, 1]},  # where less is better, high is below low
    }


def test_aggregate_by_its_formulas():
    by_game = {"a": [0.0, 0.5], "b": [3.0], "c": [0.9, 0.9, 1.2, 0.6]}
    found = aggregate({"m": by_game}, repeats=50)["m"]
    means = [0.25, 3.0, 0.9]
    assert found.iqm.value == pytest.approx(trim_mean([0.0, 0.0, 0.5, 0.5, *[3.0] * 4, 0.9, 0.9, 1.2, 0.6], 0.25))
    assert found.mean.value == pytest.approx(np.mean(means))
    assert found.median.value == pytest.approx(0.9)
    assert found.optimality_gap.value == pytest.approx(np.mean([0.75, 0, (0.1 + 0.1 + 0 + 0.4) / 4]))
    assert type(found.iqm.low) is float


def test_aggregate_reduces():
    """One game: mean and median agree. All below the optimal score: the gap is the mean turned round."""
    by_game = sample(2, (5, 5, 5))
    one = aggregate({"m": {"a": by_game["a"]}}, optimal=100, repeats=200)["m"]
    assert_same(one.mean, one.median)
    three = aggregate({"m": by_game}, optimal=100, repeats=200)["m"]
    assert_same(three.iqm, interval(iqm, by_game, repeats=200))
    assert_same(three.mean, interval(np.mean, by_game, repeats=200))
    value, low, high = three.mean
    assert_same(three.optimality_gap, Interval(100 - value, 100 - high, 100 - low))
    assert aggregate({"m": by_game}, optimal=-100, repeats=9)["m"].optimality_gap == (0, 0, 0)


def test_a_game_with_more_seeds_has_no_more_weight():
    """Seeds told twice change nothing, and it is the interquartile mean of games of one size."""
    few, many = [0.0, 1.0, 2.0], [5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    found = aggregate({"m": {"a": few, "b": many}}, repeats=9)["m"].iqm.value
    assert found == trim_mean([*few, *few, *many], 0.25) != trim_mean([*few, *many], 0.25)
    assert aggregate({"m": {"a": few * 2, "b": many}}, repeats=9)["m"].iqm.value == found


def test_aggregate_takes_each_method_on_its_own():
    """Whatever the other methods are, and in whatever order a later one has its games."""
    a, b = sample(0), sample(1)
    both = aggregate({"a": a, "b": dict(reversed(b.items()))}, repeats=100)
    assert both == {"a": aggregate({"a": a}, repeats=100)["a"], "b": aggregate({"b": b}, repeats=100)["b"]}
    assert both["a"] != both["b"]


# probability of improvement


@quickly
@given(st.lists(few, min_size=1, max_size=9), st.lists(few, min_size=1, max_size=9))
def test_improvement_in_one_game_is_mann_and_whitneys_u(x, y):
    found = probability_of_improvement({"a": x}, {"a": y}, repeats=1).value
    assert found == pytest.approx(mannwhitneyu(x, y, method="asymptotic").statistic / (len(x) * len(y)))
    assert found == pytest.approx(np.mean([(a > b) + (a == b) / 2 for a in x for b in y]))


@quickly
@given(games, st.data())
def test_improvement_turned_round_and_under_a_rising_map(x, data):
    y = {game: data.draw(st.lists(few, min_size=1, max_size=5)) for game in reversed(x)}
    there, back = (probability_of_improvement(*pair, repeats=20) for pair in ((x, y), (y, x)))
    assert there.value + back.value == pytest.approx(1)
    assert 0 <= there.low <= there.high <= 1
    assert probability_of_improvement(x, x, repeats=1).value == pytest.approx(0.5)
    risen = [{game: np.exp(v) + 1000 * ord(game) for game, v in of.items()} for of in (x, y)]
    assert probability_of_improvement(*risen, repeats=20) == there
    alone = [probability_of_improvement({game: x[game]}, {game: y[game]}, repeats=1).value for game in x]
    assert there.value == pytest.approx(np.mean(alone))


def test_improvement_that_is_certain_and_its_exact_interval():
    assert probability_of_improvement({"a": [3, 4]}, {"a": [1, 2, 2]}) == (1, 1, 1)
    exact = [  # of the draws of two and two seeds
        np.mean([(a > b) + (a == b) / 2 for a in x for b in y])
        for x in itertools.product([0, 2], repeat=2)
        for y in itertools.product([1, 3], repeat=2)
    ]
    for confidence in (0.3, 0.6):
        found = probability_of_improvement({"a": [0, 2]}, {"a": [1, 3]}, confidence=confidence, repeats=20_000)
        ends = np.quantile(exact, [0.5 - confidence / 2, 0.5 + confidence / 2], method="inverted_cdf")
        np.testing.assert_allclose(found, [0.25, *ends])


# profiles


@quickly
@given(games, st.lists(few, min_size=1, max_size=8))
def test_a_profile_falls_from_one_to_zero(by_game, levels):
    levels = sorted([-4, *levels, 3])
    found = profile(by_game, levels, repeats=30)
    for line in found:
        assert (np.diff(line) <= 1e-12).all()
        assert (line[0], line[-1]) == (pytest.approx(1), 0)
    assert (found.low <= found.high).all()
    expected = [np.mean([sum(v > t for v in x) / len(x) for x in by_game.values()]) for t in levels]
    np.testing.assert_allclose(found.value, expected)


def test_a_profile_at_one_threshold_is_the_mean_of_successes():
    by_game = sample(5, (6, 6, 6))
    found = profile(by_game, [1.0], repeats=200)
    above = interval(mean, {game: x > 1 for game, x in by_game.items()}, repeats=200)
    assert_same(Interval(*(line[0] for line in found)), above)
    assert above.low < above.value < above.high


def test_the_area_under_a_profile_is_the_mean():
    x = np.random.default_rng(0).uniform(0, 1, 40)
    levels = np.linspace(0, 1, 2001)
    assert np.trapezoid(profile({"a": x}, levels, repeats=1).value, levels) == pytest.approx(x.mean(), abs=1e-3)


# learning curves


@pytest.mark.parametrize("statistic", [mean, iqm])
def test_a_point_of_a_curve_is_a_game(statistic):
    curves = np.random.default_rng(0).normal(size=(7, 5)).cumsum(axis=1)
    found = curve_interval(curves, statistic, repeats=150, seed=4)
    for point in range(5):
        alone = interval(statistic, {"game": curves[:, point]}, repeats=150, seed=4)
        assert_same(Interval(*(line[point] for line in found)), alone)


def test_the_mean_is_the_default_and_the_iqm_is_another():
    curves = np.random.default_rng(0).exponential(size=(8, 3))
    np.testing.assert_allclose(curve_interval(curves, repeats=20).value, curves.mean(0))
    np.testing.assert_allclose(curve_interval(curves, iqm, repeats=20).value, trim_mean(curves, 0.25, axis=0))


def test_curves_with_missing_values():
    """What is missing is left out of the mean; where one seed is left it is drawn or nothing is; then NaN."""
    missing = np.nan
    curves = [[1, 2, missing, missing], [3, missing, missing, missing], [8, 6, 5, missing]]
    value, low, high = curve_interval(curves, repeats=400)
    np.testing.assert_allclose(value, [4, 4, 5, missing])
    np.testing.assert_allclose(low, [1, 2, 5, missing])
    np.testing.assert_allclose(high, [8, 6, 5, missing])
    only = [curve_interval([[missing], [missing], [7]], repeats=1, seed=seed) for seed in range(20)]
    assert {repr(np.ravel(ends).tolist()) for ends in only} == {"[7.0, 7.0, 7.0]", "[7.0, nan, nan]"}


def test_whole_curves_are_drawn():
    """Two points that are one up to sign have bands that are one up to sign."""
    x = np.random.default_rng(0).normal(size=9)
    found = curve_interval(np.stack([x, -x], axis=1), repeats=100)
    np.testing.assert_allclose(found.low[0], -found.high[1])
    np.testing.assert_allclose(found.high[0], -found.low[1])


# what is refused

GOOD = {"a": [1.0, 2.0], "b": [3.0]}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: iqm([]), r"values has shape \(0,\): give at least one value"),
        (lambda: interval(iqm, {}), r"by_game=\[\]: give scores of a game"),
        (lambda: interval(iqm, {"a": []}), r"by_game\['a'\]=\[\]: give a list of finite numbers, one per seed"),
        (lambda: interval(iqm, {"a": [1, np.nan]}), r"by_game\['a'\]=\[1, nan\]: give a list of finite numbers"),
        (lambda: interval(iqm, {"a": [[1, 2]]}), r"by_game\['a'\]=\[\[1, 2\]\]: give a list of finite numbers"),
        (lambda: interval(iqm, {"a": ["1"]}), r"by_game\['a'\]=\['1'\]: give a list of finite numbers"),
        (lambda: interval(iqm, GOOD, confidence=95), r"confidence=95: give a number > 0 and < 1"),
        (lambda: interval(iqm, GOOD, repeats=0), r"repeats=0: give a whole number >= 1"),
        (lambda: interval(iqm, GOOD, seed=-1), r"seed=-1: give a whole number >= 0"),
        (lambda: normalised({"m": {"a": [1]}}, {"a": 2}, {"a": 2}), r"high\['a'\]=2.0: give a number other than low"),
        (lambda: normalised({"m": {"a": [1]}}, {}, {"a": 2}), r"low\['a'\]=None: give a number"),
        (lambda: normalised({"m": {"a": []}}, {"a": 1}, {"a": 2}), r"scores\['m'\]\['a'\]=\[\]: give a list"),
        (lambda: aggregate({"m": GOOD, "n": {"a": [1]}}), r"scores\['n'\]=\['a'\]: give scores of a, b"),
        (lambda: aggregate({"m": GOOD}, optimal=np.nan), r"optimal=nan: give a number"),
        (
            lambda: probability_of_improvement(GOOD, {"a": [1], "c": [1]}),
            r"y_by_game=\['a', 'c'\]: give scores of a, b",
        ),
        (lambda: probability_of_improvement({}, GOOD), r"x_by_game=\[\]: give scores of a game"),
        (lambda: profile(GOOD, 0.5), r"thresholds=0.5: give a list of finite numbers"),
        (lambda: profile(GOOD, []), r"thresholds=\[\]: give a list of finite numbers"),
        (lambda: curve_interval([[1, 2], [3]]), r"curves=\[\[1, 2\], \[3\]\]: give finite numbers as \[seed, point\]"),
        (lambda: curve_interval([1, 2]), r"curves=\[1, 2\]: give finite numbers as \[seed, point\], NaN where"),
        (lambda: curve_interval([[1, np.inf]]), r"curves=\[\[1, inf\]\]: give finite numbers as \[seed, point\]"),
    ],
)
def test_refusals_say_what_to_give(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@quickly
@given(st.lists(st.lists(few, min_size=1, max_size=5), min_size=2, max_size=5))
def test_rank_correlation_of_one_game_is_scipys(settings_of):
    scores = [x for of in settings_of for x in of]
    places = [i for i, of in enumerate(settings_of) for _ in of]
    found = rank_correlation({"game": settings_of}, repeats=5).value
    assert found == pytest.approx(spearmanr(places, scores).statistic if len(set(scores)) > 1 else 0.0, abs=1e-12)


def test_rank_correlation_of_several_games_is_their_mean_and_its_interval_holds_it():
    rising, falling = [[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]], [[9.0, 8.0], [7.0, 6.0], [1.0, 2.0]]
    alone = [rank_correlation({"one": of}).value for of in (rising, falling)]
    both = rank_correlation({"one": rising, "other": falling})
    assert alone[0] == -alone[1] > 0.9
    assert both.value == pytest.approx(0, abs=1e-12)
    assert both.low <= both.value <= both.high
    noisy = rank_correlation({"one": [[1.0, 5.0, 2.0], [2.0, 4.0, 1.0], [3.0, 1.0, 6.0]]})
    assert noisy.low < noisy.value < noisy.high
    with pytest.raises(ValueError, match="by_game"):
        rank_correlation({"one": [[1.0], []]})


def test_the_ratio_of_means_is_of_means_and_its_interval_holds_it():
    x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 4.0, 4.0])
    found = ratio_of_means(x, y)
    assert found.value == 0.5
    low, high = bootstrap((x,), np.mean, method="percentile", rng=0).confidence_interval
    assert (4 * found.low, 4 * found.high) == pytest.approx((low, high), abs=0.1)
    assert np.isnan(ratio_of_means(x, [0.0]).value)
