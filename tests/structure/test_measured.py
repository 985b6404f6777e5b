"""Numbers on the pages are those of the stored rows."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_gymnasium_s_own_tasks():
    page = (ROOT / "docs" / "gymnasium.md").read_text(encoding="utf-8")
    rows = json.loads((ROOT / "results" / "gymnasium-tasks.json").read_text(encoding="utf-8"))["rows"]
    assert {"soft-highway-dqn", "stable-baselines3"} == {row["who"] for row in rows}
    for task, who in {(row["task"], row["who"]) for row in rows}:
        cells = []
        for delay in ("no", "end"):
            found = [row for row in rows if (row["task"], row["who"], row["delay"]) == (task, who, delay)]
            good = sum(row["score"] >= row["enough"] for row in found)
            scores, best = (", ".join(f"{row[name]:.0f}" for row in found) for name in ("score", "training"))
            cells.append(f"{good}/{len(found)}: {scores} ({best})")
        start = f"| {task} | {who} | {found[0]['steps']:,} | {found[0]['enough']:.0f} | "
        assert start + " | ".join(cells) + " |" in page
