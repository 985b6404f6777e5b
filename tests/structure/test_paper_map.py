"""The paper map is complete and true: every item of the paper, symbols that import, tests that exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "paper_map.md"

LABELS = """
definition-convergence remark-convergence example_MDP
eq_oneStepOperator eq_oneStepExpectationOperator eq_multistepBOOperator eq_highwayOperator eq_highwayOptOperator
eq_softmaxHighwayQOperator eq_highwayOptOperator_V eq_highwayDQN eq-loss
app-eq_jksajajisisajaeqwwwsi app-eq_jaisjisiqhjiwjhjwiw eq:app-mod1 eq:app-mod2 eq:app-mod3 eq:BpiBineq
Gppleqopt GmmgeqBppip eq_multistepBEOperator eq_retrace eq-highway-q-learning
theoremMultiStepBOOperatorBiased theoremMultiStepBOOperatorDiverge theoremHighwayEquation
theoremCompareHighwayOperatorHighwayOptOperator theoremCompareOnestepBOOperator
theorem-changing-policies theorem_sofmaxHighwayOperator
theoremNoonestepBiased theoremNoonestepBiasedZero theoremHighwayStrictlyBetterOnestepMultistepBO theoremAlwaysLeqQopt
ap_alg_GreedyMultistepValueIteration ap_alg_GM_DQN ap_alg_GM_QLearning
fig_example fig_Final_Q_wrt_nstep_BO fig_backupdiagram fig_Final_Q_wrt_nstep_Highway fig_iterations_wrt_nstep_Highway
fig_chosen_nstep fig_model_based fig_model_free fig_score_minatar_greedy_step Ablation_Study fig_highway_gate fig_n_step
fig_softmax fig_n_policies ap_fig_multi_room fig_retrace_IS
table_summary ap_tab_hyperparameters_minatar
"""
"""The paper's labels, as they stand in its LaTeX; those in plain words with hyphens are ours, for items without one."""


def rows() -> dict[str, tuple[list[str], list[str], str]]:
    """Label → (symbols, tests, what the symbol column says)."""
    found: dict[str, tuple[list[str], list[str], str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and re.fullmatch(r"`[^`]+`", cells[1]):
            label = cells[1].strip("`")
            assert label not in found, f"{label} stands in the map twice"
            found[label] = (re.findall(r"`([^`]+)`", cells[2]), re.findall(r"`([^`]+)`", cells[3]), cells[2])
    return found


ROWS = rows()


@pytest.mark.parametrize("label", LABELS.split())
def test_item_is_in_the_map(label):
    assert label in ROWS


@pytest.mark.parametrize("label", ROWS)
def test_row_has_a_symbol_and_a_test_or_says_planned(label):
    symbols, tests, text = ROWS[label]
    assert symbols or text == "planned"
    assert tests or "planned" in text


@pytest.mark.parametrize("symbol", sorted({s for symbols, _, _ in ROWS.values() for s in symbols}))
def test_symbol_imports(symbol):
    module, _, rest = symbol.partition(":")
    value = importlib.import_module(f"highway_rl.{module}")
    for name in filter(None, rest.split(".")):
        value = getattr(value, name)


@pytest.mark.parametrize("name", sorted({t for _, tests, _ in ROWS.values() for t in tests}))
def test_named_test_exists(name):
    file, _, function = name.partition("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
