"""Break the mathematics on purpose and see which test notices.

    python tests/mutations.py                 every mutant against its fast tests, first failure
    python tests/mutations.py --theorems      the mutants of gate, max and threshold against all theorems, every
                                              failure; --out FILE writes which theorem fails under which mutant
    python tests/mutations.py gate threshold  only mutants whose name contains one of the words

Each mutant is one replacement in a temporary copy of `src`; the working tree stays as it is. Exit code 1: one survived,
or no mutant of gate, max or threshold fells some theorem; a mutant that does not even import is an error of this
script.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

CORE, RETURNS, TABLE1 = (f"tests/core/test_{name}.py" for name in ("backup", "returns", "table1"))
OPERATORS, THEOREMS = "tests/mdp/test_operators.py", "tests/theorems/test_theorems.py"
BACKUP, AHEAD, PATHS, RULES, NAMES, EXACT = (
    "core/backup.py",
    "core/lookahead.py",
    "core/returns.py",
    "core/targets.py",
    "core/table1.py",
    "mdp/operators.py",
)


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    words: str = ""  # pytest -k

    @property
    def theoretical(self) -> bool:
        return THEOREMS in self.tests


STACK = (  # of n_step_returns
    "maps = lookahead(reward, discount, last, depths)\n"
    "    return xp.stack([m.reward + m.discount * next_value[m.end] for m in maps], axis=-1)"
)
GATE = "return xp.maximum(returns, reference[..., None])"
FAST = "theorem_3 or theorem_5 or strict"

MUTANTS = [
    # the gate
    Mutant("gate removed", BACKUP, GATE, "return returns", (THEOREMS,), FAST),
    Mutant("gate is a minimum", BACKUP, GATE, GATE.replace("maximum", "minimum"), (THEOREMS,), FAST),
    Mutant("gate always closed", BACKUP, GATE, "return returns * 0.0 + reference[..., None]", (THEOREMS,), FAST),
    Mutant("gate is a mean", BACKUP, GATE, "return 0.5 * returns + 0.5 * reference[..., None]", (THEOREMS,), FAST),
    Mutant(
        "gate outside the mean over depths",
        BACKUP,
        "by_policy = smax(gated, backup.depth_alpha, backup.depth_prior, depth_mask, thought)",
        "by_policy = smax(returns, backup.depth_alpha, backup.depth_prior, depth_mask, thought)\n"
        "    by_policy = gate(by_policy[..., None], reference)[..., 0] if backup.gate_depth is not None else by_policy",
        (CORE,),
        "combine",
    ),
    Mutant("gate open only when strict", BACKUP, "return returns >= reference", "return returns > reference", (CORE,)),
    Mutant(
        "gate where there is none", NAMES, "prior, gate_depth=None)", "prior, gate_depth=1)", (THEOREMS,), "theorem_1"
    ),
    # its threshold
    Mutant(
        "threshold a little high",
        EXACT,
        "else columns[-1])",
        "else columns[-1] + 1e-3)",
        (THEOREMS,),
        "stay_below",
    ),
    Mutant("threshold ignored", EXACT, "gate_depth or 1)\n", "1)\n", (THEOREMS,), "gate_above_one"),
    Mutant(
        "threshold 0 becomes 1",
        EXACT,
        "return returns, (q if gate_depth == 0 else columns[-1])",
        "return returns, columns[-1]",
        (THEOREMS,),
        "gate_zero",
    ),
    Mutant(
        "threshold 1 becomes 0", EXACT, "if gate_depth == 0 else", "if gate_depth in (0, 1) else", (THEOREMS,), FAST
    ),
    Mutant("threshold 1 becomes 2", EXACT, "gate_depth or 1)\n", "(gate_depth or 1) + 1)\n", (THEOREMS,), FAST),
    Mutant(
        "sampled threshold 0 becomes the bootstrap",
        RULES,
        "if gate_depth else value",
        "if gate_depth else next_value",
        (RETURNS,),
        "gate",
    ),
    Mutant(
        "sampled threshold is the first depth",
        RULES,
        "returns[..., depths.index(gate_depth)]",
        "returns[..., 0]",
        (RETURNS,),
        "gate",
    ),
    # the aggregate
    Mutant(
        "maximum becomes a mean",
        BACKUP,
        "alpha = xp.asarray(alpha, dtype=values.dtype) /",
        "alpha = xp.zeros_like(values) /",
        (THEOREMS,),
        "theorem_4 or softmax_limits",
    ),
    Mutant(
        "plain maximum becomes a mean",
        BACKUP,
        "return xp.asarray(xp.max(values, axis=-1))",
        "return xp.asarray(xp.mean(values, axis=-1))",
        (THEOREMS,),
        "theorem_4 or softmax_limits",
    ),
    Mutant(
        "maximum becomes log-sum-exp",
        BACKUP,
        "return xp.asarray(xp.max(values, axis=-1))",
        "top = xp.max(values, axis=-1)\n        return top + xp.log(xp.sum(xp.exp(values - top[..., None]), axis=-1))",
        (THEOREMS,),
        "stay_below",
    ),
    Mutant(
        "bootstrap takes a mean, not the maximum",
        EXACT,
        "target = rule.bootstrap(q, policy)",
        "target = jnp.ones_like(q) / q.shape[-1]",
        (THEOREMS,),
        "theorem_1",
    ),
    Mutant(
        "alpha with the wrong sign",
        BACKUP,
        "alpha = xp.asarray(alpha, dtype=values.dtype) /",
        "alpha = -xp.asarray(alpha, dtype=values.dtype) /",
        (CORE,),
        "smax",
    ),
    Mutant("prior ignored", BACKUP, "xp.where(live, prior * xp.exp(", "xp.where(live, xp.exp(", (CORE,), "smax"),
    Mutant("mask ignored", BACKUP, "if mask is None else (prior > 0) & mask", "", (CORE,), "smax"),
    Mutant(
        "nothing left is not 0",
        BACKUP,
        "top = xp.where(xp.any(live, axis=-1, keepdims=True), top, xp.zeros_like(top))",
        "top = top + 0.0",
        (CORE,),
        "smax",
    ),
    Mutant(
        "no shift by the maximum",
        BACKUP,
        "top = xp.where(xp.any(live, axis=-1, keepdims=True), top, xp.zeros_like(top))",
        "top = xp.zeros_like(top)",
        (CORE,),
        "smax",
    ),
    Mutant(
        "depths aggregated like policies",
        BACKUP,
        "smax(gated, backup.depth_alpha",
        "smax(gated, backup.policy_alpha",
        (CORE,),
        "combine",
    ),
    Mutant(
        "policies aggregated like depths",
        BACKUP,
        "smax(by_policy, backup.policy_alpha",
        "smax(by_policy, backup.depth_alpha",
        (CORE,),
        "combine",
    ),
    Mutant(
        "policy without depths stays", BACKUP, "if depth_mask is not None:", "if False:", (CORE,), "drop_out or combine"
    ),
    # the rows of Table 1
    Mutant(
        "Optimality over depths only",
        NAMES,
        "depth_alpha=math.inf, policy_alpha=math.inf",
        "depth_alpha=math.inf",
        (THEOREMS,),
        "theorem_4",
    ),
    Mutant(
        "softmax over depths only",
        NAMES,
        "depth_alpha=alpha, policy_alpha=alpha",
        "depth_alpha=alpha",
        (OPERATORS,),
        "softmax",
    ),
    Mutant("lambda weights as printed", NAMES, "* lam**n)", "** (n + 1.0) * lam**n)", (CORE,), "lambda"),
    Mutant(
        "limited gate forgets its depth", NAMES, "prior, gate_depth=gate_depth)", "prior)", (THEOREMS,), "gate_zero"
    ),
    Mutant(
        "expectation gate the wrong way",
        NAMES,
        "weight[1] += 1.0 - share",
        "weight[1] += share",
        (THEOREMS,),
        "expectation_gate",
    ),
    # exact operators
    Mutant("discount dropped", EXACT, "return mdp.discount * jnp.sum(", "return jnp.sum(", (THEOREMS,), "bellman"),
    Mutant(
        "Bellman mean",
        EXACT,
        "expect_next(mdp, jnp.max(q, axis=-1))",
        "expect_next(mdp, jnp.mean(q, axis=-1))",
        (THEOREMS,),
        "bellman",
    ),
    Mutant(
        "exact depth off by one", EXACT, "by_depth[n - 1]", "by_depth[min(n, finite - 1)]", (OPERATORS,), "enumeration"
    ),
    Mutant(
        "exact trace without behaviour",
        EXACT,
        "policy * rule.trace(target, policy)",
        "rule.trace(target, policy)",
        (TABLE1,),
        "retrace",
    ),
    Mutant("exact trace without Q", EXACT, "first - q, q\n", "first - q, jnp.zeros_like(q)\n", (TABLE1,), "retrace"),
    Mutant("depth ∞ transposed", EXACT, "dtype=offset.dtype)).T", "dtype=offset.dtype))", (OPERATORS,), "end"),
    Mutant("depth ∞ stops early", EXACT, "fori_loop(0, 30, double", "fori_loop(0, 3, double", (OPERATORS,), "end"),
    Mutant(
        "policy prior ignored", EXACT, "policy_prior=policy_prior\n", "policy_prior=None\n", (OPERATORS,), "enumeration"
    ),
    # sampled returns
    Mutant(
        "termination bootstraps",
        PATHS,
        STACK,
        STACK.replace("m.discount", "xp.maximum(m.discount, 0.1)"),
        (RETURNS,),
        "n_step_returns",
    ),
    Mutant(
        "truncation does not bootstrap",
        PATHS,
        STACK,
        STACK.replace("next_value[m.end]", "xp.where(last[m.end], 0.0, next_value[m.end])"),
        (RETURNS,),
        "n_step_returns",
    ),
    Mutant(
        "episodes mix",
        AHEAD,
        "powers = [Lookahead(reward, discount, here, last)]",
        "powers = [Lookahead(reward, discount, here, last & (here == count - 1))]",
        (RETURNS,),
        "n_step_returns",
    ),
    Mutant("array end not cut", AHEAD, "last = last | (here == count - 1)\n", "last = last\n", (RETURNS,), "lookahead"),
    Mutant(
        "episodes mix to the end",
        AHEAD,
        "jnp.where(last, 0, later[0])",
        "later[0]",
        (RETURNS,),
        "n_step_returns",
    ),
    Mutant(
        "sampled depth off by one",
        AHEAD,
        "steps(n - reached))",
        "steps(max(1, n - reached - 1)))",
        (RETURNS,),
        "lookahead",
    ),
    Mutant(
        "bootstrap one row late",
        PATHS,
        STACK,
        STACK.replace("m.end", "xp.minimum(m.end + 1, len(last) - 1)"),
        (RETURNS,),
        "n_step_returns",
    ),
    Mutant(
        "trace shifted by one",
        PATHS,
        "discount * next_trace)",
        "discount * xp.concatenate([next_trace[:1], next_trace[:-1]]))",
        (RETURNS,),
        "traced",
    ),
    Mutant(
        "trace crosses episodes",
        PATHS,
        "xp.where(last, xp.zeros_like(discount), discount * next_trace), last,",
        "discount * next_trace, last & False,",
        (RETURNS,),
        "traced",
    ),
    Mutant(
        "lambda-return bootstraps twice",
        PATHS,
        "(discount - keep) * next_value",
        "discount * next_value",
        (RETURNS,),
        "lambda",
    ),
    Mutant("a return counted twice", AHEAD, "bool), -1)", "bool), -2)", (RETURNS,), "distinct"),
    # target rules
    Mutant(
        "behaviour of the wrong step",
        RULES,
        "data.behaviour[..., next_row]",
        "data.behaviour",
        (RETURNS,),
        "retrace",
    ),
    Mutant(
        "action of the wrong step",
        RULES,
        "next_action = data.action[..., next_row]",
        "next_action = data.action",
        (RETURNS,),
        "sarsa",
    ),
    Mutant(
        "SARSA acts beyond the end",
        RULES,
        "xp.where(last[..., None], greedy(next_q), acted)",
        "acted",
        (RETURNS,),
        "sarsa",
    ),
    Mutant(
        "Retrace not clipped",
        "core/rules.py",
        "minimum(_ratio(target, behaviour), 1.0)",
        "minimum(_ratio(target, behaviour), 9.0)",
        (RETURNS,),
        "retrace",
    ),
    Mutant(
        "Watkins never cuts",
        "core/rules.py",
        "astype(target > 0,",
        "astype(target >= 0,",
        (RETURNS,),
        "watkins",
    ),
    Mutant(
        "Tree Backup by behaviour",
        "core/rules.py",
        "-> Any:\n    return target\n",
        "-> Any:\n    return behaviour\n",
        (RETURNS,),
        "tree",
    ),
    Mutant(
        "importance ratio upside down",
        "core/rules.py",
        "target / xp.where(behaviour > 0, behaviour,",
        "behaviour / xp.where(target > 0, target,",
        (RETURNS,),
        "importance",
    ),
    Mutant("lambda of a trace ignored", "core/rules.py", "asarray(self.lam,", "asarray(1.0,", (RETURNS,), "lambda"),
    Mutant(
        "nearly greedy too often", "core/bootstrap.py", "epsilon / q.shape[-1]", "epsilon", (RETURNS,), "bootstraps"
    ),
    Mutant(
        "greedy is the worst",
        "core/bootstrap.py",
        "xp.argmax(q, axis=-1)",
        "xp.argmin(q, axis=-1)",
        (RETURNS,),
        "q-learning",
    ),
]


def failures(mutant: Mutant, every: bool) -> tuple[str, list[str]]:
    """("killed" | "SURVIVED", the tests that failed)."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        file = source / "highway_rl" / mutant.file
        text = file.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.name}: {mutant.file} holds the text {text.count(mutant.old)} times, not once")
        file.write_text(text.replace(mutant.old, mutant.new))
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=no", "-rfE", *mutant.tests]
        if not every:
            command += ["-x", *(["-k", mutant.words] if mutant.words else [])]
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{mutant.name}: pytest gave {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) \S+?::(\S+)", done.stdout, flags=re.MULTILINE)
    return ("killed" if done.returncode else "SURVIVED"), failed


ALTERED = ("gate", "threshold", "maximum", "Optimality", "Bellman mean")
"""Words in the names of the mutants that alter the gate, its threshold or a maximum."""


def theorems() -> list[str]:
    return re.findall(r"^def (test_\w+)", (ROOT / THEOREMS).read_text(), flags=re.MULTILINE)


def write_matrix(path: Path, felled: dict[str, list[str]]) -> None:
    """One row per theorem, one column per mutant: 1 where the theorem's test fails."""
    from highway_rl.records.provenance import provenance
    from highway_rl.records.rows import write_rows

    rows = [{"test": test, **{m: int(test in names) for m, names in felled.items()}} for test in theorems()]
    write_rows(path, rows, provenance(command="python tests/mutations.py --theorems"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--theorems", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.words or any(word in m.name for word in options.words)]
    if options.theorems:
        chosen = [m for m in chosen if m.theoretical]
    survivors, felled = 0, {}
    for mutant in chosen:
        verdict, failed = failures(mutant, options.theorems)
        survivors += verdict == "SURVIVED"
        felled[mutant.name] = names = sorted({name.split("[")[0] for name in failed})
        print(f"| {mutant.name} | {mutant.file} | {verdict} | {', '.join(names)} |", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    if not options.theorems:
        return int(survivors > 0)
    if options.out:
        write_matrix(options.out, felled)
    altered = {name for mutant, names in felled.items() if any(w in mutant for w in ALTERED) for name in names}
    untouched = [name for name in theorems() if name not in altered]
    print(f"theorems that no mutant of gate, max or threshold fells: {', '.join(untouched) or 'none'}")
    return int(survivors > 0 or bool(untouched))


if __name__ == "__main__":
    sys.exit(main())
