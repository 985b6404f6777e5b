"""Who listens while agents train. A callback has one method, `on_report(news)`; where it returns True, that is enough.

News are {"phase": …} when something long begins, {"step", "of", "speed", "rows"} at every report, with one row a run as
in metrics.csv, and {"stopped": …} of a run whose numbers broke.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from highway_rl import checks

News = dict[str, Any]
"""Something that happened."""


class Callback(Protocol):
    """Hears every report of a training run."""

    def on_report(self, news: News) -> bool | None:
        """True ends the training here: what there is, is saved and evaluated."""


class Told:
    """All who listen, as one function; `enough` once one of them has said so."""

    def __init__(self, report: Callable[[News], None], callbacks: Iterable[Callback]) -> None:
        self.report, self.callbacks = report, tuple(callbacks)
        self.enough = False
        for one in self.callbacks:
            if not callable(getattr(one, "on_report", None)):
                raise checks.refusal("callbacks", self.callbacks, "objects with a method on_report(news)")

    def __call__(self, news: News) -> None:
        self.report(news)
        said = [bool(one.on_report(news)) for one in self.callbacks]  # all of them hear it
        self.enough |= any(said)


class TargetScore:
    """Ends the training when the last `episodes` training episodes of every run have scored so much on average."""

    def __init__(self, score: float, episodes: int = 100) -> None:
        self.score = checks.number("score", score)
        self.episodes = checks.whole("episodes", episodes, 1)
        self.seen: dict[tuple[str, int], deque[tuple[float, int]]] = {}

    def on_report(self, news: News) -> bool:
        for row in news.get("rows", ()):
            mine = self.seen.setdefault((row["algo"], row["seed"]), deque())
            if row["episodes"]:
                mine.append((row["score"], int(row["episodes"])))
            while sum(n for _, n in mine) - mine[0][1] >= self.episodes if mine else False:
                mine.popleft()
        return "rows" in news and all(self._reached(found) for found in self.seen.values())

    def _reached(self, found: deque[tuple[float, int]]) -> bool:
        count = sum(n for _, n in found)
        return count >= self.episodes and sum(score * n for score, n in found) / count >= self.score


class WeightsAndBiases:
    """Sends every report to Weights & Biases, each run's numbers under its name; options are those of `wandb.init`."""

    def __init__(self, **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise ValueError("wandb is not here: install it with `pip install 'highway-rl[wandb]'`") from None
        self.run = wandb.init(**options)

    def on_report(self, news: News) -> None:
        for row in news.get("rows", ()):
            name = f"{row['algo']} seed {row['seed']}"
            numbers = {k: v for k, v in row.items() if isinstance(v, float | int) and k not in ("seed", "step")}
            self.run.log({f"{name}/{key}": value for key, value in numbers.items()}, step=int(row["step"]))


class Pruning:
    """Tells an Optuna trial the mean training score at every report, and ends it where its pruner says so."""

    def __init__(self, trial: Any) -> None:
        self.trial = trial

    def on_report(self, news: News) -> None:
        scores = [row["score"] for row in news.get("rows", ()) if row["episodes"]]
        if not scores:
            return
        self.trial.report(float(np.mean(scores)), int(news["step"]))
        if self.trial.should_prune():
            import optuna

            raise optuna.TrialPruned
