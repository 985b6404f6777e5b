"""The example MDP gives the numbers of the paper's text."""

import numpy as np
import pytest

from highway_rl.envs.models.example import EXAMPLE_STATES, GO, LEAVE, example_mdp, example_policies
from highway_rl.envs.models.tables import absorbing_states


def n_step(q, n, policy, gated):
    """max over {1, n} (gated) or just n of (𝓑^π)ⁿ⁻¹ 𝓑 Q, with γ = 1."""
    table = example_mdp()
    successor = table.successor[..., 0]
    one_step = deep = table.reward + q.max(1)[successor]
    for _ in range(n - 1):
        deep = table.reward + deep[np.arange(len(q)), policy][successor]
    return np.maximum(one_step, deep) if gated else deep


def path_to_fixed_point(n, gated, policies):
    """Q(S_A, ↗) after each iteration that changed Q anywhere."""
    q, path = np.zeros((len(EXAMPLE_STATES), 2)), []
    while True:
        new = np.mean([n_step(q, n, policy, gated) for policy in policies], 0)
        if np.abs(new - q).max() < 1e-12:
            return path
        q = new
        path.append(q[0, GO])


def rollout(policy):
    table, state, rewards = example_mdp(), 0, []
    while EXAMPLE_STATES[state] != "end":
        rewards.append(table.reward[state, policy[state]])
        state = table.successor[state, policy[state], 0]
    return rewards


def test_table(check_table, distances):
    table = example_mdp(lower=5.0)
    check_table(table)
    assert len(set(EXAMPLE_STATES)) == len(table.reward) == 18
    assert (distances(table) >= 0).all()
    assert np.flatnonzero(absorbing_states(table)).tolist() == [EXAMPLE_STATES.index("end")]
    assert table.reward[0, LEAVE] == 5.0


@pytest.mark.parametrize(("colour", "length", "total"), [("blue", 10, 9), ("orange", 10, 3), ("red", 2, -9)])
def test_only_the_last_transition_of_a_policy_pays(colour, length, total):
    rewards = rollout(getattr(example_policies(), colour))
    assert rewards == [0.0] * (length - 1) + [total]


def test_multi_step_fixed_points_fall_with_depth():
    ends = [path_to_fixed_point(n, False, example_policies())[-1] for n in range(1, 11)]
    np.testing.assert_allclose(ends, [9, 3] + [1] * 8, atol=1e-12)


@pytest.mark.parametrize(("at_s2", "middle"), [(GO, 23 / 3), (LEAVE, 19 / 3)])
def test_highway_iterations_do_not_depend_on_red_at_s2(at_s2, middle):
    policies = example_policies()
    assert policies.red[2] == GO
    policies.red[2] = at_s2
    paths = [path_to_fixed_point(n, True, policies) for n in range(1, 11)]
    assert [len(path) for path in paths] == [10, 6, 5, 4, 4, 4, 4, 3, 3, 3]
    np.testing.assert_allclose([path[-1] for path in paths], 9, atol=1e-12)
    np.testing.assert_allclose(paths[-1], [4, middle, 9], atol=1e-12)


def test_optimum(optimal_values):
    np.testing.assert_array_equal(optimal_values(example_mdp(), 1.0, 10)[0], [9, 6])


@pytest.mark.parametrize("lower", [3.0, 9.0, -1.0, float("nan")])
def test_lower_is_strictly_between(lower):
    with pytest.raises(ValueError, match=r"^lower=.*: give a number > 3 and < 9$") as error:
        example_mdp(lower=lower)
    assert "\n" not in str(error.value)
