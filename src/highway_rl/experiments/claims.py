"""What the paper claims in numbers, and what the stored runs say about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from highway_rl.experiments.base import NOT_RUN, Experiment, Rows, Verdict, experiments
from highway_rl.records.rows import read_rows

STATEMENTS = {
    1: "Example MDP: 10 transitions, rewards -9 / 3 / 9 for red / orange / blue, discount 1, three policies alike",
    2: "Multi-step operator: Q(S_A,↗) settles at 3 for n = 2 and lower for n = 10, while the optimum is 9",
    3: "For n = 2 and n = 10 the greedy action at S_A is then the wrong one, ↘",
    4: "The n-step Highway operator settles at 9 for every n",
    5: "With n = 10 it does so in 3 iterations; blue always chooses n, red always 1, orange first n and at the end 1",
    6: "The Optimality operator needs 1 iteration where the Generalized one needs 3",
    7: "Highway operators contract at least as fast as Bellman's, with Q* the only fixed point, for any policies",
    8: "With threshold n1 = 0 values above Q* stay; with n1 > 1 the fixed point is too low",
    9: "Multi-Room: Highway VI needs fewer iterations and fewer samples than VI and PI, for every number of rooms",
    10: "Highway Q-learning solves Choice in 20 and Trace Back in 100 episodes at any delay; RUDDER needs thousands",
    11: "MinAtar-Delay: with the reward only at the end, Highway scores about 50 on Freeway and most rivals below 5",
    12: "Replacing the gate by max{3,n}, max{0,n} or nothing makes the agent fail",
    13: "n-step DQN gets worse as n grows, n-step Highway DQN better",
    14: "Softmax alpha between 0.0005 and 0.005 does well, infinity clearly worse",
    15: "More behavioural policies per state-action often help score and sample efficiency",
    16: "Retrace keeps up without delay and fails with it; its clipped ratios fade exponentially in depth",
    17: "Wall clock: Highway 2.1 times DQN, Retrace 6.9 times",
    18: "Highway above all rivals on almost all tasks, with delay and without; 10 seeds, 5 million steps",
    101: "Ours, not the paper's: the general preset learns seven small late-reward tasks, each in 9 of 10 seeds",
    102: "Ours, not the paper's: chosen by halves, every seed solves Choice and Trace Back in about 100 episodes",
    103: "Ours, not the paper's: the chooser grouped keeps values right under luck and loses nothing without it",
    104: "Ours, not the paper's: on delayed games a chooser brings targets nearer to what follows, at no loss of score",
}


@contextlib.contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Rows of another version of an experiment lack what is looked for: one sentence instead of a KeyError."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} lacks rows or columns of this version ({type(error).__name__}: {error}): "
            f"make it anew with `highway-rl run {path.stem}`"
        ) from error


def check(out: Path, only: Experiment | None = None) -> list[dict[str, Any]]:
    """Every claim as {id, statement, value, verdict, scale, command}, judged from the runs stored in `out`: of which
    scale these are, and what makes them again."""
    judges = {i: (e, judge) for e in experiments().values() for i, judge in e.claims.items()}
    kept: dict[str, tuple[Rows, dict[str, Any]]] = {}
    result = []
    for number in STATEMENTS:
        experiment, judge = judges.get(number, (None, None))
        if only is not None and experiment is not only and number not in only.claims:
            continue
        if experiment is None or judge is None:
            result.append(claim(number, Verdict("no experiment for it yet", NOT_RUN)))
            continue
        if experiment.name not in kept:
            kept[experiment.name] = stored(experiment, out)
        rows, facts = kept[experiment.name]
        how = f"highway-rl run {experiment.name}"
        if not rows:
            result.append(claim(number, Verdict(f"run it with: {how}", NOT_RUN), command=how))
            continue
        with fitting(experiment.path(out)):
            verdict = judge(rows)
        scale = (facts or rows[0]).get("scale")
        result.append(claim(number, verdict, scale, f"{how} --scale {scale}"))
    return result


def claim(number: int, verdict: Verdict, scale: str | None = None, command: str | None = None) -> dict[str, Any]:
    """A claim as `check` tells it."""
    told = {"id": number, "statement": STATEMENTS[number], "value": verdict.value, "verdict": verdict.verdict}
    return {**told, "scale": scale, "command": command}


def stored(experiment: Experiment, out: Path) -> tuple[Rows, dict[str, Any]]:
    """The rows and the facts of their file; of training runs, which carry them, only rows; none where none are yet."""
    if not experiment.path(out).exists():
        return [], {}
    if experiment.stages is None:
        return read_rows(experiment.path(out))  # what is no stored run is refused
    return experiment.found(out), {}
