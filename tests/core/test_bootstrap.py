"""Bootstraps as data: what an agent fills in, what stays as it is, and what an unfilled one says."""

import jax
import numpy as np
import pytest

from highway_rl.core.bootstrap import (
    Double,
    EpsilonGreedy,
    Expected,
    Mixed,
    evenly_greedy,
    filled,
    greedy,
    on_action,
    value_of,
)

Q, OTHER = np.random.default_rng(0).normal(size=(2, 5, 3))
ACTED = np.eye(3)[[0, 2, 1, 1, 0]]


def test_gaps_are_filled():
    """With the agent's ε and its newer network's values, also inside a mixture, just as if given."""
    for gap, whole in (
        (EpsilonGreedy(), EpsilonGreedy(0.3)),
        (Double(), Double(OTHER)),
        (Mixed(0.4, EpsilonGreedy()), Mixed(0.4, EpsilonGreedy(0.3))),
        (Mixed(0.4, Mixed(0.1, Double())), Mixed(0.4, Mixed(0.1, Double(OTHER)))),
    ):
        found = filled(gap, epsilon=0.3, selector=OTHER)
        assert jax.tree.structure(found) == jax.tree.structure(whole)
        np.testing.assert_array_equal(found(Q, ACTED), whole(Q, ACTED))
        np.testing.assert_array_equal(value_of(found, Q, ACTED), value_of(whole, Q, ACTED))


@pytest.mark.parametrize(
    "bootstrap",
    [
        greedy,
        on_action,
        evenly_greedy,
        EpsilonGreedy(0.0),
        Double(Q),
        Expected([0.2, 0.3, 0.5]),
        Mixed(0.5, EpsilonGreedy(0.1)),
        lambda q, behaviour: behaviour,
    ],
)
def test_nothing_to_fill_is_the_same_object(bootstrap):
    """What is given already, ε = 0 too, is never replaced."""
    assert filled(bootstrap, epsilon=0.3, selector=OTHER) is bootstrap


def test_a_gap_stays_where_nothing_fills_it():
    for bootstrap in (EpsilonGreedy(), Mixed(0.5, EpsilonGreedy())):
        assert filled(bootstrap, selector=OTHER) is bootstrap
    double = Double()
    assert filled(double, epsilon=0.1) is double


@pytest.mark.parametrize(
    ("bootstrap", "says"),
    [
        (EpsilonGreedy(), r"^epsilon=None: give .*filled\(bootstrap, epsilon=\.\.\.\)$"),
        (Double(), r"^selector=None: give .*filled\(bootstrap, selector=\.\.\.\)$"),
        (Mixed(0.5, EpsilonGreedy()), "^epsilon=None: give"),
    ],
)
def test_an_unfilled_one_says_what_to_do(bootstrap, says):
    """In one line, called alone or for its value."""
    for call in (lambda: bootstrap(Q, ACTED), lambda: value_of(bootstrap, Q, ACTED)):
        with pytest.raises(ValueError, match=says) as error:
            call()
        assert "\n" not in str(error.value)


def test_gaps_are_no_leaves():
    """A gap is an empty subtree: `jit` takes the record, and what fills it may be traced."""
    assert jax.tree.leaves((EpsilonGreedy(), Double(), Mixed(0.5, Double()))) == [0.5]

    @jax.jit
    def values(bootstrap, epsilon):
        return value_of(filled(bootstrap, epsilon=epsilon), jax.numpy.asarray(Q), jax.numpy.asarray(ACTED))

    np.testing.assert_allclose(values(EpsilonGreedy(), 0.3), value_of(EpsilonGreedy(0.3), Q, ACTED), atol=1e-12)
