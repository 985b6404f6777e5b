"""The toy-delayed experiment: its cells, its statistics, and the verdict on made-up rows."""

from pathlib import Path

import numpy as np
import pytest

from highway_rl.experiments import base, toy_delayed
from highway_rl.experiments.toy_delayed_plot import PUBLISHED


def made_up(method, task, values, cap=1000):
    return [
        {"kind": "solve", "task": task, "delay": d, "method": method, "cap": cap, "seed": i, "right": 0.9}
        | {f"{rule}{x}": v for rule in ("greedy", "average") for x, v in (("", min(n, cap)), ("_solved", n < cap))}
        for d, numbers in values.items()
        for i, n in enumerate(numbers)
    ]


def test_cells_cover_the_papers_delays_cheap_first():
    cells = toy_delayed.cells("paper", 0)
    solve = [c for c in cells if c["kind"] == "solve"]
    assert {c["method"] for c in solve} == set(toy_delayed.LEARNERS)
    assert {c["delay"] for c in base.select(solve, task="choice")} >= {10, 50, 100, 500}
    assert {c["delay"] for c in base.select(solve, task="trace-back")} >= {6, 25, 50, 100}
    work = [toy_delayed.cost(c) for c in cells]
    assert work == sorted(work)
    seeds = {}
    for c in solve:
        seeds.setdefault((c["task"], c["delay"], c["method"]), []).extend(range(c["first"], c["first"] + c["seeds"]))
    assert all(sorted(numbers) == list(range(100)) for numbers in seeds.values())


def test_summary_counts_the_cap_and_never_hides_it():
    rows = made_up("Monte Carlo", "choice", {10: [100, 200, 300, 5000, 6000]})
    found = toy_delayed.summary(rows, "choice", "Monte Carlo", "average")[10]
    assert found["median"] == 300
    assert found["mean"] == np.mean([100, 200, 300, 1000, 1000])
    assert found["capped"] == 0.4


def test_slope_is_the_power():
    assert abs(toy_delayed.slope({d: 7.0 * d**0.86 for d in (10, 20, 50)}) - 0.86) < 1e-9
    published = {delay: float(median) for delay, median in PUBLISHED["choice", "Monte Carlo"].items()}
    assert abs(toy_delayed.slope(published) - 0.86) < 0.02


def verdict(highway, rival):
    rows = []
    for task in ("choice", "trace-back"):
        rows += made_up("Highway Q-learning", task, {10: [highway] * 3, 100: [highway] * 3})
        rows += made_up("RUDDER", task, {10: [rival] * 3, 100: [rival] * 3})
    return toy_delayed.EXPERIMENT.claims[10](rows)


def test_claim_ten_holds_or_not_by_its_numbers():
    assert verdict(15, 800).verdict == base.HOLDS
    assert verdict(60, 800).verdict == base.PARTLY
    assert "(100% at the cap)" in verdict(2000, 800).value
    assert (
        "not so: choice within 20 by the mean, choice at any delay, choice ahead of RUDDER" in verdict(2000, 800).value
    )


def test_a_cap_supports_no_bound():
    """Seeds stopped at 50 episodes say nothing about 100; and one delay nothing about growth."""
    rows = [r for task in ("choice", "trace-back") for r in made_up("Highway Q-learning", task, {6: [50] * 3}, cap=50)]
    assert toy_delayed.EXPERIMENT.claims[10](rows).verdict == base.FAILS


STORED = base.read_rows(Path(__file__).parents[2] / "results" / "toy-delayed.csv")[0]


def stored(task, method, rule):
    return toy_delayed.summary(STORED, task, method, rule)


def test_stored_highway_on_trace_back_does_not_need_more_with_delay():
    found = stored("trace-back", "Highway Q-learning", "greedy")
    assert sorted(found) == [6, 8, 10, 12, 15, 17, 20, 22, 25, 50, 100]
    assert all(x["mean"] <= 150 and x["capped"] == 0 for x in found.values())
    assert abs(toy_delayed.slope({d: x["mean"] for d, x in found.items()})) <= 0.15


@pytest.mark.parametrize(("method", "factor"), [("Q(λ)", 2), ("SARSA(λ)", 2.5)])
def test_stored_rivals_follow_the_published_curves(method, factor):
    found = stored("trace-back", method, "average")
    for delay in (6, 8, 10, 12, 15):
        assert found[delay]["capped"] == 0
        assert 1 / factor <= found[delay]["median"] / PUBLISHED["trace-back", method][delay] <= factor


@pytest.mark.parametrize(("task", "limit"), [("trace-back", 2_500), ("choice", 8_000)])
@pytest.mark.parametrize("method", ["RUDDER", "RUDDER + Q(λ)"])
def test_stored_rudder_solves_every_delay(task, limit, method):
    assert all(x["median"] <= limit and x["capped"] == 0 for x in stored(task, method, "average").values())
