"""The main comparison: six targets on five MinAtar games, the reward as the game pays it or all at the end.

A method's k (and its n) is chosen by a screen, as the paper does: short runs of every setting, judged by the training
score of their last quarter. What was chosen is trained for long with other seeds, and shown twice: with the best
setting of each game, as the paper shows it, and with one setting for all games.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from highway_rl.experiments.base import Rows, Scale, Stage
from highway_rl.runs.trials import Trial

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
RANDOM = dict(zip(GAMES, (0.51, 0.48, 0.10, 0.09, 2.9), strict=True))
"""What random play with all six actions scores."""
LATE = "highway_rl.envs.host.crossroads:Crossroads"
"""Small, and late enough that one step at a time does not get there. With an inn, which is worth more than what most
of those who pass it find, an average over what was tried does not get there either."""
DELAYED, PLAIN, INN = "delay=end", "", "inn=0.7"
HIGHWAY = ("Soft Highway DQN", "n-step Highway DQN")
SCREEN_SEED = 1000
"""The first seed of the screen: no final run has it."""


class Size(NamedTuple):
    """How much of it: tasks and what is done to them, what the screen tries, and how long and how often."""

    tasks: tuple[str, ...]
    envs: tuple[str, ...]
    preset: str
    ks: tuple[int, ...]
    depths: tuple[int | str, ...]
    screen_steps: int
    screen_seeds: int
    steps: dict[str, int]
    seeds: int
    more_seeds: int
    episodes: int


SIZES: dict[Scale, Size] = {
    "smoke": Size(("harvest",), (PLAIN,), "general", (2,), (3,), 0, 0, {PLAIN: 1_500}, 1, 0, 5),
    "quick": Size((LATE,), (INN,), "general", (1, 2), (3, "end"), 8_000, 1, {INN: 8_000}, 3, 0, 50),
    "paper": Size(
        tuple(f"minatar/{game}" for game in GAMES), (DELAYED, PLAIN), "paper", (1, 2, 4), (2, 3, 4, 5, 8, 16, "end"),
        1_000_000, 2, {DELAYED: 5_000_000, PLAIN: 2_500_000}, 5, 5, 100,
    ),
}  # fmt: skip


def methods(size: Size) -> dict[str, tuple[str, ...]]:
    """Each method by its name in the figures, as the texts of its settings beside k."""
    return {
        "DQN": ("dqn",),
        "n-step DQN": tuple(f"n-step-dqn:n={n}" for n in size.depths),
        "λ-return DQN": ("lambda-dqn",),
        "Retrace(1)": ("retrace",),
        "n-step Highway DQN": tuple(f"n-step-highway-dqn:n={n}" for n in size.depths if n in (3, "end")),
        "Soft Highway DQN": ("soft-highway-dqn",),
    }


class Setting(NamedTuple):
    """What the screen chooses for a method: the text of its algorithm, and k."""

    algo: str
    k: int | None


def screen(size: Size, task: str, env: str, seed: int) -> list[Trial]:
    algos = [algo for texts in methods(size).values() for algo in texts]
    return [
        Trial(task, env, algo, k, size.screen_steps, SCREEN_SEED + seed + i, size.preset, size.episodes)
        for k in size.ks
        for algo in algos
        for i in range(size.screen_seeds)
    ]


def screened(rows: Rows, size: Size, task: str, env: str, seed: int) -> dict[Setting, float] | None:
    """The training score of every setting, a mean over seeds; None while the screen is not complete. Without seeds
    there is no screen, and nothing to choose from."""
    if not size.screen_seeds:
        return {Setting(algo, k): 0.0 for texts in methods(size).values() for algo in texts for k in size.ks}
    by_id = {row["id"]: row for row in rows}
    found: dict[Setting, list[float]] = {}
    for trial in screen(size, task, env, seed):
        if trial.id not in by_id:
            return None
        score = by_id[trial.id]["training"]
        found.setdefault(Setting(trial.algo, trial.k), []).append(-np.inf if score is None else score)
    return {setting: float(np.mean(scores)) for setting, scores in found.items()}


def best(scores: dict[Setting, float], texts: tuple[str, ...]) -> Setting:
    """The best setting of a method; of equal ones the first."""
    return max((s for s in scores if s.algo in texts), key=lambda s: scores[s])


def chosen(rows: Rows, size: Size, env: str, seed: int) -> dict[str, dict[str, Setting]]:
    """By task, then by method: the best setting, for every task whose screen is complete."""
    found = {}
    for task in size.tasks:
        scores = screened(rows, size, task, env, seed)
        if scores is not None:
            found[task] = {name: best(scores, texts) for name, texts in methods(size).items()}
    return found


def for_all(rows: Rows, size: Size, env: str, seed: int) -> dict[str, Setting] | None:
    """By method: the setting with the best mean over all games, each game's scores on the way from random play to the
    best of its screen; None while a screen is not complete."""
    ways: dict[Setting, list[float]] = {}
    for task in size.tasks:
        scores = screened(rows, size, task, env, seed)
        if scores is None:
            return None
        low = RANDOM.get(task.removeprefix("minatar/"), 0.0)
        high = max(scores.values())
        for setting, score in scores.items():
            ways.setdefault(setting, []).append((score - low) / (high - low) if high > low else 0.0)
    means = {setting: float(np.mean(way)) for setting, way in ways.items()}
    return {name: best(means, texts) for name, texts in methods(size).items()}


def final(size: Size, task: str, env: str, settings: list[Setting], seeds: range) -> list[Trial]:
    steps = size.steps[env]
    return [
        Trial(task, env, s.algo, s.k, steps, seed, size.preset, size.episodes)
        for s in dict.fromkeys(settings)
        for seed in seeds
    ]


def when(scale: Scale, order: int) -> int:
    """The place of a stage in the queue; small runs all come together, in as few programs as they need."""
    return order if scale == "paper" else 1


def stages(scale: Scale, seed: int, rows: Rows) -> list[Stage]:
    """The screen with delay first, then what it chose; then without delay; more seeds last."""
    size = SIZES[scale]
    found = []
    for env, order in zip(size.envs, (10, 50), strict=False):
        for task in size.tasks:
            found.append(Stage(when(scale, order), screen(size, task, env, seed)))
        picks, fixed = chosen(rows, size, env, seed), for_all(rows, size, env, seed)
        for later, settings_of in ((1, picks), (2, dict.fromkeys(size.tasks, fixed) if fixed else {})):
            for task, settings in settings_of.items():
                wanted = list(settings.values())
                found.append(
                    Stage(when(scale, order + later), final(size, task, env, wanted, range(seed, seed + size.seeds)))
                )
                more = range(seed + size.seeds, seed + size.seeds + size.more_seeds)
                found.append(Stage(when(scale, 90 + later), final(size, task, env, wanted, more)))
    return found


def about(rows: Rows) -> tuple[Size, int]:
    """The size and the first seed that rows were made with."""
    return SIZES[rows[0]["scale"]], int(rows[0]["first_seed"])


def finals(rows: Rows, env: str, view: str) -> dict[str, dict[str, Rows]]:
    """The long runs of one view, by method and task: of every task in which each method has some."""
    size, seed = about(rows)
    fixed = for_all(rows, size, env, seed)
    settings = chosen(rows, size, env, seed) if view == "best" else dict.fromkeys(size.tasks, fixed or {})
    mine = [row for row in rows if row["env"] == env and row["seed"] < SCREEN_SEED]
    runs: dict[str, dict[str, Rows]] = {}
    for task, picks in settings.items():
        found = {
            name: [row for row in mine if (row["task"], row["algo"], row["k"]) == (task, *pick)]
            for name, pick in picks.items()
        }
        if found and all(found.values()):
            for name, its in found.items():
                runs.setdefault(name, {})[task] = sorted(its, key=lambda row: row["seed"])
    return runs


def title(task: str, env: str) -> str:
    name = task.removeprefix("minatar/").rpartition(":")[2].replace("_", " ").title()
    return name + ("-Delay" if env == DELAYED else "")
