"""What each check takes, in which type it gives it back, and the sentence with which it refuses the rest."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl import checks

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (lambda: checks.whole("rooms", 1, 2, 50), "rooms=1: give a whole number from 2 to 50"),
        (lambda: checks.whole("rooms", 51, 2, 50), "rooms=51: give a whole number from 2 to 50"),
        (lambda: checks.whole("rooms", 0, 1), "rooms=0: give a whole number >= 1"),
        (lambda: checks.whole("rooms", 2.0, 1), "rooms=2.0: give a whole number >= 1"),
        (lambda: checks.whole("rooms", True, 1), "rooms=True: give a whole number >= 1"),
        (lambda: checks.whole("rooms", "3", 1), "rooms='3': give a whole number >= 1"),
        (lambda: checks.number("slip", NAN, 0, 1), "slip=nan: give a number from 0 to 1"),
        (lambda: checks.number("slip", None, 0, 1), "slip=None: give a number from 0 to 1"),
        (lambda: checks.number("slip", True, 0, 1), "slip=True: give a number from 0 to 1"),
        (lambda: checks.number("slip", INF), "slip=inf: give a number from -1e+30 to 1e+30"),
        (lambda: checks.between("lower", 3, 3, 9), "lower=3: give a number > 3 and < 9"),
        (lambda: checks.between("lower", 9.0, 3, 9), "lower=9.0: give a number > 3 and < 9"),
        (lambda: checks.between("tol", INF, 0), "tol=inf: give a number > 0 and < inf"),
        (lambda: checks.between("tol", True, 0), "tol=True: give a number > 0 and < inf"),
        (lambda: checks.between("tol", NAN, 0), "tol=nan: give a number > 0 and < inf"),
        (lambda: checks.number_list("noise", 0.5, 2, 0), "noise=0.5: give 2 numbers >= 0"),
        (lambda: checks.number_list("noise", (1, 2, 3), 2, 0), "noise=(1, 2, 3): give 2 numbers >= 0"),
        (lambda: checks.number_list("noise", (1, -2), 2, 0), "noise=-2: give a number from 0 to 1e+30"),
        (lambda: checks.flag("trap", 1), "trap=1: give True or False"),
        (lambda: checks.choice("goal", "top", ("corner", "random")), "goal='top': give one of corner, random"),
        (lambda: checks.choice("goal", ["corner"], ("corner",)), "goal=['corner']: give one of corner"),
        (lambda: checks.options("maze", ["foo"], ["size", "seed"]), "maze has no option 'foo': choose from size, seed"),
        (lambda: checks.options("coin", ["foo"], []), "coin has no option 'foo': give none"),
        (lambda: checks.actions(6, 6), "action=6: give a whole number from 0 to 5"),
        (lambda: checks.actions([0, -1], 6), "action=[0, -1]: give a whole number from 0 to 5"),
        (lambda: checks.actions(1.0, 6), "action=1.0: give a whole number from 0 to 5"),
        (lambda: checks.actions(None, 6), "action=None: give a whole number from 0 to 5"),
        (lambda: checks.unit_interval("lam", 1.5), "lam=1.5: give a number in [0, 1]"),
        (lambda: checks.unit_interval("lam", [0.5, NAN]), "lam=[0.5, nan]: give a number in [0, 1]"),
        (lambda: checks.unit_interval("lam", [[0.5], [0.1, 0.2]]), "lam=[[0.5], [0.1, 0.2]]: give a number in [0, 1]"),
        (lambda: checks.positive("rate", 0), "rate=0: give a number > 0 and < inf"),
        (lambda: checks.positive("rate", "1"), "rate='1': give a number > 0 and < inf"),
        (lambda: checks.shares("prior", [1.0], 2), "prior has shape (1,): give 2 entries"),
        (lambda: checks.shares("prior", 1.0, 1), "prior has shape (): give 1 entries"),
        (lambda: checks.shares("prior", [[1, 0], [1, 0.6]], 2), "prior=[1.0, 0.6]: give entries >= 0 that sum to one"),
        (lambda: checks.shares("prior", [1.5, -0.5], 2), "prior=[1.5, -0.5]: give entries >= 0 that sum to one"),
    ],
)  # fmt: skip
def test_refusals(check, says):
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        check()


def test_names():
    known = ["value-iteration", "policy-iteration"]
    assert str(checks.unknown("method", "value-iteratoin", known)) == (
        "unknown method 'value-iteratoin': did you mean 'value-iteration'?"
    )
    assert str(checks.unknown("method", "zzz", iter(known))) == (
        "unknown method 'zzz': choose from value-iteration, policy-iteration"
    )


def test_refusals_are_one_line():
    value = np.eye(40)
    assert "\n" in repr(value)
    assert "\n" not in str(checks.refusal("P", value, "a row"))
    assert str(checks.wrong_shape("R", np.zeros(3), "(5,) or (5, 2)")) == "R has shape (3,): give (5,) or (5, 2)"


def test_values_come_back_in_their_own_type():
    for value, same, kind in (
        (checks.whole("rooms", np.int64(3), 1, 4), 3, int),
        (checks.number("slip", np.float32(0.5), 0, 1), 0.5, float),
        (checks.number("slip", 1, 0, 1), 1.0, float),
        (checks.between("tol", np.float64(1e-300), 0), 1e-300, float),
        (checks.flag("trap", np.True_), True, bool),
        (checks.choice("goal", "corner", iter(("corner",))), "corner", str),
    ):
        assert type(value) is kind
        assert value == same
    np.testing.assert_array_equal(checks.number_list("noise", [0, 2.5], 2, 0), [0, 2.5])
    for given in (2, np.int64(2), jnp.asarray([0, 5]), [[1], [0]], np.zeros(3, np.uint8)):
        given_back = checks.actions(given, 6)
        assert given_back.dtype == np.int32
        np.testing.assert_array_equal(given_back, np.asarray(given))
    checks.options("maze", ["width"], iter(["height", "width"]))


def test_what_jit_does_not_know_passes():
    def traced(x):
        checks.unit_interval("lam", x)
        assert not checks.is_concrete(x)
        return x

    assert float(jax.jit(traced)(2.0)) == 2.0
    with pytest.raises(ValueError, match=r"lam=2.0"):
        checks.unit_interval("lam", 2.0)
