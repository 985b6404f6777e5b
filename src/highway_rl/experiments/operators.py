"""Table 1, measured: what each operator converges to, how fast it contracts, and how far off it ends.

Every operator is applied on random MDPs with random behavioural policies. Bias is the fixed point minus the value it
is meant for (Q*, or the target policy's Q^π'); the rate is the largest shrinkage of distances between random pairs
of value functions, divided by the discount.

Paper: Table 1; Thms. 1, 3 and the remarks on the gate's threshold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.core import table1, targets
from highway_rl.core.backup import Backup
from highway_rl.core.bootstrap import Expected
from highway_rl.envs import make
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Row, Rows, Scale, Verdict, select
from highway_rl.mdp.model import MDP
from highway_rl.mdp.operators import bellman, bellman_expectation, fixed_point, operator
from highway_rl.records.figures import PALETTE, axes, family, key, save

DEPTHS = (1, 2, 5)
Rule = Callable[[Any], targets.TargetRule | Backup]
"""From a target policy (which only the evaluating operators look at) to a rule."""

OPERATORS: dict[str, tuple[str, Rule]] = {
    "Bellman optimality": ("Q*", lambda pi: table1.multi_step(1)),
    "Bellman expectation": ("Qπ'", lambda pi: targets.expected_sarsa(pi)),
    "multi-step IS, n=3": ("Qπ'", lambda pi: targets.importance_sampling(3, pi)),
    "Q(λ=0.9)": ("Qπ'", lambda pi: targets.q_lambda(0.9, Expected(pi), 10)),
    "Retrace(λ=1)": ("Qπ'", lambda pi: targets.retrace(1.0, Expected(pi), 10)),
    "Tree Backup": ("Qπ'", lambda pi: targets.tree_backup(1.0, Expected(pi), 10)),
    "multi-step, n=2": ("Q*", lambda pi: table1.multi_step(2)),
    "multi-step, n=5": ("Q*", lambda pi: table1.multi_step(5)),
    "λ-return, λ=0.8": ("Q*", lambda pi: table1.lambda_return(0.8, 5)),
    "gate as a mean": ("Q*", lambda pi: table1.expectation_gate(DEPTHS)),
    "gate threshold n1=0": ("Q*", lambda pi: table1.limited_gate(DEPTHS, 0)),
    "gate threshold n1=3": ("Q*", lambda pi: table1.limited_gate((2, 5), 3)),
    "Highway, n=5": ("Q*", lambda pi: table1.highway(5)),
    "Highway, uniform": ("Q*", lambda pi: table1.highway(DEPTHS)),
    "Highway softmax, α=1": ("Q*", lambda pi: table1.highway_softmax(DEPTHS, 1.0)),
    "Highway optimality": ("Q*", lambda pi: table1.highway_optimality(DEPTHS)),
}
HIGHWAY = [name for name in OPERATORS if name.startswith("Highway")]
NUM_ITERS = 500
WORLDS = {"smoke": 8, "quick": 32, "paper": 256}
SMOKE = ("Retrace(λ=1)", "multi-step, n=5", "gate threshold n1=0", "gate threshold n1=3", *HIGHWAY)


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    """Smoke leaves operators out, because compiling is what takes its time."""
    names = SMOKE if scale == "smoke" else OPERATORS
    return [{"operator": name, "worlds": WORLDS[scale], "seed": seed} for name in names]


def run(operator: str, worlds: int, seed: int) -> Iterable[Row]:
    """One row per world."""
    goal, rule = OPERATORS[operator]
    with jax.enable_x64(True):
        batch = _worlds(worlds, seed)
        measured = jax.jit(jax.vmap(functools.partial(_measure, rule, goal)))(*batch)
    for world in range(worlds):
        yield {"world": world, "goal": goal} | {name: float(column[world]) for name, column in measured.items()}


def _worlds(count: int, seed: int) -> tuple[MDP, dict[str, np.ndarray]]:
    """Random MDPs of 8 states and 3 actions, with three stochastic policies and pairs of value functions."""
    rng = np.random.default_rng(seed)
    models = [
        make("garnet", states=8, actions=3, branching=3, sparse_reward=1.0, seed=seed * 1_000_003 + i, discount=gamma)
        for i, gamma in enumerate(rng.uniform(0.6, 0.95, count))
    ]
    draws = {
        "policies": rng.dirichlet(np.ones(3), (count, 3, 8)),
        "target": rng.dirichlet(np.ones(3), (count, 8)),
        "q": rng.normal(0, 5, (count, 20, 8, 3)),
    }
    return jax.tree.map(lambda *leaves: np.stack(leaves), *models), draws


def _measure(rule: Rule, goal: str, mdp: MDP, draws: dict[str, Any]) -> dict[str, Any]:
    apply = jax.vmap(operator(rule(draws["target"]), mdp, draws["policies"]))  # to several value functions at once
    start = jnp.zeros(mdp.reward.shape)
    best = fixed_point(functools.partial(bellman, mdp), start, NUM_ITERS)
    aim = (
        best
        if goal == "Q*"
        else fixed_point(functools.partial(bellman_expectation, mdp, draws["target"]), start, NUM_ITERS)
    )
    found, from_above = fixed_point(apply, jnp.stack([start, best + 10.0]), NUM_ITERS)
    left, right = draws["q"][:10], draws["q"][10:]
    applied = apply(jnp.concatenate([found[None], left, right]))
    moved = _distance(applied[1:11], applied[11:])
    one_step = jax.vmap(functools.partial(bellman, mdp))
    discount = mdp.discount[0, 0]
    return {
        "discount": discount,
        "bias_low": jnp.min(found - aim),
        "bias_high": jnp.max(found - aim),
        "settled": jnp.abs(applied[0] - found).max(),
        "from_above": jnp.max(from_above - aim),
        "rate": (moved / _distance(left, right)).max() / discount,
        "versus_bellman": (moved / _distance(one_step(left), one_step(right))).max(),
    }


def _distance(x: Any, y: Any) -> Any:
    return jnp.abs(x - y).max(axis=(-2, -1))


def _column(rows: Rows, name: str, column: str) -> np.ndarray:
    found = np.array([row[column] for row in select(rows, operator=name)])
    if not found.size:
        raise LookupError(f"no rows of {name}")
    return found


def _contracts(rows: Rows) -> Verdict:
    rate = max(_column(rows, name, "rate").max() for name in HIGHWAY)
    error = max(
        np.abs(_column(rows, name, column)).max()
        for name in HIGHWAY
        for column in ("bias_low", "bias_high", "from_above")
    )
    beside = max(_column(rows, name, "versus_bellman").max() for name in HIGHWAY if "softmax" not in name)
    good = rate <= 1 + 1e-9 and beside <= 1 + 1e-9 and error <= 1e-8
    worlds = len(select(rows, operator=HIGHWAY[0]))
    text = (
        f"{worlds} worlds: distances shrink to at most {rate:.4f} of discount x distance and {beside:.4f} of what "
        f"Bellman's leaves (softmax apart: it promises only the way to Q*); fixed points within {error:.0e} of Q*"
    )
    return Verdict(text, HOLDS if good else FAILS)


def _thresholds(rows: Rows) -> Verdict:
    zero = _column(rows, "gate threshold n1=0", "from_above")
    low = _column(rows, "gate threshold n1=3", "bias_low")
    high = _column(rows, "gate threshold n1=3", "bias_high")
    stays, too_low = np.abs(zero - 10).max() <= 1e-8, (low < -1e-8).mean()
    text = (
        f"n1=0: from Q*+10 the excess stays at {zero.min():.3g}…{zero.max():.3g}; "
        f"n1=3: too low in {too_low:.0%} of worlds, by up to {-low.min():.3g}, never too high. "
        "The paper's wording for n1=0, any Q >= Q*, asks too little of Q: it must also be >= 𝓑Q"
    )
    return Verdict(text, PARTLY if stays and too_low > 0.99 and high.max() <= 1e-8 else FAILS)


def plot(rows: Rows, out: Path) -> list[Path]:
    """Bias of the fixed point and contraction rate, operator by operator."""
    figure, (bias, rate) = axes(2, "Table 1, measured on random MDPs (a stroke is a world)", size=(5.6, 6.0))
    smoke = {row["worlds"] for row in rows} == {WORLDS["smoke"]}
    names = [name for name in OPERATORS if not smoke or name in SMOKE][::-1]
    for y, name in enumerate(names):
        shade = PALETTE[family(name)]
        low, high = _column(rows, name, "bias_low"), _column(rows, name, "bias_high")
        clipped = np.clip(np.concatenate([low, high]), -30, 30)
        bias.plot(clipped, np.full(clipped.size, y), "|", color=shade, alpha=0.3, ms=12)
        rates = _column(rows, name, "rate")
        rate.plot(np.clip(rates, 0, 3), np.full(rates.size, y), "|", color=shade, alpha=0.3, ms=12)
    bias.set(title="fixed point − its goal", xlabel="smallest and largest over s, a (cut at ±30)")
    bias.set_yticks(range(len(names)), [f"{n}  → {OPERATORS[n][0]}" for n in names])
    rate.axvline(1, color="0.3", lw=1)
    rate.set(title="contraction of random pairs / discount", xlabel="largest shrinkage of a distance (cut at 3)")
    rate.set_yticks(range(len(names)), [])
    kinds = dict.fromkeys(family(name) for name in names[::-1])
    strokes = {kind: {"color": PALETTE[kind], "marker": "|", "ms": 12, "mew": 3, "lw": 0} for kind in kinds}
    key(figure, strokes, "outside lower center", ncols=len(kinds))
    return [save(figure, out / "operators.png")]


EXPERIMENT = Experiment(
    name="operators",
    paper="Table 1",
    summary="fixed point, bias and contraction of every operator on random MDPs",
    cells=cells,
    run=run,
    plot=plot,
    claims={7: _contracts, 8: _thresholds},
)
