"""Sampled returns against slow loops written from the equations, against eligibility traces, and against each other."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import path

from highway_rl.core import table1, targets
from highway_rl.core.backup import TO_END
from highway_rl.core.bootstrap import Double, EpsilonGreedy, Expected, greedy, maxmin
from highway_rl.core.lookahead import distinct_depths, lookahead
from highway_rl.core.returns import lambda_returns, n_step_returns, traced_returns
from highway_rl.core.targets import Trajectory, sampled_returns
from highway_rl.mdp.model import MDP
from highway_rl.mdp.operators import operator

DEPTHS = (1, 2, 3, 7, 40, TO_END)
STEPS = [1, 2, 5, 33, 64]
CLOSE = {"rtol": 0, "atol": 1e-10}


def sample(steps, seed=0):
    return path(np.random.default_rng([steps, seed]), steps)


def trajectory(data, xp=np):
    names = ("action", "reward", "discount", "last", "behaviour")
    return Trajectory(**{name: xp.asarray(data[name]) for name in names})


def steps_from(data, t, n):
    """The rows an n-step lookahead from row t visits: until the path is cut, the array ends, or n are taken."""
    rows = [t]
    while len(rows) < n and not data["last"][rows[-1]] and rows[-1] + 1 < len(data["last"]):
        rows.append(rows[-1] + 1)
    return rows


def naive_n_step(data, next_value, t, n):
    """rₜ + γₜ(rₜ₊₁ + γₜ₊₁(… + γ V)), walked forwards."""
    total, weight = 0.0, 1.0
    rows = steps_from(data, t, n)
    for row in rows:
        total += weight * data["reward"][row]
        weight *= data["discount"][row]
    return total + weight * next_value[rows[-1]]


def naive_traced(data, value, next_value, trace, t, n):
    """Q(sₜ,aₜ) + Σ_k (Π γ)(Π c) δ, with `trace[row]` the trace of the action taken at that row."""
    total, weight = value[t], 1.0
    for k, row in enumerate(steps_from(data, t, n)):
        if k > 0:
            weight *= data["discount"][row - 1] * trace[row]
        total += weight * (data["reward"][row] + data["discount"][row] * next_value[row] - value[row])
    return total


def table(function, steps, depths=DEPTHS):
    return np.array([[function(t, n) for n in depths] for t in range(steps)])


# ---------------------------------------------------------------- the four ways to walk a path


@pytest.mark.parametrize("steps", STEPS)
def test_lookahead_against_a_walk(steps):
    """Reward, discount and last row of every depth are those of a walk; a depth beyond the end stops there."""
    data = sample(steps)
    maps = lookahead(data["reward"], data["discount"], data["last"], DEPTHS)
    for n, found in zip(DEPTHS, maps, strict=True):
        for t in range(steps):
            rows = steps_from(data, t, n)
            assert found.end[t] == rows[-1]
            assert found.reward[t] == pytest.approx(naive_n_step(data, np.zeros(steps), t, n), abs=1e-12)
            assert found.discount[t] == pytest.approx(np.prod(data["discount"][rows]), abs=1e-15)


def test_lookahead_along_given_successors():
    """On a graph instead of an array: the same maps follow any `successor`, also round a loop."""
    rng = np.random.default_rng(3)
    successor, reward, discount = rng.integers(6, size=6), rng.normal(size=6), rng.uniform(0.5, 1.0, 6)
    last = np.array([False, False, True, False, False, False])
    for n, found in zip((1, 3, 6), lookahead(reward, discount, last, (1, 3, 6), successor), strict=True):
        for s in range(6):
            total, weight, row = 0.0, 1.0, s
            for step in range(n):
                row = s if step == 0 else successor[row]
                total, weight = total + weight * reward[row], weight * discount[row]
                if last[row]:
                    break
            assert (found.end[s], found.reward[s]) == (row, pytest.approx(total, abs=1e-12))
            assert found.discount[s] == pytest.approx(weight, abs=1e-15)


@pytest.mark.parametrize("steps", STEPS)
def test_n_step_returns_against_a_walk(steps):
    """Terminations end the sum without a bootstrap, truncations with one; episodes in one array do not mix."""
    data = sample(steps)
    next_value = data["next_q"].max(axis=1)
    found = n_step_returns(data["reward"], data["discount"], next_value, data["last"], DEPTHS)
    np.testing.assert_allclose(found, table(lambda t, n: naive_n_step(data, next_value, t, n), steps), **CLOSE)


@pytest.mark.parametrize("steps", STEPS)
def test_traced_returns_against_a_walk(steps):
    """The trace multiplies from the second action on."""
    data = sample(steps)
    rng = np.random.default_rng(steps)
    value, next_value, trace = rng.normal(size=(3, steps))
    found = traced_returns(
        value, data["reward"], data["discount"], next_value, np.append(trace[1:], 9.0), data["last"], DEPTHS
    )
    expected = table(lambda t, n: naive_traced(data, value, next_value, trace, t, n), steps)
    np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_lambda_returns_against_weighted_depths(lam):
    """The recursion equals the λ-weighted mean of all n-step returns; λ = 1 → to the end, λ = 0 → one step."""
    data = sample(33)
    next_value = data["next_q"].max(axis=1)
    inputs = (data["reward"], data["discount"], next_value, data["last"])
    found = lambda_returns(*inputs[:3], lam, data["last"], (TO_END,))[:, 0]
    everything = n_step_returns(*inputs, tuple(range(1, 34)))
    np.testing.assert_allclose(found, everything @ table1.lambda_return(lam, 33).depth_prior, **CLOSE)
    if lam == 1:
        np.testing.assert_allclose(found, n_step_returns(*inputs, (TO_END,))[:, 0], **CLOSE)
    if lam == 0:
        np.testing.assert_allclose(found, n_step_returns(*inputs, (1,))[:, 0], **CLOSE)


def test_distinct_depths_counts_no_return_twice():
    """A depth counts only where it reaches further than every smaller one."""
    data = sample(33)
    found = distinct_depths(lookahead(data["reward"], data["discount"], data["last"], DEPTHS))
    for t in range(33):
        ends = [steps_from(data, t, n)[-1] for n in DEPTHS]
        assert found[t].tolist() == [end not in ends[:i] for i, end in enumerate(ends)]


# ---------------------------------------------------------------- target rules

LAM = 0.8
PI = np.array([0.5, 0.3, 0.2])


def target_policy(name, q, next_action):
    """π'(·|s) at one state, by name."""
    if name == "action taken":
        return np.eye(3)[next_action]
    best = np.eye(3)[q.argmax()]
    return {"greedy": best, "given": PI, "nearly greedy": 0.9 * best + 0.1 / 3}[name]


RULES = {
    "q-learning": (targets.q_learning(), "greedy", None),
    "n-step": (targets.n_step(3), "greedy", None),
    "n-step sarsa": (targets.n_step_sarsa(3), "action taken", None),
    "monte carlo": (targets.monte_carlo(), "greedy", None),
    "expected sarsa": (targets.expected_sarsa(PI), "given", None),
    "nearly greedy": (targets.TargetRule(table1.multi_step(2), EpsilonGreedy(0.1)), "nearly greedy", None),
    "importance sampling": (targets.importance_sampling(3, PI), "given", lambda p, b: p / b),
    "retrace": (targets.retrace(LAM, Expected(PI)), "given", lambda p, b: LAM * min(1.0, p / b)),
    "retrace, greedy": (targets.retrace(LAM), "greedy", lambda p, b: LAM * min(1.0, p / b)),
    "q(lambda)": (targets.q_lambda(LAM), "greedy", lambda p, b: LAM),
    "watkins": (targets.watkins_q_lambda(LAM), "greedy", lambda p, b: LAM * (p > 0)),
    "sarsa(lambda)": (targets.sarsa_lambda(LAM, 4), "action taken", lambda p, b: LAM),
    "tree backup": (targets.tree_backup(LAM, Expected(PI)), "given", lambda p, b: LAM * p),
    "highway": (targets.highway((2, 5)), "greedy", None),
    "highway optimality": (targets.highway_optimality((2, 5, TO_END)), "greedy", None),
    "soft highway": (targets.soft_highway(alpha=0.6), "greedy", None),
    "gate at 0": (targets.TargetRule(table1.limited_gate(4, 0)), "greedy", None),
    "gate at 3": (targets.TargetRule(table1.limited_gate((5, 1), 3)), "greedy", None),
    "gate at 2 of 2": (targets.TargetRule(table1.limited_gate((4, 2), 2)), "greedy", None),
    "peng": (targets.peng_q_lambda(LAM, 6), "greedy", None),
}


def naive_targets(rule, policy, trace, data):
    """Returns by walking, then the gate, then the mean, maximum or softmax over depths."""
    steps = len(data["reward"])
    taken = data["q"][np.arange(steps), data["action"]]
    alone = data["last"] | (np.arange(steps) == steps - 1)
    following = np.where(alone, data["next_q"].argmax(axis=1), np.roll(data["action"], -1))
    probability = np.stack([target_policy(policy, data["next_q"][t], following[t]) for t in range(steps)])
    next_value = (probability * data["next_q"]).sum(axis=1)
    if trace is not None:
        weight = np.zeros(steps)
        for t in range(1, steps):
            weight[t] = trace(probability[t - 1, data["action"][t]], data["behaviour"][t])

    def at(t, n):
        if trace is None:
            return naive_n_step(data, next_value, t, n)
        return naive_traced(data, taken, next_value, weight, t, n)

    backup, found = rule.backup, []
    for t in range(steps):
        returns = np.array([at(t, n) for n in backup.depths])
        if backup.gate_depth is not None:
            returns = np.maximum(returns, at(t, backup.gate_depth) if backup.gate_depth else taken[t])
        prior = np.ones(len(returns)) if backup.depth_prior is None else backup.depth_prior
        if backup.depth_alpha == math.inf:
            found.append(returns.max())
        else:
            found.append(np.average(returns, weights=prior * np.exp(backup.depth_alpha * returns)))
    return np.array(found)


@pytest.mark.parametrize("name", RULES)
def test_targets_against_loops(name):
    """Every named algorithm: its target is the one its equation gives, in NumPy and in JAX."""
    rule, policy, trace = RULES[name]
    # the λ-return walks its path once; the loops weigh the returns of every depth
    by_loops = targets.TargetRule(table1.lambda_return(LAM, 6)) if name == "peng" else rule
    for steps in (1, 30):
        data = sample(steps)
        found = targets.targets(rule, trajectory(data), data["q"], data["next_q"])
        np.testing.assert_allclose(found, naive_targets(by_loops, policy, trace, data), **CLOSE)
    on_device = jax.jit(lambda d, q, x: targets.targets(rule, d, q, x))(
        trajectory(data, jnp), jnp.asarray(data["q"]), jnp.asarray(data["next_q"])
    )
    np.testing.assert_allclose(on_device, found, **CLOSE)


def test_bootstraps():
    """Maxmin takes the least of the networks first; Double chooses by one table and prices by the other."""
    rng = np.random.default_rng(0)
    q, other = rng.normal(size=(2, 5, 3))
    np.testing.assert_array_equal(maxmin(np.stack([q, other])), np.minimum(q, other))
    chosen = Double(other)(q)
    np.testing.assert_array_equal((chosen * q).sum(axis=-1), q[np.arange(5), other.argmax(axis=1)])
    np.testing.assert_allclose(EpsilonGreedy(0.2)(q).sum(axis=-1), 1, **CLOSE)


# ---------------------------------------------------------------- relations


def by_traces(data, delta, decay):
    """Offline eligibility traces: Σ over later errors, each handed back with the product of the decays between."""
    total = np.zeros(len(delta))
    eligibility = np.zeros(len(delta))
    for t in range(len(delta)):
        if t > 0:
            eligibility *= 0.0 if data["last"][t - 1] else data["discount"][t - 1] * decay[t]
        eligibility[t] += 1
        total += delta[t] * eligibility
    return total


@pytest.mark.parametrize("name", ["watkins", "sarsa(lambda)", "monte carlo"])
def test_forward_view_equals_offline_eligibility_traces(name):
    """The return minus Q(s,a) is what backward traces over the whole path add up to."""
    data = sample(64)
    rows = np.arange(64)
    taken = data["q"][rows, data["action"]]
    alone = data["last"] | (rows == 63)
    best = data["next_q"].max(axis=1)
    acted = np.where(alone, best, data["next_q"][rows, np.roll(data["action"], -1)])
    was_greedy = data["action"] == data["q"].argmax(axis=1)
    rule, next_value, decay = {
        "watkins": (targets.watkins_q_lambda(LAM), best, LAM * was_greedy),
        "sarsa(lambda)": (targets.sarsa_lambda(LAM), acted, np.full(64, LAM)),
        "monte carlo": (targets.monte_carlo(), acted, np.ones(64)),
    }[name]
    delta = data["reward"] + data["discount"] * next_value - taken
    found = targets.targets(rule, trajectory(data), data["q"], data["next_q"])
    np.testing.assert_allclose(found - taken, by_traces(data, delta, decay), **CLOSE)


def test_special_cases_are_the_same_numbers():
    """λ = 1 is to the end, λ = 0 one step, and the Highway family with depth 1 is Q-learning bit for bit."""
    data = sample(64)

    def found(rule):
        return targets.targets(rule, trajectory(data), data["q"], data["next_q"])

    one_step = found(targets.q_learning())
    for rule in (
        targets.soft_highway((1,), math.inf),
        targets.highway_optimality(1),
        targets.highway(1),
        targets.n_step(1),
        targets.soft_highway((1,), 0.005),
    ):
        np.testing.assert_array_equal(found(rule), one_step)
    for rule in (targets.retrace(0.0), targets.watkins_q_lambda(0.0), targets.peng_q_lambda(0.0, 5)):
        np.testing.assert_allclose(found(rule), one_step, **CLOSE)
    to_the_end = found(targets.monte_carlo())
    np.testing.assert_allclose(found(targets.peng_q_lambda(1.0, 64)), to_the_end, **CLOSE)
    np.testing.assert_allclose(found(targets.n_step(64)), to_the_end, **CLOSE)
    np.testing.assert_allclose(found(targets.sarsa_lambda(1.0)), to_the_end, **CLOSE)
    np.testing.assert_allclose(found(targets.sarsa_lambda(LAM, 1)), found(targets.n_step_sarsa(1)), **CLOSE)


def test_the_end_of_the_array_cuts_like_a_truncation():
    """Marking the last row as cut changes nothing: an unfinished episode bootstraps from its last successor."""
    data = sample(20)
    cut = data | {"last": data["last"] | (np.arange(20) == 19)}
    for rule in (targets.n_step(4), targets.sarsa_lambda(LAM), targets.retrace(LAM), targets.soft_highway()):
        one, two = (targets.targets(rule, trajectory(x), x["q"], x["next_q"]) for x in (data, cut))
        np.testing.assert_array_equal(one, two)


def test_float32_stays_float32():
    """No rule widens what it is given."""
    data = {name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in sample(20).items()}
    for rule, _, _ in RULES.values():
        if isinstance(rule.bootstrap, Expected):
            continue
        assert targets.targets(rule, trajectory(data), data["q"], data["next_q"]).dtype == np.float32


@pytest.mark.parametrize(
    "rule",
    [
        targets.q_learning(),
        targets.n_step(4),
        targets.n_step_sarsa(4),
        targets.highway((2, 5)),
        targets.soft_highway((1, 2, 6), 0.7),
        targets.watkins_q_lambda(LAM, 5),
        targets.retrace(LAM, Expected(PI), 5),
    ],
)
def test_sampled_equals_exact_on_deterministic_models(rule):
    """Where model and behaviour are deterministic, the return of a sampled path is the exact operator's value."""
    rng = np.random.default_rng(7)
    S, A, T = 6, 3, 40
    successor, reward, q = rng.integers(S, size=(S, A, 1)), rng.normal(size=(S, A)), rng.normal(size=(S, A))
    mdp = MDP.from_table(reward, successor, np.ones((S, A, 1)), 0.9)
    policy = rng.integers(A, size=S)
    exact = np.asarray(jax.jit(operator(rule, mdp, policy[None]))(q))
    for s, a in np.ndindex(S, A):
        states, actions = [s], [a]
        for _ in range(T):
            states.append(int(successor[states[-1], actions[-1], 0]))
            actions.append(int(policy[states[-1]]))
        s_, a_ = np.array(states[:T]), np.array(actions[:T])
        data = Trajectory(a_, reward[s_, a_], np.full(T, 0.9), np.zeros(T, bool), np.ones(T))
        returns = targets.targets(rule, data, q[s_], q[np.array(states[1:])])
        assert returns[0] == pytest.approx(exact[s, a], abs=1e-10)


def test_sampled_returns_give_the_gate_its_reference():
    """The reference is the return at the gate's depth, whether or not that depth is among the depths; at 0 it is Q."""
    data = sample(30)
    for gate_depth in (0, 1, 2, 3):
        rule = targets.TargetRule(table1.limited_gate((2, 4), gate_depth))
        returns, reference = sampled_returns(rule, trajectory(data), data["q"], data["next_q"])
        assert returns.shape == (30, 2)
        expected = data["q"][np.arange(30), data["action"]]
        if gate_depth:
            value = (greedy(data["next_q"]) * data["next_q"]).sum(axis=1)
            expected = [naive_n_step(data, value, t, gate_depth) for t in range(30)]
        np.testing.assert_allclose(reference, expected, **CLOSE)
