"""One colour for an algorithm in every figure, apart from the others for every eye; bands and ticks to be read."""

import itertools
import random

import numpy as np
import pytest

from highway_rl.records import figures
from highway_rl.records.figures import LINES, PALETTE, axes, colour, family, log_band, log_ticks, look, looks, short

DEEP = {
    "dqn": "one step",
    "double-dqn": "double",
    "maxmin-dqn": "maxmin",
    "n-step-dqn": "multi-step",
    "lambda-dqn": "λ-return",
    "watkins-dqn": "Q(λ)",
    "tree-backup-dqn": "tree backup",
    "retrace": "retrace",
    "n-step-highway-dqn": "highway",
    "soft-highway-dqn": "soft highway",
    "highway-gate-3": "changed gate",
}
SAME = [
    ("highway", ["n-step-highway-dqn", "Highway VI (max)", "Highway Q-learning", "highway", "Highway, n=5"]),
    ("one step", ["dqn", "VI", "Bellman optimality"]),
    ("multi-step", ["n-step-dqn", "Monte Carlo", "multi-step", "multi-step, n=2"]),
    ("Q(λ)", ["watkins-dqn", "Q(λ)", "Q(λ=0.9)"]),
    ("λ-return", ["lambda-dqn", "SARSA(λ)", "λ-return, λ=0.8"]),
    ("RUDDER", ["RUDDER"]),
    ("policy evaluation", ["PI", "Bellman expectation"]),
    ("changed gate", ["gate as a mean", "gate threshold n1=0", "highway-gate-3"]),
]
SWEEPS = [
    [f"n-step-dqn:n={n}" for n in (1, 2, 3, 5, 10, 20, "end")] + ["n-step-dqn"],
    [f"soft-highway-dqn:alpha={a},depths=1,2,end" for a in (0, 0.0005, 0.001, 0.005, 0.01, "inf")],
    [f"retrace:lam={x}" for x in (0.5, 0.8, 0.9, 0.95, 1.0)] + ["retrace"],
    [f"maxmin-dqn:k={k}" for k in (1, 2, 4, 8)],
    [f"dqn:learning_rate={x},loss=squared" for x in ("1e-4", "3e-4", "1e-3", "3e-3")] + ["dqn"],
    ["highway-gate-0", "highway-gate-3", "highway-mean-gate"],
    ["RUDDER", "RUDDER + Q(λ)"],
    ["PI", "PI (exact)", "PI, sweeps counted"],
    ["highway", "highway, uniform over 1…n", "optimality, 1…n"],
]

OKABE_ITO = ["#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"]
EYES = {
    "all cones": np.eye(3),
    "no green cones": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no red cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}
"""What is left of linear RGB: Machado, Oliveira and Fernandes 2009, severity 1."""


def seen(colours, eye):
    """OKLab coordinates (Ottosson 2020) of colours as an eye sees them."""
    levels = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours]) / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.transpose(EYES[eye]), 0, 1)
    cones = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    cones += [[0.0883024619, 0.2817188376, 0.6299787005]]
    lab = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
    lab += [[0.0259040371, 0.7827717662, -0.8086757660]]
    return np.cbrt(linear @ np.transpose(cones)) @ np.transpose(lab)


def closest(colours, eye):
    points = seen(colours, eye)
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2))


def test_the_measure_of_distance_is_right():
    """Black and white are 1 apart, also without cones; red and green come together without green cones."""
    for eye in EYES:
        assert closest(["#000000", "#ffffff"], eye) == pytest.approx(1, abs=1e-3)
    assert closest(["#b04a00", "#6b7a00"], "no green cones") < 0.5 * closest(["#b04a00", "#6b7a00"], "all cones")


@pytest.mark.parametrize("eye", EYES)
def test_families_are_apart_for_every_eye(eye):
    """Fourteen colours, and any two as far apart as the closest of Okabe and Ito's eight are to who sees them worst."""
    worst = min(closest(OKABE_ITO, other) for other in EYES)
    assert 0.07 < worst < closest(PALETTE.values(), eye)


def test_every_colour_shows_on_white():
    assert all(seen([c], "all cones")[0, 0] < 0.83 for c in PALETTE.values())


def test_each_deep_algorithm_has_the_colour_of_its_family():
    assert {name: family(name) for name in DEEP} == DEEP
    assert {name: colour(name) for name in DEEP} == {name: PALETTE[kind].lower() for name, kind in DEEP.items()}
    assert len({colour(name) for name in DEEP}) == len(DEEP)


@pytest.mark.parametrize(("kind", "names"), SAME)
def test_planners_tables_and_networks_of_a_family_share_its_colour(kind, names):
    assert {colour(name) for name in names} == {PALETTE[kind].lower()}


def test_every_algorithm_of_the_package_has_a_family():
    from highway_rl.deep.algorithms import ALGORITHMS

    built_in = set(ALGORITHMS) - set(ALGORITHMS.added)
    assert built_in >= set(DEEP)
    assert {family(name) for name in built_in} <= set(PALETTE)


def test_every_method_of_the_experiments_has_a_family():
    from highway_rl.experiments import example_mdp, multi_room, operators, toy_delayed

    names = {row["method"] for row in multi_room.run("positions", "repeat", 4, 2, 0)}
    names |= {cell["method"] for cell in toy_delayed.cells("quick", 0) if "method" in cell}
    names |= {*operators.OPERATORS, *example_mdp.OPERATORS}
    assert {family(name) for name in names} <= set(PALETTE)


def test_a_beginning_counts_as_a_word():
    assert family("dqnesque") == "dqnesque"
    assert family("PICKLE") not in PALETTE
    assert family("dqn-of-mine") == "one step"


@pytest.mark.parametrize("names", SWEEPS, ids=lambda names: names[0])
def test_variants_keep_their_hue_and_are_told_apart(names):
    found = looks(names)
    assert len(set(found.values())) == len(names)
    assert len({family(name) for name in names}) == 1
    for a, b in itertools.combinations(found.values(), 2):
        assert a.line != b.line or closest([a.colour, b.colour], "all cones") > 0.03, (a, b)
    base = PALETTE[family(names[0])].lower()
    hue = seen([base], "all cones")[0, 1:]
    for a in found.values():
        mine = seen([a.colour], "all cones")[0, 1:]
        if np.linalg.norm(hue) > 0.05:  # greys have none
            assert mine @ hue / np.linalg.norm(mine) / np.linalg.norm(hue) > 0.9


def test_a_look_follows_from_labels_and_not_from_their_order():
    names = [name for sweep in SWEEPS for name in sweep] + list(DEEP)
    expected = looks(names)
    for seed in range(3):
        mixed = random.Random(seed).sample(names, len(names))
        assert looks(mixed) == expected
        assert list(looks(mixed[:1])) == mixed[:1]
    alone = {name: looks([name])[name] for name in names}
    assert alone == {name: look(name) for name in names}


def test_the_plain_label_has_the_plain_look_beside_any_variant():
    found = looks([f"n-step-dqn:n={n}" for n in range(1, 30)] + ["n-step-dqn"])
    assert found["n-step-dqn"] == (PALETTE["multi-step"].lower(), "-")


def test_larger_options_are_darker():
    light = [seen([colour(f"n-step-dqn:n={n}")], "all cones")[0, 0] for n in (1, 3, 5, 10, "end")]
    assert light == sorted(light, reverse=True)
    assert len(set(light)) == 5


def test_an_algorithm_of_ones_own_has_a_colour_that_stays():
    assert colour("mypackage.rules:mine:n=5") == colour("mypackage.rules:mine:n=5")
    assert family("mypackage.rules:mine:n=5") == "mypackage.rules:mine"
    assert colour("mine") != colour("another")
    assert look("mine").line in LINES


def test_a_band_stays_near_its_centre():
    centre = np.array([20.0, 600.0, 7000.0])
    low, high = log_band(centre, centre - [100, 1000, 10], centre + [100, 1000, 10], factor=4)
    assert (low >= centre / 4).all()
    assert (high <= centre * 4).all()
    assert (low[2], high[2]) == (6990, 7010)
    assert (low[0], low[1], high[0], high[1]) == (5, 150, 80, 1600)


@pytest.mark.parametrize("limits", [(1.5, 90), (2, 8), (9, 1100), (1e-3, 1), (1, 1e7), (0.4, 0.9)])
@pytest.mark.parametrize("along", "xy")
def test_logarithmic_ticks_are_few_and_plain(limits, along):
    _, (ax,) = axes(1, "one")
    ax.plot(*(([0, 1], limits) if along == "y" else (limits, [0, 1])))
    log_ticks(ax, along)
    axis = getattr(ax, f"{along}axis")
    low, high = axis.get_view_interval()
    ticks = [t for t in axis.get_majorticklocs() if low <= t <= high]
    texts = [axis.get_major_formatter()(t, None) for t in ticks]
    assert 1 <= len(ticks) <= 8
    assert all("e" not in text and "$" not in text for text in texts)
    assert [float(text.replace(",", "")) for text in texts] == pytest.approx(ticks)


def test_short_labels_are_narrow_and_all_different():
    names = [f"soft-highway-dqn:alpha={a},depths=1,2,end" for a in (0.001, 0.005)] + ["n-step-dqn:n=3", "dqn"]
    found = short(names)
    assert found[2:] == ["n-step n=3", "dqn"]
    assert len(set(found)) == 4
    assert max(len(line) for text in found for line in text.split("\n")) <= 24
    long = [f"mine:{','.join(f'option_{i}=0.123456' for i in range(9))},last={x}" for x in (1, 2)]
    assert len(set(short(long))) == 2


def test_toy_delayed_bands_do_not_bury_the_panel(tmp_path, monkeypatch):
    """Seeds of which one in ten meets the cap: mean − sd is below zero, and the band still stays by its curve."""
    from highway_rl.experiments import toy_delayed, toy_delayed_plot

    kept = []
    monkeypatch.setattr(toy_delayed_plot, "save", lambda figure, path: kept.append(figure) or path)
    rows = [
        {"kind": "solve", "task": "choice", "delay": d, "method": "Highway Q-learning", "seed": i, "right": 1}
        | {"greedy": 3000 if i == 0 else 10, "greedy_solved": i > 0, "average": 10, "average_solved": True}
        for d in (10, 100)
        for i in range(10)
    ]
    toy_delayed_plot.plot(rows, tmp_path, toy_delayed.summary, ["Highway Q-learning"], ())
    panel = kept[0].axes[0]
    centre = panel.lines[0].get_ydata()
    reach = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert centre.min() / 4 <= reach.min() < centre.min()
    assert centre.max() < reach.max() <= 4 * centre.max()
    assert "95 %" in panel.get_title()
    assert panel.get_ylim()[0] > centre.min() / 10


def test_a_figure_is_saved_where_there_was_no_folder(tmp_path):
    figure, _ = axes(1, "one")
    path = figures.save(figure, tmp_path / "new" / "one.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
