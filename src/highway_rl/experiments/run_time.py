"""Run time: seconds a million steps take, by algorithm and by how many runs share a program, beside the paper's hours.

Timed are periods of 1,000 steps with their updates and the refresh, with a full store, after one to warm up. Preset
paper, k = 2.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from highway_rl.data import ring
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Row, Rows, Scale, Table, Verdict, select
from highway_rl.experiments.scores import parts, said
from highway_rl.records.figures import axes, log_ticks, look, save
from highway_rl.records.statistics import Interval
from highway_rl.runs import Config, setup
from highway_rl.runs.trials import as_deep

HOURS = {"dqn": 4.3, "n-step-dqn:n=4": 5.6, "soft-highway-dqn": 8.9, "retrace": 29.7}
"""The paper's hours for five million steps of one agent, on an RTX 2080 Ti."""
NAMES = dict(zip(HOURS, ("DQN", "n-step DQN, n = 4", "Soft Highway DQN", "Retrace(1)"), strict=True))
PEER, PEERS = "purejaxrl's DQN (k = 1, no delay)", {1: 147.464, 60: 939.371}
"""Another package's DQN in JAX on Breakout, on an H200: by runs in a program, the seconds a million steps of all of
them take. Rows of `benchmarks/dqn_peer.py`, `results/dqn-peer-h200.json`, which a test compares."""
TASKS: dict[Scale, tuple[str, str]] = {
    "smoke": ("harvest", ""),
    "quick": ("minatar/breakout", "end"),
    "paper": ("minatar/breakout", "end"),
}
RUNS: dict[Scale, tuple[int, ...]] = {"smoke": (1,), "quick": (1,), "paper": (1, 10, 60)}
ALGOS: dict[Scale, tuple[str, ...]] = {
    "smoke": ("dqn", "soft-highway-dqn"),
    "quick": tuple(HOURS),
    "paper": tuple(HOURS),
}


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    task, delay = TASKS[scale]
    return [
        {
            "task": task,
            "delay": delay,
            "algo": algo,
            "runs": runs,
            "seed": seed,
            "periods": 1 if scale == "smoke" else 5,
        }
        for runs in RUNS[scale]
        for algo in ALGOS[scale]
    ]


def run(task: str, delay: str, algo: str, runs: int, seed: int, periods: int) -> Iterable[Row]:
    """The best of so many periods that learn, and the worst."""
    with as_deep():
        config = Config(task, (algo,), seeds=runs, seed=seed, preset="paper", env={"delay": delay} if delay else {})
        program = setup(config).programs[0]
        state = program.start()()
        go = jax.jit(program.advance(), donate_argnums=0)
        schedule, (first, late) = program.schedule, (jnp.int32(0), program.schedule.periods)
        state, _ = go(state, first, first, jnp.bool_(False))
        full = jax.vmap(jax.vmap(lambda store: ring.repeated(store, schedule.refresh // schedule.num_envs)))
        state, spent = state._replace(store=jax.jit(full)(state.store)), []
        for period in range(late, late + 1 + periods):  # the first is to warm up
            begun = time.perf_counter()
            state, _ = jax.block_until_ready(go(state, jnp.int32(period), jnp.int32(0), jnp.bool_(False)))
            spent.append(time.perf_counter() - begun)
    device = jax.devices()[0].device_kind
    million, most = (one(spent[1:]) / schedule.refresh * 1e6 for one in (min, max))
    yield {"seconds_a_million": million, "at_most": most, "an_agent": million / runs, "timed_on": device}


def hours(rows: Rows) -> Verdict:
    """Claim 17: Highway 2.1 times DQN, Retrace 6.9 times."""
    words, ratios = [], []
    for runs in dict.fromkeys(row["runs"] for row in rows):
        base = select(rows, runs=runs, algo="dqn")[0]
        each = {row["algo"]: times(row, base) for row in select(rows, runs=runs)}
        none = Interval(0.0, 0.0, 0.0)
        ratios.append((each.get("soft-highway-dqn", none).value, each.get("retrace", none).value))
        told = ", ".join(f"{NAMES.get(algo, algo)} {said(x, 2)}" for algo, x in each.items() if algo != "dqn")
        words.append(f"{runs} {'run' if runs == 1 else 'runs'}: {told}")
    near = lambda x, y: 0.75 * y <= x <= 1.25 * y  # noqa: E731
    good = [(near(highway, 2.1), near(trace, 6.9)) for highway, trace in ratios]
    verdict = HOLDS if all(map(all, good)) else PARTLY if any(map(any, good)) else FAILS
    highway, trace = map(all, zip(*good, strict=True))
    held = parts({"Soft Highway DQN near the paper's 2.1": highway, "Retrace(1) near its 6.9": trace})
    of = "by the fastest periods, in brackets with the slowest of the one or the other"
    return Verdict(f"{held}times of DQN on {rows[0]['timed_on']}, {of}: {'; '.join(words)}", verdict)


def times(row: Row, base: Row) -> Interval[float]:
    """How many times as long as another, by the fastest period of each, and by how far periods differ."""
    fast, slow = (lambda r: r["seconds_a_million"]), (lambda r: r.get("at_most", r["seconds_a_million"]))
    return Interval(fast(row) / fast(base), fast(row) / slow(base), slow(row) / fast(base))


def plot(rows: Rows, out: Path) -> list[Path]:
    counts = list(dict.fromkeys(row["runs"] for row in rows))
    figure, (ax,) = axes(1, "Seconds a million steps take, for each agent", size=(7.0, 3.8))
    algos = list(dict.fromkeys(row["algo"] for row in rows))
    for i, algo in enumerate(algos):
        mine = [select(rows, algo=algo, runs=n)[0]["an_agent"] for n in counts]
        ax.plot(mine, [i + 0.22 * j for j in range(len(counts))], "o", ms=7, color=look(algo).colour)
        for j, (x, n) in enumerate(zip(mine, counts, strict=True)):
            words = f"{n} {'run' if n == 1 else 'runs'} in a program: {x:.3g} s"
            ax.annotate(words, (x, i + 0.22 * j), xytext=(6, -3), textcoords="offset points", fontsize=7)
        theirs = HOURS[algo] * 3600 / 5
        ax.plot(theirs, i, "x", ms=8, mew=2, color="0.35")
        ax.annotate(f"{theirs:,.0f} s", (theirs, i), xytext=(6, -3), textcoords="offset points", fontsize=7)
    for j, (n, seconds) in enumerate(PEERS.items()):
        place = seconds / n, len(algos) + 0.22 * j
        ax.plot(*place, "+", ms=9, mew=2, color="0.35")
        words = f"{n} {'run' if n == 1 else 'runs'} in a program, on an H200: {seconds / n:.3g} s"
        ax.annotate(words, place, xytext=(6, -3), textcoords="offset points", fontsize=7)
    ax.set_yticks(range(len(algos) + 1), [*(NAMES[algo] for algo in algos), PEER.replace(" (", "\n(")])
    ax.set(ylim=(len(algos) + 0.7, -0.5), xlabel="seconds (×: the paper's, on another machine)")
    log_ticks(ax, "x")
    low, high = ax.get_xlim()
    ax.set_xlim(low, high * 6)
    return [save(figure, out / "run-time.png")]


def tables(rows: Rows) -> list[Table]:
    lines = [
        (row["algo"], str(row["runs"]), f"{row['seconds_a_million']:.1f}", f"{row['an_agent']:.2f}",
         f"{HOURS[row['algo']] * 3600 / 5:,.0f}", row["timed_on"])
        for row in rows
    ]  # fmt: skip
    lines += [(PEER, str(n), f"{x:.1f}", f"{x / n:.2f}", "", "NVIDIA H200") for n, x in PEERS.items()]
    columns = ("algorithm", "runs in a program", "seconds a million steps", "for each agent", "the paper's", "device")
    return [Table("Run time", columns, lines)]


def notes(rows: Rows) -> list[str]:
    """Where the times of another package are from."""
    return [
        f"The {len(PEERS)} times of {PEER.partition(' (')[0]} are none of this experiment's {len(rows)} rows: they are"
        " those of results/dqn-peer-h200.json, made on an H200 with `python benchmarks/dqn_peer.py --peer FOLDER"
        " --peers purejaxrl --runs 60 1`; the head of that script says what FOLDER holds, and what is equal in the two"
        " programs and what is not."
    ]


EXPERIMENT = Experiment(
    name="run-time",
    paper="App. C.3",
    summary="seconds a million steps take, by algorithm and runs in a program",
    plot=plot,
    claims={17: hours},
    cells=cells,
    run=run,
    tables=tables,
    notes=notes,
)
