"""Numbers on the pages are those of the stored rows."""

import csv
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_gymnasium_s_own_tasks():
    page = (ROOT / "docs" / "gymnasium.md").read_text(encoding="utf-8")
    every = json.loads((ROOT / "results" / "gymnasium-tasks.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in every if "also" not in row]
    assert {"soft-highway-dqn", "stable-baselines3"} == {row["who"] for row in rows}

    def cell(found):
        good = sum(row["score"] >= row["enough"] for row in found)
        digits = 0 if found and abs(found[0]["enough"]) > 1 else 2
        scores, best = (", ".join(f"{row[name]:.{digits}f}" for row in found) for name in ("score", "training"))
        return f"{good}/{len(found)}: {scores} ({best})" if found else "–"

    key = lambda row: (row["task"], row["delay"], row["who"], row["steps"], str(row["also"]))  # noqa: E731
    named = [row for row in every if "also" in row]
    assert named
    for kind in {key(row) for row in named}:
        found = [row for row in named if key(row) == kind]
        task, _, who, steps, _ = kind
        named_ = ", ".join(f"{name}={str(x).lower()}" for name, x in found[0]["also"].items())
        assert f"| {task} | {who} | {named_} | {steps:,} | {cell(found)} |" in page
    for task, who, steps in {(row["task"], row["who"], row["steps"]) for row in rows}:
        mine = [row for row in rows if (row["task"], row["who"], row["steps"]) == (task, who, steps)]
        cells = [cell([row for row in mine if row["delay"] == delay]) for delay in ("no", "end")]
        start = f"| {task} | {who} | {steps:,} | {mine[0]['enough']:g} | "
        assert start + " | ".join(cells) + " |" in page


def milliseconds(seconds):
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.1 else f"{1e3 * seconds:.3g}"


def test_the_solver_beside_other_packages():
    page = (ROOT / "docs" / "solver.md").read_text(encoding="utf-8")
    table = json.loads((ROOT / "results" / "solver.json").read_text(encoding="utf-8"))
    assert set(table) == {"1e-06", "1e-10"}
    for error, cases in table.items():
        for case, found in cases.items():
            family, states, discount = case.split(":")
            rows = found["seconds"]
            others = [
                (rows[name]["seconds"], name) for name in rows if name.split()[0] not in ("gated", "gated,", "modified")
            ]
            mine = rows["gated"]["seconds"]
            theirs, who = min((pair for pair in others if pair[0]), default=(None, None))
            if theirs is None:
                most = found["limit"]
                told = f"{milliseconds(mine)} | none within {milliseconds(most)} | over {most / mine:.0f}"
            else:
                told = f"{milliseconds(mine)} | {milliseconds(theirs)} ({who}) | {theirs / mine:.1f}"
            assert f"| {family} | {int(states):,} | {discount} | {error} | {told} |" in page


def test_how_the_solver_grows():
    """On each machine: seconds at ten million states, and the exponents; with those of a single backup."""
    page = (ROOT / "docs" / "solver.md").read_text(encoding="utf-8")
    stored = {
        name: json.loads((ROOT / "results" / f"solver-{name}.json").read_text(encoding="utf-8"))
        for name in ("scaling", "scaling-x86", "scaling-h200", "backup-x86")
    }
    last = {name: found["rows"][-1] for name, found in stored.items()}
    assert {row["states"] for row in last.values()} == {10_000_000}
    assert f"take {last['scaling']['seconds']:.0f} s on two aarch64 cores" in page
    assert f"at most {last['scaling']['solve_gib']:.1f} GiB" in page
    assert f"on two x86 cores it is {last['scaling-x86']['seconds']:.0f} s" in page
    assert f"on an H200 {last['scaling-h200']['seconds']:.2f} s" in page
    each = [stored[name]["exponent"] for name in ("scaling", "scaling-x86", "scaling-h200")]
    assert "S^{:.2f}, S^{:.2f} and S^{:.2f}".format(*each) in page
    backup = stored["backup-x86"]
    assert f"like S^{backup['exponent']:.2f}, and like S^{backup['exponent_near']:.2f} where" in page


def test_steps_a_second_on_gymnasium_s_environments():
    page = (ROOT / "docs" / "gymnasium.md").read_text(encoding="utf-8")
    rows = json.loads((ROOT / "results" / "host-cpu-x86.json").read_text(encoding="utf-8"))["rows"]
    for task, envs in {(row["task"], row["envs"]): None for row in rows}:
        found = {row["who"]: row for row in rows if (row["task"], row["envs"]) == (task, envs)}
        theirs = found.pop("stable-baselines3")["per_s"]
        told = (f"{row['full_per_s']:,.0f} ({row['full_per_s'] / theirs:.1f})" for row in found.values())
        assert f"| {task} | {envs} | {theirs:,.0f} | {' | '.join(told)} |" in page


def test_dqn_beside_minatar_s_authors():
    """Means over the last million steps and over the last hundred episodes, and the lowest and highest seed of each."""
    page = (ROOT / "docs" / "deep.md").read_text(encoding="utf-8")
    for game in ("asterix", "breakout", "freeway", "seaquest", "space-invaders"):
        curves: dict[str, list] = {}
        with (ROOT / "results" / f"{game}-dqn-uniform" / "metrics.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["algo"].endswith("max_gradient=1e9"):
                    curve = curves.setdefault(row["seed"], [])
                    curve.append((int(row["step"]), int(row["episodes"]), float(row["score"])))
        assert len(curves) == 5

        def told(means):
            return f"{sum(means) / len(means):.1f} ({min(means):.1f} to {max(means):.1f})"

        def mean(reports):
            return sum(n * score for _, n, score in reports) / sum(n for _, n, _ in reports)

        def last_hundred(curve):
            return next(curve[-k:] for k in range(1, 99) if sum(n for _, n, _ in curve[-k:]) >= 100)

        million = [mean([r for r in curve if r[0] > 4_000_000]) for curve in curves.values()]
        hundred = [mean(last_hundred(curve)) for curve in curves.values()]
        assert f"| {game.replace('-', ' ').title()} | {told(million)} | {told(hundred)} |" in page
