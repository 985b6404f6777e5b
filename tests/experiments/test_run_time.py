"""Run times: the other package's are those of the stored rows, and the verdict can fall either way."""

import json
from pathlib import Path

import pytest

from highway_rl.experiments import run_time
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY

RESULTS = Path(__file__).parents[2] / "results"


def test_the_other_packages_times_are_those_of_the_stored_rows():
    rows = json.loads((RESULTS / "dqn-peer-h200.json").read_text(encoding="utf-8"))["rows"]
    stored = {
        row["runs"]: row["us"] for row in rows if row["algo"] == "purejaxrl" and "H200" in row["provenance"]["device"]
    }
    assert pytest.approx(stored, rel=1e-5) == run_time.PEERS


@pytest.mark.parametrize(("highway", "trace", "verdict"), [(2.1, 6.9, HOLDS), (2.1, 1, PARTLY), (1, 1, FAILS)])
def test_the_verdict_is_by_the_papers_ratios(highway, trace, verdict):
    times = {"dqn": 1.0, "soft-highway-dqn": highway, "retrace": trace}
    rows = [
        {"algo": algo, "runs": 1, "seconds_a_million": x, "at_most": 1.1 * x, "timed_on": "this"}
        for algo, x in times.items()
    ]
    found = run_time.hours(rows)
    assert found.verdict == verdict
    assert f"Soft Highway DQN {highway:.2f} [{highway / 1.1:.2f}, {highway * 1.1:.2f}]" in found.value


def test_the_rows_of_another_package_are_said_to_be():
    rows = [{"algo": "dqn", "runs": 1, "seconds_a_million": 1.0, "an_agent": 1.0, "timed_on": "this"}]
    (table,), (note,) = run_time.tables(rows), run_time.notes(rows)
    assert len(table.rows) == len(rows) + len(run_time.PEERS)
    assert f"The {len(run_time.PEERS)} times of purejaxrl's DQN are none of this experiment's {len(rows)} rows" in note
    for place in ("results/dqn-peer-h200.json", "benchmarks/dqn_peer.py"):
        assert place in note
        assert (RESULTS.parent / place).exists()
