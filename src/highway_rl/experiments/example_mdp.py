"""The paper's illustrative MDP: where multi-step operators settle, how fast, and what the gate chooses.

Paper: Fig. 1 (the MDP, fixed points of the multi-step operator), Fig. 3 (Highway: fixed points, iterations, depths).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.core.backup import Backup, gate_open
from highway_rl.envs import make
from highway_rl.envs.models.example import EXAMPLE_STATES, GO, LEAVE, ExamplePolicies, example_policies
from highway_rl.experiments.base import FAILS, HOLDS, PARTLY, Experiment, Row, Rows, Scale, Verdict, select
from highway_rl.mdp.operators import as_policies, exact_returns, operator
from highway_rl.records.figures import axes, colour, legend, save

DEPTHS = tuple(range(1, 11))
NUM_ITERS = 60
ONLY, UP_TO = np.eye(10), np.tril(np.ones((10, 10))) / np.arange(1, 11)[:, None]
OPERATORS: dict[str, tuple[np.ndarray, float, int | None]] = {
    "multi-step": (ONLY, 0.0, None),
    "highway": (ONLY, 0.0, 1),
    "highway, uniform over 1…n": (UP_TO, 0.0, 1),
    "optimality, 1…n": (UP_TO, math.inf, 1),
}
"""Prior over depths for each n, alpha, and the gate: an operator is a row of numbers, so all n are one `vmap`."""

SETTING = "none: the MDP itself"
POLICY_COLOURS = {"blue": "#0072B2", "orange": "#E69F00", "red": "#B2182B"}
"""The policies are named by them in the paper."""


def cells(scale: Scale, seed: int) -> list[dict[str, Any]]:
    """All of it at every scale: the example is exact and small, and has no randomness to seed."""
    return [{"operator": name} for name in (SETTING, *OPERATORS)]


def run(operator: str) -> Iterable[Row]:
    """Apply the operator from Q = 0 until it settles, and note what the gate chooses at (S_A, ↗) on the way."""
    if operator == SETTING:
        yield from _ways()
        return
    prior, alpha, gate_depth = OPERATORS[operator]
    with jax.enable_x64(True):
        path, opened = jax.jit(jax.vmap(lambda p: _iterate(Backup(DEPTHS, p, alpha, alpha, gate_depth))))(prior)
    for i, n in enumerate(DEPTHS):
        distance = np.abs(path[i] - path[i, -1]).max(axis=(1, 2))
        iterations = int(np.argmax(distance <= 1e-9))
        yield {
            "n": n,
            "kind": "fixed point",
            "value_up": round(float(path[i, -1, 0, GO]), 9),
            "value_down": round(float(path[i, -1, 0, LEAVE]), 9),
            "iterations": iterations,
            "path": " ".join(f"{x:.6g}" for x in path[i, : iterations + 1, 0, GO]),
        }
        for k in range(iterations + 1) if operator == "highway" else ():
            for j, name in enumerate(ExamplePolicies._fields):
                depth = n if opened[i, k, j, i] else 1
                yield {"n": n, "kind": "chosen", "policy": name, "iteration": k + 1, "depth": depth}


def _ways() -> Iterable[Row]:
    """What each policy meets on its way from S_A to the end."""
    mdp = make("example")
    for name, actions in example_policies()._asdict().items():
        state, steps, earned, discount = 0, 0, 0.0, 1.0
        while EXAMPLE_STATES[state] != "end":
            place = state, actions[state]
            earned, discount = earned + discount * float(mdp.reward[place]), discount * float(mdp.discount[place])
            state, steps = int(mdp.successor[place][0]), steps + 1
        yield {"kind": "way", "policy": name, "transitions": steps, "return": earned, "discount": discount}


def _iterate(backup: Backup) -> tuple[Any, Any]:
    """Q after 0, 1, 2, … applications, and for each whether the gate lets policy j's n-step return through."""
    mdp = make("example")
    policies = as_policies(np.stack(example_policies()), mdp)

    def step(q: Any, _: None) -> tuple[Any, tuple[Any, Any]]:
        returns, reference = jax.vmap(lambda policy: exact_returns(backup, mdp, policy, q))(policies)
        return operator(backup, mdp, policies)(q), (q, gate_open(returns, reference)[:, 0, GO])

    return jax.lax.scan(step, jnp.zeros(mdp.reward.shape), length=NUM_ITERS)[1]


def _values(rows: Rows, name: str) -> dict[int, Row]:
    found = {row["n"]: row for row in select(rows, kind="fixed point", operator=name)}
    if not found:
        raise LookupError(f"no fixed points of {name}")
    return found


def _setting(rows: Rows) -> Verdict:
    ways = {row["policy"]: row for row in select(rows, kind="way")}
    earned = {name: way["return"] for name, way in ways.items()}
    good = (
        earned == {"red": -9, "orange": 3, "blue": 9}
        and ways["blue"]["transitions"] == 10
        and all(way["discount"] == 1 for way in ways.values())
    )
    text = ", ".join(f"{name} earns {ways[name]['return']:g} in {ways[name]['transitions']} steps" for name in ways)
    return Verdict(f"{text}; one sentence of the paper swaps red and blue", HOLDS if good else FAILS)


def _underestimates(rows: Rows) -> Verdict:
    found = {n: row["value_up"] for n, row in _values(rows, "multi-step").items()}
    good = found[1] == 9 and found[2] == 3 and found[10] < 3
    return Verdict(", ".join(f"n={n}: {v:g}" for n, v in found.items()), HOLDS if good else FAILS)


def _wrong_action(rows: Rows) -> Verdict:
    found = _values(rows, "multi-step")
    good = all(found[n]["value_down"] > found[n]["value_up"] for n in (2, 10))
    text = "; ".join(f"n={n}: ↗ {found[n]['value_up']:g}, ↘ {found[n]['value_down']:g}" for n in (2, 10))
    return Verdict(text + " (the paper gives no value for ↘; any in (3, 9) does it)", HOLDS if good else FAILS)


def _always_nine(rows: Rows) -> Verdict:
    found = {n: row["value_up"] for n, row in _values(rows, "highway").items()}
    return Verdict(", ".join(f"n={n}: {v:g}" for n, v in found.items()), HOLDS if set(found.values()) == {9} else FAILS)


def _chosen(rows: Rows) -> Verdict:
    steps = _values(rows, "highway")[10]["iterations"]
    depths = {
        name: [row["depth"] for row in select(rows, kind="chosen", n=10, policy=name)]
        for name in ("blue", "orange", "red")
    }
    good = (
        steps == 3
        and set(depths["blue"]) == {10}
        and set(depths["red"]) == {1}
        and depths["orange"][0] == 10
        and depths["orange"][-1] == 1
    )
    text = "; ".join(f"{name} {' '.join(map(str, d))}" for name, d in depths.items())
    return Verdict(f"{steps} iterations; depths chosen by iteration: {text}", HOLDS if good else FAILS)


def _one_against_three(rows: Rows) -> Verdict:
    best = _values(rows, "optimality, 1…n")[10]["iterations"]
    single = _values(rows, "highway")[10]["iterations"]
    uniform = _values(rows, "highway, uniform over 1…n")[10]["iterations"]
    good = (best, single) == (1, 3)
    text = (
        f"Optimality {best}; Generalized {single} with N = {{10}}, {uniform} with N = {{1…10}} uniform as the text says"
    )
    return Verdict(text, (HOLDS if uniform == 3 else PARTLY) if good else FAILS)


def plot(rows: Rows, out: Path) -> list[Path]:
    """Four panels: the MDP, the fixed points, the iterations, the depths chosen by the 10-step gate."""
    title = "The example MDP: deep lookahead, with and without the gate"
    figure, (graph, fixed, needed, chosen) = axes(4, title, columns=2)
    _draw_mdp(graph)
    for name, width, style in (("multi-step", 2, "o-"), ("highway", 6, "o-"), ("optimality, 1…n", 2, "o--")):
        found = _values(rows, name)
        values = [r["value_up"] for r in found.values()]
        fixed.plot(list(found), values, style, lw=width, ms=width + 2, color=colour(name), label=name)
    fixed.axhline(6, color="0.6", lw=1, ls=":")
    fixed.text(10, 6.1, "Q(S_A, ↘)", ha="right", color="0.4", fontsize=8)
    fixed.set(title="Fixed point of Q(S_A, ↗)", xlabel="lookahead depth n", ylabel="value")
    legend(fixed, loc="center right")
    for name in ("highway", "highway, uniform over 1…n", "optimality, 1…n"):
        found = _values(rows, name)
        needed.plot(list(found), [r["iterations"] for r in found.values()], "o-", color=colour(name), label=name)
    needed.set(title="Iterations to converge", xlabel="lookahead depth n", ylabel="iterations", ylim=(0, None))
    legend(needed, loc="lower left")
    for offset, name in ((0.1, "blue"), (0.0, "orange"), (-0.1, "red")):
        steps = select(rows, kind="chosen", n=10, policy=name)
        depth = [r["depth"] + offset for r in steps]
        chosen.plot([r["iteration"] for r in steps], depth, "s-", color=POLICY_COLOURS[name], label=f"{name} policy")
    chosen.set(title="Depth the 10-step gate chooses", xlabel="iteration", ylabel="depth")
    chosen.set(yticks=[1, 10], xticks=[1, 2, 3, 4])
    legend(chosen, loc="center right")
    return [save(figure, out / "example-mdp.png")]


def _draw_mdp(ax: Any) -> None:
    """The graph, from the table itself: a dot per state, an arrow per transition, rewards where there are any."""
    mdp = make("example")
    place = {"S_A": (0.0, 0.0), "s1": (1.0, 0.6), "s2": (2.0, 0.9), "end": (10.0, -0.6)}
    place |= {f"blue {k}": (float(k), 1.6) for k in range(3, 10)} | {
        f"orange {k}": (float(k), 0.5) for k in range(3, 10)
    }
    for s, name in enumerate(EXAMPLE_STATES[:-1]):
        for action in (GO, LEAVE):
            target = EXAMPLE_STATES[int(mdp.successor[s, action, 0])]
            reward = float(mdp.reward[s, action])
            shade = "red" if reward == -9 else "0.45" if name == "S_A" and action else None
            shade = shade or ("orange" if "orange" in name + target else "blue")
            arrow = {"arrowstyle": "->", "color": POLICY_COLOURS.get(shade, shade), "shrinkA": 4, "shrinkB": 4}
            ax.annotate("", place[target], place[name], arrowprops=arrow)
            if reward:
                (x, y), (u, v) = place[name], place[target]
                side = -1 if "orange" in name else 1  # which side of the arrow has room for its label
                ax.annotate(
                    f"{reward:+g}",
                    ((x + u) / 2, (y + v) / 2),
                    xytext=(14 * side, 4),
                    textcoords="offset points",
                    color=POLICY_COLOURS.get(shade, shade),
                    ha="center",
                )
    for x, y in place.values():
        ax.plot(x, y, "o", color="0.2", ms=5)
    ax.text(*place["S_A"], "S_A  ", ha="right", va="center")
    ax.text(*place["end"], "  end", ha="left", va="center")
    ax.set(title="The MDP (state by state)", xlim=(-1.2, 11.2), ylim=(-1.2, 2.2))
    ax.axis("off")


EXPERIMENT = Experiment(
    name="example-mdp",
    paper="Figs. 1, 3",
    summary="fixed points, iterations and chosen depths on the illustrative MDP",
    cells=cells,
    run=run,
    plot=plot,
    claims={1: _setting, 2: _underestimates, 3: _wrong_action, 4: _always_nine, 5: _chosen, 6: _one_against_three},
)
