"""Runs as text: what parses, what sweeps, and what is refused in one line."""

import math
import re

import pytest
from training import COUNTED

from highway_rl import TO_END, runs
from highway_rl.runs import text


@pytest.mark.parametrize(
    ("said", "algo", "options"),
    [
        ("dqn", "dqn", {}),
        (" dqn ", "dqn", {}),
        ("n-step-dqn:n=3", "n-step-dqn", {"n": 3}),
        ("n-step-dqn:n=end", "n-step-dqn", {"n": "end"}),
        ("soft-highway-dqn:depths=1,2,end", "soft-highway-dqn", {"depths": (1, 2, "end")}),
        ("soft-highway-dqn:depths=(1,2,end)", "soft-highway-dqn", {"depths": (1, 2, "end")}),
        ("soft-highway-dqn:depths=1,2,end,alpha=inf", "soft-highway-dqn", {"depths": (1, 2, "end"), "alpha": math.inf}),
        ("dqn: learning_rate = 1e-4 , loss = squared", "dqn", {"learning_rate": 1e-4, "loss": "squared"}),
        ("mypackage.rules:mine:n=5", "mypackage.rules:mine", {"n": 5}),
        ("mypackage.rules:mine", "mypackage.rules:mine", {}),
    ],
)
def test_one_run(said, algo, options):
    (found,) = text.parse(said)
    assert (found.algo, found.options) == (algo, options)
    assert text.parse(found.label) == [found]  # a label says all there is


@pytest.mark.parametrize(
    ("said", "labels"),
    [
        ("dqn:k=[1,2]", ["dqn:k=1", "dqn:k=2"]),
        (
            "soft-highway-dqn:alpha=[0,0.0005,0.005,inf]",
            [f"soft-highway-dqn:alpha={x}" for x in ("0", "0.0005", "0.005", "inf")],
        ),
        ("a:x=[1,2],y=[3,4]", ["a:x=1,y=3", "a:x=1,y=4", "a:x=2,y=3", "a:x=2,y=4"]),
        ("a:depths=[(1,2),(1,end),3]", ["a:depths=(1,2)", "a:depths=(1,end)", "a:depths=3"]),
        ("m.n:a:x=[7]", ["m.n:a:x=7"]),
    ],
)
def test_sweeps(said, labels):
    found = text.parse(said)
    assert [one.label for one in found] == labels
    assert [text.parse(label) for label in labels] == [[one] for one in found]


def test_a_swept_tuple_is_a_tuple():
    assert [one.options["depths"] for one in text.parse("a:depths=[(1,2),(1,end),3]")] == [(1, 2), (1, "end"), 3]


def test_what_a_text_means():
    """Options of the algorithm make its rule, the others its agent and its schedule."""
    config = runs.Config(
        "late",
        ("soft-highway-dqn:depths=1,3,end,alpha=0.5,k=3,learning_rate=0.01,refresh=500,bootstrap=epsilon-greedy",),
    )
    (run,) = runs.setup(config).runs
    assert run.agent.rule.backup.depths == (1, 3, TO_END)
    assert run.agent.rule.backup.depth_alpha == 0.5
    assert (run.agent.num_networks, run.agent.learning_rate, run.schedule.refresh) == (3, 0.01, 500)
    assert type(run.agent.rule.bootstrap).__name__ == "EpsilonGreedy"


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("", "unknown algorithm ''"),
        ("dqn:", "give module:name"),
        (":n=3", "is no run: write algorithm:option=value"),
        ("dqn=3", "is no run: write algorithm:option=value"),
        ("dqn:3=n", "is no run: write algorithm:option=value"),
        ("dqn:k=", "k has no value: write k=value"),
        ("dqn:k=1,loss=", "loss has no value: write loss=value"),
        ("dqn:k=1,k=2", "k is given twice: give it once, or a list that sweeps: k=[1,2]"),
        ("dqn:k=1,num_networks=2", "k and num_networks, which are one setting"),
        ("dqn:k=[1,2", "close each one you open"),
        ("dqn:k=1]", "close each one you open"),
        ("dqn:k=(1,2", "close each one you open"),
        ("dqn:k=[1,2]3", "end the list with ']'"),
        ("dqn:k=[]", "give at least one value in the list"),
        ("dqn:k=[1,1]", "give each value once"),
        ("dqn:k=1,2", "num_networks=(1, 2): give one value"),
        ("dqn:n=3", "dqn has no option 'n': choose from"),
        ("n-step-dqn:n=soon", "n='soon': give whole numbers >= 1, or end"),
        ("dqn:steps=100", "dqn has steps: give --steps"),
        ("dqn:bootstrap=lazy", "bootstrap='lazy': give one of greedy, epsilon-greedy, double"),
        ("double-dqn:bootstrap=epsilon-greedy", "double-dqn has a bootstrap of its own"),
        ("dqn:optimizer=7", "optimizer=7: give a name"),
        ("dqn:optimizer=adma", "did you mean 'adam'?"),
        ("nowhere.at.all:mine", "module 'nowhere.at.all' cannot be imported"),
        ("numpy:nothing", "module numpy has no 'nothing'"),
        ("numpy:pi", "numpy:pi is a float: give a TargetRule"),
        (
            "numpy:base_repr:number=4",
            "algorithm 'numpy:base_repr' made a str: give a function that returns a TargetRule",
        ),
    ],
)
def test_what_is_no_run_is_told_in_one_line(said, says):
    with pytest.raises(ValueError, match=re.escape(says)) as told:
        runs.setup(runs.Config("late", (said,)))
    assert "\n" not in str(told.value)


def test_duplicates_are_refused():
    for algos in (("dqn", "dqn"), ("dqn:k=[1,2]", "dqn:k=2"), ("dqn:k=1", "dqn: k=1")):
        with pytest.raises(ValueError, match="is given 2 times: give it once, and seeds for more runs"):
            runs.setup(runs.Config("late", algos))
    with pytest.raises(ValueError, match="algos is empty"):
        runs.setup(runs.Config("late", ()))


def test_settings_as_words():
    assert text.settings(["n=3", "depths=1,2,end", "feature=score", "x=nan"])["depths"] == (1, 2, "end")
    for words, says in ((["n"], "n: write it as name=value"), (["=3"], "write it as name=value")):
        with pytest.raises(ValueError, match=says):
            text.settings(words)
    with pytest.raises(ValueError, match="n is given twice"):
        text.settings(["n=3", "n=4"])


def test_what_is_no_text_says_what_to_do():
    from highway_rl import soft_highway

    for algos in ((soft_highway(),), soft_highway()):
        with pytest.raises(ValueError, match=r"TargetRule is no text of a run: .*register_algorithm\(name, rule\)"):
            runs.setup(runs.Config("late", algos))


def test_counted_is_two_texts():
    """What the other tests call the first and the second algorithm."""
    assert [run.label for run in runs.setup(COUNTED).runs] == ["dqn", "dqn", "soft-highway-dqn", "soft-highway-dqn"]
