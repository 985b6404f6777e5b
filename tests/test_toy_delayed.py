"""The toy-delayed experiment: its cells, its statistics, and the verdict on made-up rows."""

import numpy as np

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
    assert {c["method"] for c in solve} == set(toy_delayed.METHODS)
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
    assert "at the cap 100%" in verdict(2000, 800).value
