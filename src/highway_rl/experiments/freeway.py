"""Freeway-Delay, where the paper's order holds and its height does not: what keeps the chicken at the bottom.

Soft Highway DQN with the paper's settings, and with one of them changed or several; its rivals with what helps most.
A cell is a variant with its runs. Rows are of four kinds, by `count`:

    −1       a run's scores, and how its agent plays
    0, 1, …  what it thinks at the bottom of the road with so many crossings made, over all steps of play there
    −2       the same at every row of the road, with so many crossings `made`
    −3       the value of the bottom if all steps there were `told` that so many crossings are made

Not a figure of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from highway_rl.envs.minatar.freeway import BOTTOM, CLOCK
from highway_rl.envs.registry import DELAYED_DISCOUNT, make_env
from highway_rl.envs.wrappers import DelayedObservation, TimedState
from highway_rl.experiments.base import Experiment, Row, Rows, Scale, Table, select
from highway_rl.experiments.deep import as_deep
from highway_rl.experiments.freeway_play import COUNTS, along_the_road, at_the_bottom, bar, if_told, player
from highway_rl.experiments.freeway_words import COLUMNS, why
from highway_rl.records.figures import axes, in_order, key_below, legend, save
from highway_rl.runs import Config, fit
from highway_rl.runs.trials import last_quarter
from highway_rl.types import Env, Step

GAME, TIMED = "minatar/freeway", "highway_rl.experiments.freeway:timed"
LATE, BARS = {"delay": "end"}, {"parts": 100, "bars": True}


class Variant(NamedTuple):
    """What differs, and whether the paper has it: as its settings, or as one of those it leaves open."""

    theirs: bool
    algo: str = "soft-highway-dqn:k=1"
    task: str = GAME
    env: dict[str, Any] = LATE
    times: int = 1  # the others' steps


PAPER, FAR = "the paper's, k = 1", ":k=1,discount=0.999"
BARRED = "bars, γ = 0.999, 7.5 million steps"
LONGER = "soft-highway-dqn" + FAR
VARIANTS = {
    PAPER: Variant(True),
    "n-step Highway, n = ∞": Variant(True, "n-step-highway-dqn:n=end,k=1"),
    "k = 2": Variant(True, "soft-highway-dqn:k=2"),
    "γ = 0.999": Variant(False, LONGER),
    "γ = 0.9999": Variant(False, "soft-highway-dqn:k=1,discount=0.9999"),
    "160 episodes stored": Variant(False, "soft-highway-dqn:k=1,capacity=400000"),
    "time shown": Variant(False, task=TIMED, env={}),
    "time shown, γ = 0.999": Variant(False, LONGER, TIMED, {}),
    "time shown, γ = 0.9999": Variant(False, "soft-highway-dqn:k=1,discount=0.9999", TIMED, {}),
    "time shown, 160 episodes": Variant(False, "soft-highway-dqn:k=1,capacity=400000", TIMED, {}),
    "time, 160 episodes, γ = 0.999": Variant(False, LONGER + ",capacity=400000", TIMED, {}),
    "the count as a bar": Variant(False, task=TIMED, env={"parts": 1, "bars": True}),
    "count and time as bars, γ = 0.999": Variant(False, LONGER, TIMED, BARS),
    "bars, γ = 0.999, batches of 256": Variant(False, LONGER + ",batch_size=256", TIMED, BARS),
    BARRED: Variant(False, LONGER, TIMED, BARS, times=3),
    "paid every 2,000 steps": Variant(True, env={"delay": 2000}),
    "DQN: bars, γ = 0.999": Variant(False, "dqn" + FAR, TIMED, BARS),
    "n-step DQN, n = 2: bars, γ = 0.999": Variant(False, f"n-step-dqn{FAR},n=2", TIMED, BARS),
    "λ-return DQN: bars, γ = 0.999": Variant(False, "lambda-dqn" + FAR, TIMED, BARS),
    "Retrace(1): bars, γ = 0.999": Variant(False, "retrace" + FAR, TIMED, BARS),
    "DQN: the same, 7.5 million steps": Variant(False, "dqn" + FAR, TIMED, BARS, times=3),
    "n-step DQN: the same, 7.5 million": Variant(False, f"n-step-dqn{FAR},n=2", TIMED, BARS, times=3),
    "λ-return DQN: the same, 7.5 million": Variant(False, "lambda-dqn" + FAR, TIMED, BARS, times=3),
}
LINES = (PAPER, "γ = 0.9999", "160 episodes stored", "time shown, γ = 0.999", BARRED)
"""Variants whose thoughts are drawn."""
SIZES: dict[Scale, tuple[tuple[str, ...], int, int, int]] = {
    "smoke": (("time shown, γ = 0.999",), 1, 6_000, 2),
    "quick": ((PAPER,), 1, 100_000, 20),
    "paper": (tuple(VARIANTS), 5, 2_500_000, 100),
}
"""Which variants, seeds, steps, and episodes of a test."""
FIRST, WATCHED = 300, 20
"""The first seed. Episodes played at each ε, at most, to see where the chicken is."""
PARTS = 25
"""Places for the time, unless told otherwise."""


def timed(parts: int = PARTS, bars: bool = False) -> Env:
    """Freeway with all reward at the end, which shows the time: one of `parts` more places of the feature.

    With `bars` all places up to that one are lit, and the same for the crossings: ten looks much like nine.
    """
    env: Any = make_env(GAME, delay="end")
    length = -(-(CLOCK + 1) // parts)

    def shown(state: TimedState, obs: DelayedObservation) -> DelayedObservation:
        time = jnp.arange(parts) == jnp.minimum(state.elapsed // length, parts - 1)
        both = [bar(x) if bars else x for x in (obs.feature, time)]
        return DelayedObservation(obs.obs, jnp.concatenate(both))

    def reset(key: PRNGKeyArray) -> tuple[TimedState, DelayedObservation]:
        inner, obs = env.reset(key)
        state = TimedState(inner, jnp.int32(0))
        return state, shown(state, obs)

    def step(state: TimedState, action: Array, key: PRNGKeyArray) -> Step:
        out = env.step(state.inner, action, key)
        new = TimedState(out.state, state.elapsed + 1)
        return Step(new, shown(new, out.obs), out.reward, out.terminated, out.truncated)

    told = env.spec.observation
    wide: Any = jax.ShapeDtypeStruct((told.feature.shape[0] + parts,), bool)
    return env.wrapped(name="freeway-timed", observation=DelayedObservation(told.obs, wide), reset=reset, step=step)


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    names, seeds, steps, episodes = SIZES[scale]
    same = {"seeds": seeds, "first": FIRST + seed, "episodes": episodes}
    return [{"variant": name, "steps": steps * VARIANTS[name].times, **same} for name in names]


def run(variant: str, steps: int, seeds: int, first: int, episodes: int) -> Iterable[Row]:
    """The runs of a variant, and what their agents do."""
    _, algo, task, given, _ = VARIANTS[variant]
    curves: dict[int, Rows] = {}

    def keep(news: dict[str, Any]) -> None:
        for row in news.get("rows", ()):
            curves.setdefault(row["seed"], []).append(row)

    config = Config(
        task, (algo,), seeds=seeds, seed=first, steps=steps, preset="paper", episodes=episodes, env=dict(given),
    )  # fmt: skip
    with as_deep():
        trained = fit(config, report=keep)
        env: Any = trained.setup.env
        scores = {(row["seed"], row["epsilon"] == 0): row["score"] for row in trained.scores}
        (program,), (params,) = trained.setup.programs, trained.params
        play = player(program.agent, env, given.get("bars", False))
        for i, (_, seed) in enumerate(program.labels):
            own = jax.tree.map(lambda x, i=i: x[i], params)
            key = jax.random.split(jax.random.key(first), min(episodes, WATCHED))
            still, moved = (play(own, epsilon, key) for epsilon in (0.0, 0.1))
            curve = curves[seed]
            yield {
                "seed": seed,
                "count": -1,
                "greedy": scores[seed, True],
                "exploring": scores[seed, False],
                "training": last_quarter(curve),
                "largest": curve[-1]["largest"],
                "bias": curve[-1]["bias"],
                "bottom": float(np.mean(still.row == BOTTOM)),
                "bottom_exploring": float(np.mean(moved.row == BOTTOM)),
                "seen": int(moved.crossings.max()),
            }
            thought = at_the_bottom(moved)
            if variant in LINES:
                thought += [{"count": -2, **row} for row in along_the_road(moved)]
                thought += [{"count": -3, **row} for row in if_told(moved)]
            yield from ({"seed": seed, **row} for row in thought)


def kept(discount: float, clock: int = CLOCK) -> float:
    """x with V(s) = x·c at the bottom after c crossings, if the chicken stays there and time is hidden.

    The time left u may be anything up to `clock`, and the gate keeps the larger of two returns:

        x = mean over u of max(γ^u, γ·x)          (the end's, the 1-step one's)
    """
    end, x = discount ** np.arange(clock), 1.0
    for _ in range(100_000):
        new = float(np.maximum(end, discount * x).mean())
        if abs(new - x) < 1e-9:
            break
        x = new
    return x


def pays(discount: float, steps: int = 3 * BOTTOM) -> float:
    """Up to how many crossings c another one of `steps` is worth more than to stay, if V = x·c: γ^steps (c+1) > c.

    A move every third step, over nine rows and no car in the way, takes 27.
    """
    later = discount**steps
    return later / (1 - later)


def runs_of(rows: Rows) -> dict[str, Rows]:
    """By variant."""
    return {name: found for name in VARIANTS if (found := select(rows, variant=name, count=-1))}


def plot(rows: Rows, out: Path) -> list[Path]:
    """Every seed's scores by variant; then value and gap by crossings made."""
    runs = runs_of(rows)
    looks = in_order([name for name in runs if name in LINES])
    figure, grid = axes(3, "Freeway, reward at the end: settings changed", size=(5.0, 3.6))
    for i, found in enumerate(runs.values()):
        for name, mark in (("training", "o"), ("greedy", "x")):
            at = [i] * len(found)
            grid[0].plot([row[name] for row in found], at, mark, ms=5, color="0.2" if mark == "o" else "#d55e00")
    grid[0].set_yticks(range(len(runs)), list(runs), fontsize=8)
    grid[0].set(title="score: o training, × greedy", ylim=(len(runs) - 0.5, -0.5), xlim=(-1, 60))
    for name, look in looks.items():
        there = [row for row in rows if row["variant"] == name and row["count"] >= 0]
        counts = sorted({row["count"] for row in there})
        for ax, what in zip(grid[1:], ("value", "gap"), strict=True):
            means = [np.mean([row[what] for row in there if row["count"] == count]) for count in counts]
            ax.plot(counts, means, look.line, lw=1.4, color=look.colour, marker="" if len(counts) > 1 else "o", ms=4)
    most, slope = max((row["count"] for row in rows), default=0), kept(DELAYED_DISCOUNT)
    grid[1].plot([0, most], [0, slope * most], ls=":", color="0.4")
    grid[1].text(most, 0.75 * slope * most, f"{slope:.2f} × crossings", ha="right", va="top", fontsize=8, color="0.3")
    grid[1].set(title="value at the bottom", xlabel="crossings made")
    grid[2].axhline(0, color="0.6", lw=0.8, ls=":")
    grid[2].set(title="Q(up) − the best other action there (log scale)", xlabel="crossings made")
    grid[2].set_yscale("symlog", linthresh=1e-2)
    key_below(figure, looks)
    thought = [row for row in rows if row["count"] < -1]
    return [save(figure, out / "freeway.png"), *([thoughts(rows, out / "freeway-values.png")] if thought else [])]


def thoughts(rows: Rows, path: Path) -> Path:
    """The value along the road, of the runs that were seen on all of it with so many crossings made; and the value at
    the bottom by the number of crossings that is told."""
    names = [name for name in LINES if select(rows, variant=name, count=-3)]
    looks = in_order(list(LINES))
    figure, grid = axes(
        len(names) + 1,
        "Freeway, reward at the end: what the networks think",
        columns=min(3, len(names) + 1),
        size=(4.6, 3.4),
    )
    for ax, name in zip(grid, names, strict=False):
        for made in range(0, COUNTS, 10):
            there = select(rows, variant=name, count=-2, made=made)
            runs = [select(there, seed=seed) for seed in sorted({row["seed"] for row in there})]
            whole = [sorted(run, key=lambda row: row["row"]) for run in runs if len(run) == BOTTOM]
            if whole:
                means = np.mean([[row["value"] for row in run] for run in whole], axis=0)
                above = [BOTTOM - row["row"] for row in whole[0]]
                ax.plot(above, means, "o-", ms=3, color="0.25")
                ax.text(max(above) + 0.2, means[0], f"{made} made", va="center", fontsize=8)
        ax.set(title=name, xlabel="rows above the bottom", ylabel="value", xlim=(-0.4, BOTTOM + 0.8))
        ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
    for name in names:
        there = select(rows, variant=name, count=-3)
        told = sorted({row["told"] for row in there})
        means = [np.mean([row["value"] for row in there if row["told"] == c]) for c in told]
        grid[-1].plot(told, means, looks[name].line, color=looks[name].colour, label=name)
    grid[-1].set(title="value at the bottom if told so many crossings", xlabel="told")
    legend(grid[-1])
    return save(figure, path)


def tables(rows: Rows) -> list[Table]:
    """A line a variant."""
    scored = ("training", "greedy", "at ε = 0.1", "largest value")
    columns = ("variant", "whose", *scored, "at the bottom, greedy", "up is best there")
    lines = []
    for name, found in runs_of(rows).items():
        mean = lambda what, found=found: f"{np.mean([row[what] for row in found]):.1f}"  # noqa: E731
        there = [row for row in rows if row["variant"] == name and row["count"] >= 0]
        visits = np.array([row["steps_there"] for row in there])
        share = float(np.average([row["share"] for row in there], weights=visits)) if there else float("nan")
        bottom = np.mean([row["bottom"] for row in found])
        scores = [mean(what) for what in ("training", "greedy", "exploring", "largest")]
        whose = "the paper's" if VARIANTS[name].theirs else "ours"
        lines.append((name, whose, *scores, f"{bottom:.0%}", f"{share:.0%}"))
    return [Table("Freeway-Delay, settings changed", columns, lines)]


def notes(rows: Rows) -> list[str]:
    runs, discount = runs_of(rows), DELAYED_DISCOUNT
    first, barred = (runs.get(name, []) for name in (PAPER, BARRED))
    return [why(first, barred, discount, kept(discount), pays(discount)), COLUMNS]


EXPERIMENT = Experiment(
    name="freeway",
    paper="none",
    summary="why Freeway-Delay stays below the paper's height, and what reaches it",
    cells=cells,
    run=run,
    plot=plot,
    claims={},
    tables=tables,
    notes=notes,
    cost=lambda cell: float(cell["steps"] * cell["seeds"]),
    networks=True,
)
