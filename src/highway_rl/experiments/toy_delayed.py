"""Learning with late rewards: episodes until Trace Back and Choice are solved, by method and delay.

A cell is a task, a delay and a method, with all seeds in one program. Both meanings of "solved" are stored: the
greedy policy is optimal and stays so for 10 episodes; or, as in RUDDER, a moving average of right first actions
reaches 1 − ε. A seed that is not solved by the cap counts as the cap, and the figure says so. RUDDER's published
medians are drawn beside ours.

A second set of cells asks what the maximum over noisy returns costs: how often Highway Q-learning prefers the worse
branch when that branch has the larger variance, by rollouts per policy and softmax temperature, and without the gate.

Paper: Fig. 5, Sec. 6.2, App. C.2.
"""

from __future__ import annotations

import concurrent.futures
import functools
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.envs import make_task
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Row, Rows, Scale, Verdict, select
from highway_rl.experiments.toy_delayed_plot import PUBLISHED, plot
from highway_rl.tabular import agent as tabular
from highway_rl.tabular import rudder
from highway_rl.tabular.loop import COMPILER, Learner, trainer, training
from highway_rl.types import NEVER, DiscreteEnv

LEARNING_RATE = {"trace-back": 0.08, "choice": 0.1}
"""Of every table but Highway's, whose updates replace. Not published; with 0.08 Q(λ) on Trace Back lands near RUDDER's
curve, and Choice is calibrated with 0.1."""
AVERAGE_RATE = {"trace-back": 0.01, "choice": 0.001}
"""Of RUDDER's moving average; not published. 0.001 alone costs about 2,170 episodes, so only Choice can have it."""

LEARNERS: dict[str, Callable[[DiscreteEnv, float], Learner]] = {
    "Highway Q-learning": lambda env, rate: tabular.learner(env, tabular.highway_q_learning(env.horizon)),
    "Monte Carlo": lambda env, rate: tabular.learner(env, tabular.monte_carlo(learning_rate=rate)),
    "RUDDER": lambda env, rate: rudder.learner(env, rudder.rudder(learning_rate=rate)),
    "RUDDER + Q(λ)": lambda env, rate: rudder.learner(env, rudder.rudder_q_lambda(0.9, learning_rate=rate)),
    "Q(λ)": lambda env, rate: tabular.learner(env, tabular.watkins_q_lambda(0.9, learning_rate=rate)),
    "SARSA(λ)": lambda env, rate: tabular.learner(env, tabular.sarsa_lambda(0.9, learning_rate=rate)),
}
DELAYS: dict[str, dict[str, tuple[int, ...]]] = {
    "smoke": {"trace-back": (6,), "choice": (10,)},
    "quick": {"trace-back": (6, 10, 15, 25), "choice": (10, 15, 20, 30)},
    "paper": {
        "trace-back": (6, 8, 10, 12, 15, 17, 20, 22, 25, 50, 100),
        "choice": (10, 15, 20, 25, 30, 35, 40, 45, 50, 100, 500),
    },
}
SEEDS = {"smoke": 2, "quick": 20, "paper": 100}
STEPS = {"smoke": 300, "quick": 150_000, "paper": 8_000_000}
"""Most steps of a seed: the cap is this over the delay, in episodes."""
CAPS = {"Highway Q-learning": 3000, "RUDDER": 20_000, "RUDDER + Q(λ)": 20_000}
"""Lower caps, in episodes. Past 3,000 the choice of Highway Q-learning's memory is settled."""
EXPECTED: dict[tuple[str, str], tuple[float, float]] = {
    ("trace-back", "Highway Q-learning"): (900, 0.0),
    ("trace-back", "Monte Carlo"): (2500, 0.0),
    ("trace-back", "Q(λ)"): (55_000, 2.4),
    ("trace-back", "SARSA(λ)"): (60_000, 4.5),
    ("choice", "Highway Q-learning"): (3000, 0.0),
    ("choice", "Monte Carlo"): (60_000, 0.86),
    ("choice", "Q(λ)"): (4000, 1.5),
    ("choice", "SARSA(λ)"): (4000, 1.5),
}
"""Roughly how many episodes the slowest seed needs at delay 10, and with which power of the delay that grows."""

ROLLOUTS = {"smoke": (2,), "quick": (1, 16), "paper": (1, 2, 4, 8, 16, 32)}
ALPHAS = (math.inf, 10.0, 1.0, 0.3, 0.1, 0.0)
POLICIES = {"smoke": 32, "quick": 32, "paper": 128}


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    """Cheap cells first; smoke leaves methods and a task out, because compiling is what takes its time."""
    found: list[dict[str, Any]] = []
    for task, delays in DELAYS[scale].items():
        for delay in delays:
            for method in list(LEARNERS)[: None if scale != "smoke" else 3 if task == "trace-back" else 1]:
                if delay > 25 and task == "trace-back" and method in ("Q(λ)", "SARSA(λ)"):
                    continue
                cap = min(STEPS[scale] // delay, CAPS.get(method, NEVER))
                found += parts({"kind": "solve", "task": task, "delay": delay, "method": method, "cap": cap}, scale)
    for task in ("choice", "watch-repair")[scale == "smoke" :]:
        for rollouts in ROLLOUTS[scale]:
            cell = {"kind": "noise", "task": task, "delay": 10, "rollouts": rollouts}
            found.append({**cell, "cap": POLICIES[scale] * rollouts, "first": 0, "seeds": SEEDS[scale]})
    found.sort(key=cost)
    return [{**cell, "base_seed": seed} for cell in found]


def parts(cell: dict[str, Any], scale: Scale) -> list[dict[str, Any]]:
    """The cell, its seeds shared out evenly if it would take a core more than five minutes."""
    seeds = SEEDS[scale]
    whole = {**cell, "first": 0, "seeds": seeds}
    count = next((n for n in (1, 2, 5) if cost(whole) / n < 300), 10) if scale == "paper" else 1
    return [{**whole, "first": i * seeds // count, "seeds": seeds // count} for i in range(count)]


def cost(cell: dict[str, Any]) -> float:
    """About how many seconds of one core the cell takes, by counting steps."""
    delay, seeds = cell["delay"], cell["seeds"]
    if cell["kind"] == "noise":
        step = 3e-6 + 1.5e-8 * cell["rollouts"] * delay
        return float(10 + step * (len(ALPHAS) + 1) * cell["cap"] * delay * seeds)
    base, power = EXPECTED.get((cell["task"], cell["method"]), (2000, 0.3))
    episodes = min(cell["cap"], base * (delay / 10) ** power)
    highway, learned = cell["method"] == "Highway Q-learning", cell["method"].startswith("RUDDER")
    step = 3e-6 + 3e-8 * delay if highway else 5e-6 if learned else 7e-7
    return float((10 if learned else 4) + step * episodes * delay * seeds)


def cores() -> int:
    """How many there are to use; 1 in a worker, which has its core."""
    return int(os.environ.get("NPROC") or os.cpu_count() or 1)


def run(kind: str, base_seed: int, first: int, seeds: int, **cell: Any) -> Iterable[Row]:
    """A row per seed ("solve"), or per softmax temperature ("noise")."""
    numbers = jnp.arange(first, first + seeds, dtype=jnp.uint32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(base_seed), numbers)
    return _solve(keys, first, **cell) if kind == "solve" else _noise(keys, **cell)


@functools.lru_cache(maxsize=8)
def _solver(task: str, delay: int, method: str, cap: int) -> Any:
    env = make_task(task, delay=delay)
    learner = LEARNERS[method](env, LEARNING_RATE[task])
    return trainer(env, learner, max_episodes=cap, average_rate=AVERAGE_RATE[task], keep=lambda memory: ())


def _solve(keys: Any, first: int, task: str, delay: int, method: str, cap: int) -> Iterable[Row]:
    """Highway's seeds go by tens, which need less memory and waiting; the groups run side by side."""
    size = 10 if method == "Highway Q-learning" and keys.shape[0] % 10 == 0 else keys.shape[0]
    groups = list(keys.reshape(-1, size))
    # In single precision values that should differ tie, ties count as greedy, and Q(λ) learns up to twice as fast.
    with jax.enable_x64(not method.startswith("RUDDER")):
        program = _solver(task, delay, method, cap).lower(groups[0]).compile()
    with concurrent.futures.ThreadPoolExecutor(cores()) as pool:
        learned = list(pool.map(lambda group: jax.block_until_ready(program(group)), groups))
    columns = [np.concatenate(x) for x in zip(*((g.greedy, g.average, g.right) for g in learned), strict=True)]
    for seed, (greedy, average, right) in enumerate(zip(*columns, strict=True), first):
        yield {
            "seed": seed,
            "greedy": min(int(greedy), cap),
            "greedy_solved": int(greedy) < NEVER,
            "average": min(int(average), cap),
            "average_solved": int(average) < NEVER,
            "right": round(float(right), 4),
        }


@functools.lru_cache(maxsize=4)
def _noisy(task: str, delay: int, rollouts: int, cap: int, gate_depth: int | None) -> Callable[..., Any]:
    """Final values at the first states of many seeds, for each softmax alpha.

    With more rollouts per policy there are fewer policies for the same episodes; updates grow with them, so that
    every setting learns as much per episode.
    """
    env = make_task(task, delay=delay, **({"noise": (0.0, 4.0)} if task == "choice" else {}))
    settings: Any = {"rollouts": rollouts, "updates": rollouts * delay, "capacity": cap, "gate_depth": gate_depth}

    def final(alpha: Any, keys: Any) -> Any:
        agent = tabular.highway_q_learning(delay, alpha=alpha, **settings)
        learn = training(env, tabular.learner(env, agent), max_episodes=cap, until="cap", keep=lambda m: m.q[:4])
        return learn(keys).kept

    return jax.jit(
        lambda alphas, keys: jax.lax.map(lambda alpha: final(alpha, keys), alphas), compiler_options=COMPILER
    )


def _noise(keys: Any, task: str, delay: int, rollouts: int, cap: int) -> Iterable[Row]:
    """Shares of seeds (and brands) that prefer the worse branch, and that leave the better one; ties are neither."""
    for gate_depth, alphas in ((1, ALPHAS), (None, (0.0,))):
        q = np.asarray(_noisy(task, delay, rollouts, cap, gate_depth)(jnp.array(alphas, float), keys))
        # Q(worse) − Q(better). Choice: subtree 1 is the worse, noisier one. Watch: brands 0 and 3 are not worth it.
        lead = q[..., 1] - q[..., 0]
        losing, gaining = (
            (lead[..., :1], -lead[..., :1]) if task == "choice" else (lead[..., [0, 3]], lead[..., [1, 2]])
        )
        for i, alpha in enumerate(alphas):
            row = {"alpha": str(alpha), "gate": gate_depth is not None, "lead": float(losing[i].mean())}
            yield {**row, "wrong": float((losing[i] > 0).mean()), "missed": float((gaining[i] < 0).mean())}


def summary(rows: Rows, task: str, method: str, rule: str) -> dict[int, dict[str, float]]:
    """By delay: mean, deviation, median, 40 % and 60 % quantiles, the share of seeds at the cap."""
    found: dict[int, dict[str, float]] = {}
    by_delay: dict[int, Rows] = {}
    for row in select(rows, method=method, task=task, kind="solve"):
        by_delay.setdefault(row["delay"], []).append(row)
    for delay, here in sorted(by_delay.items()):
        x = np.array([row[rule] for row in here], float)
        low, median, high = np.quantile(x, [0.4, 0.5, 0.6])
        capped = 1 - np.mean([row[f"{rule}_solved"] for row in here])
        found[delay] = {"mean": x.mean(), "sd": x.std(), "median": median, "low": low, "high": high, "capped": capped}
        found[delay]["right"] = float(np.mean([row["right"] for row in here]))
    return found


def slope(by_delay: dict[int, float]) -> float:
    """Of log(episodes) over log(delay)."""
    if len(by_delay) < 2:
        return 0.0
    return float(np.polyfit(np.log(list(by_delay)), np.log(list(by_delay.values())), 1)[0])


def _column(found: dict[int, dict[str, float]], name: str) -> dict[int, float]:
    return {delay: numbers[name] for delay, numbers in found.items()}


def _within(rows: Rows) -> Verdict:
    """Claim 10 by the greedy rule, part by part; RUDDER's rule is shown beside it. A cap supports no upper bound."""
    texts, held, missed = [], 0, []
    for task, limit in (("choice", 20), ("trace-back", 100)):
        mine = summary(rows, task, "Highway Q-learning", "greedy")
        median = _column(mine, "median")
        growth = slope(median)
        rivals = {m: summary(rows, task, m, "greedy") for m in LEARNERS if m != "Highway Q-learning"}
        parts = {
            f"{task} within {limit} by the mean": all(x["mean"] <= limit and not x["capped"] for x in mine.values()),
            f"{task} at any delay": len(mine) > 1
            and abs(growth) <= 0.15
            and all(x["capped"] < 0.5 for x in mine.values()),
        }
        for method, theirs in rivals.items():
            if theirs:
                ahead = all(median[d] < theirs[d]["median"] for d in theirs.keys() & median.keys())
                parts[f"{task} ahead of {method}"] = ahead
        held += sum(parts.values())
        missed += [name for name, holds in parts.items() if not holds]
        texts.append(
            f"{task}, greedy policy optimal: Highway mean {_range(mine, 'mean')}, median {_range(mine, 'median')} "
            f"(claimed {limit}), growing as delay^{growth:.2f}, right after {min(_column(mine, 'right').values()):.0%}–"
            f"{max(_column(mine, 'right').values()):.0%} of episodes; medians of "
            + ", ".join(f"{method} {_range(theirs, 'median')}" for method, theirs in rivals.items() if theirs)
        )
        shown = []
        for method in LEARNERS:
            if found := summary(rows, task, method, "average"):
                told = PUBLISHED.get((task, method), {}).values()
                published = f" where {min(told):,}–{max(told):,} is published" if told else ""
                shown.append(f"{method} {_range(found, 'median')}{published}")
        texts.append("medians by RUDDER's rule: " + ", ".join(shown))
    if missed:
        texts.append("not so: " + ", ".join(missed))
    return Verdict("; ".join(texts), HOLDS if not missed else PARTLY if held else FAILS)


def _range(found: dict[int, dict[str, float]], name: str) -> str:
    """Least to largest over delays, and the largest share of seeds at the cap if there is one."""
    level, capped = _column(found, name), max(_column(found, "capped").values())
    return f"{min(level.values()):,.0f}–{max(level.values()):,.0f}" + (f" ({capped:.0%} at the cap)" if capped else "")


EXPERIMENT = Experiment(
    name="toy-delayed",
    paper="Fig. 5",
    summary="episodes until Trace Back and Choice are solved, by method and delay; what the maximum costs under noise",
    cells=cells,
    run=run,
    plot=lambda rows, out: plot(rows, out, summary, list(LEARNERS), ALPHAS),
    claims={10: _within},
    cost=cost,
    workers=lambda scale: 1 if scale == "smoke" else cores(),
)
