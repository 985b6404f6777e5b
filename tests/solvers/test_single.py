"""Sweeps in single precision: the same sweeps, doubles where they blur, and certificates that know nothing of them."""

from __future__ import annotations

import numpy as np
import pytest
from models import precise_value

from highway_rl import envs
from highway_rl.solvers import highway_solve, rows, single
from highway_rl.solvers.chooser import Meter, Metered
from highway_rl.solvers.single import Single, Swept


@pytest.fixture(params=[1, 10**9], ids=["fixed", "ragged"])
def always(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single precision at every size, in both layouts, on two threads."""
    monkeypatch.setattr(single, "FAR", 1)
    monkeypatch.setattr(single, "NEAR", 0)
    monkeypatch.setattr(rows, "LARGE", request.param)
    monkeypatch.setattr(rows, "ENOUGH", 1)


@pytest.mark.usefixtures("always")
def test_what_is_added_is_what_sweeps_add() -> None:
    """x + e_m = (𝓑^π)ᵐ x within the rounding of e; once that shows, doubles go on to the fixed point."""
    mdp = envs.make("garnet", states=300, branching=3, discount=0.9)
    policy = rows.CompiledRows(mdp).under(np.arange(300) % mdp.num_actions)
    start = np.random.default_rng(0).normal(size=300) * 1e3
    x, swept = start.copy(), Swept(policy, start)
    singles, most = 0, 0.0
    for _ in range(400):
        before, x = x, np.empty(300)
        width = policy.sweep(before, x).width
        assert swept.step() == pytest.approx(width, rel=0.1, abs=1e-9)
        singles += swept.single is not None
        most = max(most, float(np.abs(x - start).max()))
        np.testing.assert_allclose(swept.value(), x, rtol=0, atol=1e-6 * most)
    assert singles > 5
    assert swept.single is None
    np.testing.assert_allclose(swept.value(), x, rtol=1e-12)
    assert np.array_equal(start, np.random.default_rng(0).normal(size=300) * 1e3)  # the caller's stays


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("discount", [0.9, 0.999])
def test_certificates_hold(discount: float, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    plain = Single.sweep
    monkeypatch.setattr(Single, "sweep", lambda *given: used.append(1) or plain(*given))
    models = [envs.make("garnet", states=200, branching=k, discount=discount, seed=k) for k in (2, 5)]
    models.append(envs.make("queue", capacity=200, discount=discount))
    for mdp in models:
        found, truth = highway_solve(mdp, 1e-8), precise_value(mdp)
        assert found.converged
        assert np.all(found.lower <= truth + 1e-11 * np.abs(truth).max())
        assert np.all(truth <= found.upper + 1e-11 * np.abs(truth).max())
    assert used


@pytest.mark.usefixtures("always")
def test_a_constant_change_is_none_for_single_precision() -> None:
    policy = rows.CompiledRows(envs.make("garnet", states=300)).under(np.zeros(300, np.int32))
    swept = Swept(policy, np.full(300, 1e6))
    swept.step()
    assert swept.single is None


@pytest.mark.parametrize("large", [1, 10**9], ids=["fixed", "ragged"])
def test_single_precision_is_for_many_states_whose_successors_are_far(large: int, monkeypatch) -> None:
    monkeypatch.setattr(rows, "LARGE", large)
    monkeypatch.setattr(single, "FAR", 1000)
    monkeypatch.setattr(single, "NEAR", 100)
    near = envs.make("maze", height=40, width=40, slip=0.1)
    assert single.scattered(rows.CompiledRows(envs.make("garnet", states=2000)))
    assert not single.scattered(rows.CompiledRows(envs.make("garnet", states=999)))
    assert near.num_states >= 1000
    assert not single.scattered(rows.CompiledRows(near))


def test_a_small_model_stays_in_doubles() -> None:
    policy = rows.CompiledRows(envs.make("garnet", states=300)).under(np.zeros(300, np.int32))
    assert policy.single.size == 0
    assert Metered(policy, Meter()).around(np.zeros(300), np.ones(300)) is None
