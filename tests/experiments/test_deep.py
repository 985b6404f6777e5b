"""Every experiment that trains networks, at smoke scale: rows with their provenance, figures, tables and verdicts."""

import pytest
import training

from highway_rl.experiments import base, claims, queue


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all of them: what one has run, the others have, too."""
    folder = tmp_path_factory.mktemp("deep")
    with pytest.MonkeyPatch.context() as patch:
        training.shortly(patch)
        assert queue.work(queue.deep(), "smoke", 0, folder)
        yield folder


@pytest.fixture(params=[experiment.name for experiment in queue.deep()])
def experiment(request):
    return base.find(request.param)


@pytest.mark.long
def test_rows_carry_their_provenance(experiment, out):
    rows = experiment.stored(out)
    assert rows
    told = {"id", "scale", "seed", "steps", "version", "commit", "code", "date", "device", "jax", "numpy", "seconds"}
    assert all(told <= set(row) for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.long
def test_figures_and_tables_come_from_rows_alone(experiment, out, tmp_path):
    rows = experiment.stored(out)
    figures = experiment.plot(rows, tmp_path)
    assert figures
    assert all(p.stat().st_size > 3_000 and p.read_bytes()[:4] == b"\x89PNG" for p in figures)
    tables = experiment.tables(rows)
    assert tables
    assert all(len(line) == len(table.columns) for table in tables for line in table.rows)


@pytest.mark.long
def test_each_claim_gets_a_verdict(experiment, out):
    for claim in claims.check(out, experiment):
        assert claim["verdict"] in (base.HOLDS, base.PARTLY, base.FAILS)
        assert claim["value"]


def test_without_runs_a_claim_is_not_yet_run_and_a_figure_says_how(experiment, tmp_path):
    (tmp_path / "deep").mkdir()
    assert {claim["verdict"] for claim in claims.check(tmp_path, experiment)} == {base.NOT_RUN}
    with pytest.raises(ValueError, match=f"highway-rl run {experiment.name}"):
        experiment.stored(tmp_path)


@pytest.mark.long
def test_nothing_is_left_to_do(out):
    asked = []
    assert queue.work(queue.deep(), "smoke", 0, out, say=asked.append)
    assert asked == []
