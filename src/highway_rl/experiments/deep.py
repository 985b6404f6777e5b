"""Cells that are training runs: a config in, a row for each of its runs out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from highway_rl.experiments.base import Row
from highway_rl.runs import Config, fit
from highway_rl.runs.trials import as_deep


def rows_of_runs(config: Config) -> Iterator[Row]:
    """Trains a config, in memory, and gives for each of its runs the score of greedy test episodes and of those at the
    training ε, the score in training at the end, how far targets lie above what followed, and the largest value."""
    last: dict[tuple[str, int], Row] = {}

    def keep(news: dict[str, Any]) -> None:
        last.update({(row["algo"], row["seed"]): row for row in news.get("rows", ())})

    with as_deep():
        trained = fit(config, report=keep)
    tested = {(row["algo"], row["seed"], row["epsilon"] > 0): row for row in trained.scores}
    for label, seed in trained.setup.labels:
        end = last[label, seed]
        yield {
            "algo": label,
            "seed": seed,
            "greedy": tested[label, seed, False]["score"],
            "exploring": tested[label, seed, True]["score"],
            "training": end["score"],
            "bias": end["bias"],
            "largest": end["largest"],
            "broken": tested[label, seed, False]["broken"],
        }
