"""What the main comparison says of the paper's claims."""

from __future__ import annotations

import numpy as np

from highway_rl.experiments.base import FAILS, HOLDS, NOT_RUN, PARTLY, Rows, Verdict
from highway_rl.experiments.main import DELAYED, HIGHWAY, about, finals, title
from highway_rl.experiments.scores import above, average, parts, said, targets, values

TARGETS = "What the targets were"
"""The table of it, for every method and game."""


def freeway(rows: Rows) -> Verdict:
    """Claim 11: about 50 for Highway where most of the others stay below 5, in training or a test."""
    size, _ = about(rows)
    env = size.envs[0]
    runs = finals(rows, env, "best")
    tasks = next(iter(runs.values()), {})
    task = next(
        (t for t in tasks if t.endswith("freeway")),
        None if size.tasks[0].startswith("minatar") else next(iter(tasks), None),
    )
    if task is None:
        return Verdict("the long runs on Freeway-Delay are still to come", NOT_RUN)
    tests = {"training": "in training", "greedy": "greedy", "exploring": "at ε"}
    found = {name: {test: average(by_task[task], test) for test in tests} for name, by_task in runs.items()}
    value = "; ".join(
        f"{name} {', '.join(f'{said(x)} {tests[test]}' for test, x in of.items())}" for name, of in found.items()
    )
    best = {name: max((x.value for x in of.values() if x), default=-np.inf) for name, of in found.items()}
    ours, theirs = max(best[name] for name in HIGHWAY), [x for name, x in best.items() if name not in HIGHWAY]
    low = 2 * sum(x < 5 for x in theirs) > len(theirs)
    verdict = HOLDS if ours >= 40 and low else PARTLY if ours > max(theirs) else FAILS
    held = {
        "Highway above every rival": ours > max(theirs),
        "most rivals below 5": low,
        f"about 50 (Highway's best is {ours:.0f})": ours >= 40,
    }
    seen = in_targets(runs["Soft Highway DQN"][task])
    told = f"{value}; {seen} (every method: table “{TARGETS}, {late(env)}”)"
    return Verdict(f"{parts(held)}{title(task, env)}, {count(rows, env, task)}: {told}", verdict)


def in_targets(rows: Rows) -> str:
    """What goes with the scores of Soft Highway DQN: gate, bias and largest value."""
    opened, above_, largest = targets(rows)
    gate = f"its longest gate is open at {list(opened.values())[-1]:.1%} of the steps, " if opened else ""
    return (
        f"Soft Highway DQN at the end of training: {gate}its largest value is {largest:.1f}, both at the last report,"
        f" and its targets lie {above_:.1f} above what followed, over the last tenth"
    )


def count(rows: Rows, env: str, task: str | None = None) -> str:
    """How many seeds and steps the final runs have, of one task or of all."""
    runs = finals(rows, env, "best")
    its = [found for by_task in runs.values() for name, found in by_task.items() if task in (None, name)]
    steps = {row["steps"] for found in its for row in found}
    least, most = min(map(len, its)), max(map(len, its))
    return f"{least if least == most else f'{least} to {most}'} seeds, {max(steps):,} steps"


def comparison(rows: Rows) -> Verdict:
    """Claim 18: Highway above every rival, over all games with delay, and over all without."""
    size, _ = about(rows)
    found = {env: _compared(rows, env) for env in size.envs if finals(rows, env, "best")}
    if size.envs[0] not in found:
        return Verdict("the long runs are still to come; the screens are stored", NOT_RUN)
    whole = all(env in found and found[env][1] for env in size.envs)
    least = [least for *_, least in found.values()]
    verdict = HOLDS if whole and min(least) >= 0.75 else PARTLY if max(least) >= 0.5 else FAILS
    held = {f"{late(env)}, above every rival": one >= 0.75 for env, (*_, one) in found.items()}
    held |= {"ten seeds, all tasks and five million steps with both": whole}
    return Verdict(parts(held) + "; ".join(words for words, *_ in found.values()), verdict)


def late(env: str) -> str:
    return "reward at the end" if env == DELAYED else "reward as the task pays it"


def why(runs: dict[str, dict[str, Rows]]) -> str:
    """What goes with the scores: how often the longest gate is open, and how far targets lie above what followed."""
    spans = []
    for name, what in (("Soft Highway DQN", "its longest gate open at"), ("n-step DQN", "")):
        found = [targets(rows) for rows in runs[name].values()]
        bias = [one[1] for one in found]
        gates = [list(opened.values())[-1] for opened, *_ in found if opened]
        opened = f"{what} {min(gates):.1%} to {max(gates):.1%} of the steps, " if what and gates else ""
        spans.append(f"{name}: {opened}targets {min(bias):.1f} to {max(bias):.1f} above what followed")
    return (
        f"at the end of training, by game (gates at the last report, targets over the last tenth): {'; '.join(spans)}"
    )


def _compared(rows: Rows, env: str) -> tuple[str, bool, float]:
    """Every rival's probability of being below, whether it is as much as the paper ran, and the least probability of
    the better Highway agent."""
    size, _ = about(rows)
    runs = finals(rows, env, "best")
    tasks = list(next(iter(runs.values())))
    rivals = [name for name in runs if name not in HIGHWAY]
    likely = {name: [above(runs[name], runs[rival], "greedy") for rival in rivals] for name in HIGHWAY}
    ahead = 0
    for task in tasks:
        means = {name: np.mean(values(by_task[task], "greedy") or [-np.inf]) for name, by_task in runs.items()}
        ahead += max(means, key=lambda name: means[name]) in HIGHWAY
    words = "; ".join(
        f"P({name} > {rival}) = {said(one, 2)}"
        for name, each in likely.items()
        for rival, one in zip(rivals, each, strict=True)
    )
    least = max(min(one.value if one else 0.0 for one in each) for each in likely.values())
    seeds = min(len(found) for by_task in runs.values() for found in by_task.values())
    whole = seeds >= 10 and len(tasks) == len(size.tasks) and size.steps[env] >= 5_000_000
    much = f"{late(env)}, {len(tasks)} of {len(size.tasks)} tasks, {count(rows, env)}"
    told = f"{much}: a Highway agent has the best mean greedy score on {ahead}; {words}; {why(runs)}"
    return told, whole, least
