"""Models cross over to QuantEcon and pymdptoolbox and back, and both packages solve them to the same values."""

from __future__ import annotations

import mdptoolbox.mdp
import numpy as np
import pytest
import scipy.sparse as sp
from models import dense, random_mdp
from quantecon.markov import DiscreteDP

from highway_rl import solve
from highway_rl.mdp.layouts import from_mdptoolbox, from_quantecon, to_mdptoolbox, to_quantecon


@pytest.mark.parametrize("seed", range(4))
def test_there_and_back(seed: int) -> None:
    mdp = random_mdp(seed, discount=0.9, ends=seed % 2)
    found = solve(mdp, tol=1e-9)
    ddp = DiscreteDP(*to_quantecon(mdp))
    np.testing.assert_allclose(ddp.solve("policy_iteration").v, found.value, atol=1e-8)
    np.testing.assert_allclose(ddp.evaluate_policy(found.policy), found.value, atol=1e-8)
    P, R, discount = to_mdptoolbox(mdp)
    other = mdptoolbox.mdp.PolicyIteration([p.toarray() for p in P], R, discount)
    other.run()
    np.testing.assert_allclose(other.V, found.value, atol=1e-8)
    for back in (from_quantecon(ddp), from_mdptoolbox(P, R, discount)):
        np.testing.assert_allclose(back.transition.toarray(), mdp.sparse().transition.toarray())
        np.testing.assert_allclose(back.reward, mdp.reward)


def test_the_other_layouts() -> None:
    """Products R[s,a], Q[s,a,s'], actions that some states lack, rewards by successor, and sparse ones."""
    mdp = random_mdp(1, discount=0.9)
    P, R, _ = dense(mdp)
    value = solve(mdp, tol=1e-9).value
    np.testing.assert_allclose(solve(from_quantecon(DiscreteDP(R, P, 0.9)), tol=1e-9).value, value, atol=2e-9)
    by_successor = np.repeat(R.T[:, :, None], len(R), axis=2)
    for given in (
        from_mdptoolbox(P.transpose(1, 0, 2), by_successor, 0.9),
        from_mdptoolbox(
            [sp.csr_matrix(P[:, a]) for a in range(P.shape[1])], [sp.csr_matrix(r) for r in by_successor], 0.9
        ),
    ):
        np.testing.assert_allclose(solve(given, tol=1e-9).value, value, atol=2e-9)
    lacking = R.copy()
    lacking[0, 0] = -np.inf
    pairs = [(s, a) for s in range(len(R)) for a in range(R.shape[1]) if (s, a) != (0, 0)]
    states, actions = np.array(pairs).T
    expected = DiscreteDP(lacking, P, 0.9).solve("policy_iteration").v
    for ddp in (DiscreteDP(lacking, P, 0.9), DiscreteDP(R[states, actions], P[states, actions], 0.9, states, actions)):
        np.testing.assert_allclose(solve(from_quantecon(ddp), tol=1e-9).value, expected, atol=1e-8)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="ddp has no R: give a quantecon DiscreteDP"):
        from_quantecon(3)
    for convert in (to_quantecon, to_mdptoolbox):
        with pytest.raises(ValueError, match="a model with one discount"):
            convert(random_mdp(1, discount="per pair"))
