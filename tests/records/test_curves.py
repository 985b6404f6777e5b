"""The picture of a training folder: from old and new files, from one label and from many."""

import itertools
import json
import math

import numpy as np
import pytest

from highway_rl.records import curves, figures

COLUMNS = ["step", "algo", "seed", "score", "bias", "open_1", "open_2", "open_end", "won_gate", "won_1", "won_2"]
COLUMNS += ["won_end"]
MANY = ["dqn", "retrace", *(f"n-step-dqn:n={n}" for n in (2, 3, 5, 10, "end"))]
MANY += [f"soft-highway-dqn:alpha={a},depths=1,2,end" for a in (0, 0.001, 0.005, 0.01, "inf")]


def folder(path, algos, evaluation=None, seeds=3):
    lines = [",".join(COLUMNS)]
    for step in range(100, 1100, 100):
        for i, algo in enumerate(algos):
            for seed in range(seeds):
                shares = "1,0.2,0.05,0.7,0,0.2,0.1" if algo.startswith("soft") else "1,,,,,,"
                lines.append(f'{step},"{algo}",{seed},{step / 100 + i + seed / 10},{i - 1},{shares}')
    path.mkdir(exist_ok=True)
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    (path / "config.json").write_text(json.dumps({"task": "chain", "env": {"delay": "end"}}))
    if evaluation is not None:
        (path / "evaluation.json").write_text(json.dumps({"scores": evaluation}))
    return path


def evaluated(algos, epsilons, score=5.0, seeds=3):
    """Rows of evaluation.json; None leaves the column out, as files of before do."""
    return [
        {"algo": algo, "seed": seed, "score": score - (epsilon or 0), "broken": None}
        | ({} if epsilon is None else {"epsilon": epsilon})
        for algo in algos
        for epsilon in epsilons
        for seed in range(seeds)
    ]


@pytest.fixture
def drawn(monkeypatch):
    """`drawn(path)` draws a folder and returns the figure itself."""
    kept = []
    save = figures.save
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure) or save(figure, path))

    def draw(path):
        assert curves.draw(path).read_bytes()[:4] == b"\x89PNG"
        return kept[-1]

    return draw


def panel(figure, words):
    return next(ax for ax in figure.axes if ax.get_visible() and words in ax.get_title())


def dots(axis, *, opened):
    lines = [x for x in axis.lines if x.get_marker() == "o" and (x.get_markerfacecolor() == "white") == opened]
    return [list(zip(*x.get_data(), strict=True)) for x in lines if len(x.get_xdata())]


def test_old_evaluation_is_greedy(drawn, tmp_path):
    figure = drawn(folder(tmp_path, ["dqn", "retrace"], evaluated(["dqn", "retrace"], [None])))
    axis = panel(figure, "Greedy")
    assert [len(x) for x in dots(axis, opened=False)] == [3, 3]
    assert dots(axis, opened=True) == []
    assert "open" not in axis.get_title()
    assert [bar.get_width() for bar in axis.patches] == [5.0, 5.0]


def test_new_evaluation_shows_both_and_the_bar_is_the_greedy_mean(drawn, tmp_path):
    figure = drawn(folder(tmp_path, ["dqn", "retrace"], evaluated(["dqn", "retrace"], [0, 0.1])))
    axis = panel(figure, "Greedy")
    assert "ε = 0.1" in axis.get_title()
    assert [bar.get_width() for bar in axis.patches] == [5.0, 5.0]
    for opened, score in ((False, 5.0), (True, 4.9)):
        found = dots(axis, opened=opened)
        assert [len(x) for x in found] == [3, 3]
        assert {x for algo in found for x, _ in algo} == {score}


@pytest.mark.parametrize("epsilons", [[None], [0, 0.1]])
def test_seeds_of_equal_score_lie_side_by_side_within_their_bar(drawn, tmp_path, epsilons):
    figure = drawn(folder(tmp_path, ["dqn", "retrace"], evaluated(["dqn", "retrace"], epsilons, seeds=5)))
    axis = panel(figure, "Greedy")
    for i, bar in enumerate(axis.patches):
        places = [y for opened in (False, True) for algo in dots(axis, opened=opened)[i : i + 1] for _, y in algo]
        assert len(set(places)) == 5 * len(epsilons)
        assert np.diff(sorted(places)).min() > 0.05
        assert bar.get_y() <= min(places) <= max(places) <= bar.get_y() + bar.get_height()


def test_broken_seeds_are_left_out(drawn, tmp_path):
    rows = evaluated(["dqn"], [None])
    rows[0] |= {"score": None, "broken": "loss"}
    axis = panel(drawn(folder(tmp_path, ["dqn"], rows)), "Greedy")
    assert [len(x) for x in dots(axis, opened=False)] == [2]


def test_an_algorithm_none_of_whose_seeds_has_a_score_keeps_its_place(drawn, tmp_path):
    rows = evaluated(["dqn", "retrace"], [0])
    rows = [row | {"score": None, "broken": "loss"} if row["algo"] == "dqn" else row for row in rows]
    axis = panel(drawn(folder(tmp_path, ["dqn", "retrace"], rows)), "Greedy")
    assert [x.get_text() for x in axis.get_yticklabels()] == ["dqn", "retrace"]
    assert len(axis.patches) == 1


def test_colours_are_the_labels_own_in_any_order(drawn, tmp_path):
    found = []
    for names in (["dqn", "n-step-highway-dqn"], ["n-step-highway-dqn", "retrace", "dqn"]):
        axis = panel(drawn(folder(tmp_path, names)), "Score")
        found.append(dict(zip(names, (line.get_color() for line in axis.lines), strict=True)))
    for name in ("dqn", "n-step-highway-dqn"):
        assert found[0][name] == found[1][name] == figures.colour(name)


def test_twelve_labels_stay_legible(drawn, tmp_path):
    """Nothing that is written overlaps, the key stands beside the panels, and no two curves look alike."""
    figure = drawn(folder(tmp_path, MANY, evaluated(MANY, [0, 0.1])))
    figure.canvas.draw()
    for axis in (ax for ax in figure.axes if ax.get_visible()):
        for ticks in (axis.get_xticklabels(), axis.get_yticklabels()):
            boxes = [t.get_window_extent() for t in ticks if t.get_text() and _shown(t, axis)]
            assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes)), axis.get_title()
    (key,) = figure.legends
    assert len({text.get_text() for text in key.get_texts()}) == len(MANY)
    box = key.get_window_extent()
    assert not any(box.overlaps(ax.bbox) for ax in figure.axes if ax.get_visible())
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1
    lines = panel(figure, "Score").lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(MANY)


def _shown(text, axis):
    """Whether a tick's text stands at the panel: matplotlib keeps some beyond its limits, which it does not draw."""
    x, y = text.get_position()
    along = axis.get_xlim() if text in axis.get_xticklabels() else axis.get_ylim()
    return min(along) <= (x if text in axis.get_xticklabels() else y) <= max(along)


def test_depths_have_one_mark_in_every_panel(drawn, tmp_path):
    figure = drawn(folder(tmp_path, ["soft-highway-dqn"]))
    found = []
    for words in ("largest", "gate is open"):
        axis = panel(figure, words)
        found.append({line.get_label(): line.get_marker() for line in axis.lines if line.get_color() == "0.3"})
    assert found[1] == {"2-step": found[0]["2-step"], "to the end": found[0]["to the end"]}
    assert len(set(found[0].values())) == 3


def test_panels_are_those_the_files_have_numbers_for(drawn, tmp_path):
    titles = [ax.get_title() for ax in drawn(folder(tmp_path, ["dqn"])).axes if ax.get_visible()]
    assert titles == ["Score of training episodes", "Target minus what really followed"]


def test_means_and_bands_leave_out_what_is_missing():
    found = np.array([[1.0, math.nan, math.nan], [3.0, 4.0, math.nan]])
    np.testing.assert_array_equal(curves.mean(found), [2, 4, math.nan])
    np.testing.assert_array_equal(curves.band(found), ([1, 4, math.nan], [3, 4, math.nan]))


def test_a_folder_without_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is no training folder"):
        curves.draw(tmp_path)
    (tmp_path / "metrics.csv").write_text("step,algo,seed\n")
    with pytest.raises(ValueError, match="has no rows in its metrics"):
        curves.draw(tmp_path)


def test_a_long_title_stays_inside_its_figure():
    for columns, lines in ((1, 2), (5, 1)):
        figure, _ = figures.axes(columns, "Training score, the best k and n of each game, as in the paper (10 seeds)")
        heading = figure._suptitle.get_window_extent()
        assert 0 <= heading.x0 < heading.x1 <= figure.bbox.width
        assert len(figure.get_suptitle().splitlines()) == lines
