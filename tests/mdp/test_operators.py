"""The exact operators against a slow enumeration of every trajectory, and on the paper's example MDP."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Draws

from highway_rl.core import table1, targets
from highway_rl.core.backup import TO_END, gate_open
from highway_rl.core.bootstrap import EpsilonGreedy, Expected
from highway_rl.envs import make
from highway_rl.mdp.model import MDP
from highway_rl.mdp.operators import as_policies, exact_returns, operator
from highway_rl.solvers import highway_value_iteration

S, A, M = 3, 2, 2
LAM = 0.7


def tiny_world(seed):
    draw = Draws(np.random.default_rng(seed).uniform(1e-9, 1.0, 400))
    policies = np.stack([draw.policy(S, A), draw.actions(S, A)])
    world = draw.mdp(S, A, 3), policies, draw.weights(S, A, M), draw.signed(S, A), draw.policy(S, A)
    return jax.tree.map(np.asarray, world)


def trajectories(mdp, policy, s, a, n):
    """(probability, [(s₀,a₀), …, (sₙ,·)]) of every path of n steps."""
    paths = [(1.0, [(s, a)])]
    for step in range(n):
        longer = []
        for p, path in paths:
            s, a = path[-1]
            for successor, chance in zip(mdp.successor[s, a], mdp.probability[s, a], strict=True):
                if step == n - 1:
                    longer.append((p * float(chance), [*path, (int(successor), None)]))
                    continue
                for b in range(A):
                    longer.append((p * float(chance) * policy[int(successor), b], [*path, (int(successor), b)]))
        paths = [(p, path) for p, path in longer if p > 0]
    return paths


def expected_return(rule, mdp, policy, q, s, a, n):
    """The n-step return of a rule by its definition: discounted rewards and a bootstrap, or Q plus traced TD errors."""
    target, trace = rule
    gamma = float(mdp.discount[0, 0])
    total = 0.0
    for p, path in trajectories(mdp, policy, s, a, n):
        if trace is None:
            rewards = sum(gamma**t * float(mdp.reward[path[t]]) for t in range(n))
            end = path[n][0]
            total += p * (rewards + gamma**n * sum(target(end, b) * q[end, b] for b in range(A)))
            continue
        value, product = q[s, a], 1.0
        for t in range(n):
            if t > 0:
                product *= trace(*path[t])
            after = path[t + 1][0]
            bootstrap = sum(target(after, b) * q[after, b] for b in range(A))
            value += gamma**t * product * (float(mdp.reward[path[t]]) + gamma * bootstrap - q[path[t]])
        total += p * value
    return total


def mean(values, weights):
    return float(np.dot(values, weights) / np.sum(weights))


def soft(alpha):
    def aggregate(values, weights):
        return mean(values, np.exp(alpha * np.array(values)))

    return aggregate


def largest(values, weights):
    return max(values)


class Naive:
    """A rule in words the enumeration understands: depths, threshold, how to aggregate, target policy, trace."""

    def __init__(self, depths, threshold=None, over=mean, weights=None, target=None, trace=None):
        self.depths, self.threshold, self.over = depths, threshold, over
        self.weights = [1.0] * len(depths) if weights is None else weights
        self.target, self.trace = target, trace

    def __call__(self, mdp, policies, prior, q, pi):
        greedy = q.argmax(axis=1)
        result = np.zeros((S, A))
        for s, a in itertools.product(range(S), range(A)):
            by_policy = []
            for policy in policies:
                named = {
                    None: lambda x, b: float(b == greedy[x]),
                    "behaviour": lambda x, b, policy=policy: policy[x, b],
                    "given": lambda x, b: pi[x, b],
                    "nearly greedy": lambda x, b: 0.7 * (b == greedy[x]) + 0.3 / A,
                }
                target = named[self.target]
                trace = self.trace and (
                    lambda x, b, policy=policy, target=target: LAM * self.trace(target(x, b), policy[x, b])
                )

                def at(n, policy=policy, target=target, trace=trace, s=s, a=a):
                    return expected_return((target, trace), mdp, policy, q, s, a, n)

                returns = [at(n) for n in self.depths]
                if self.threshold is not None:
                    reference = at(self.threshold) if self.threshold else q[s, a]
                    returns = [max(x, reference) for x in returns]
                by_policy.append(self.over(returns, self.weights))
            result[s, a] = self.over(by_policy, prior[s, a])
        return result


def clipped(target, behaviour):
    return min(1.0, target / behaviour)


PI = "the target policy of the world"
RULES = {
    "q-learning": (targets.q_learning, Naive((1,))),
    "expected sarsa": (lambda: targets.expected_sarsa(PI), Naive((1,), target="given")),
    "n-step": (lambda: targets.n_step(3), Naive((3,))),
    "nearly greedy": (
        lambda: targets.TargetRule(table1.multi_step((1, 3)), EpsilonGreedy(0.3)),
        Naive((1, 3), target="nearly greedy"),
    ),
    "n-step sarsa": (lambda: targets.n_step_sarsa(3), Naive((3,), target="behaviour")),
    "lambda-return": (
        lambda: targets.peng_q_lambda(LAM, 3),
        Naive((1, 2, 3), weights=[1 - LAM, (1 - LAM) * LAM, LAM**2]),
    ),
    "importance sampling": (
        lambda: targets.importance_sampling(3, PI),
        Naive((3,), target="given", trace=lambda t, b: t / b / LAM),
    ),
    "retrace": (lambda: targets.retrace(LAM, Expected(PI), 4), Naive((4,), target="given", trace=clipped)),
    "retrace, greedy": (lambda: targets.retrace(LAM, depth=3), Naive((3,), trace=clipped)),
    "q(lambda)": (
        lambda: targets.q_lambda(LAM, Expected(PI), 3),
        Naive((3,), target="given", trace=lambda t, b: 1.0),
    ),
    "watkins": (lambda: targets.watkins_q_lambda(LAM, 3), Naive((3,), trace=lambda t, b: float(t > 0))),
    "sarsa(lambda)": (lambda: targets.sarsa_lambda(LAM, 3), Naive((3,), target="behaviour", trace=lambda t, b: 1.0)),
    "tree backup": (
        lambda: targets.tree_backup(LAM, Expected(PI), 3),
        Naive((3,), target="given", trace=lambda t, b: t),
    ),
    "highway": (lambda: targets.highway((2, 3), [0.3, 0.7]), Naive((2, 3), 1, weights=[0.3, 0.7])),
    "highway optimality": (lambda: targets.highway_optimality((1, 3)), Naive((1, 3), 1, largest)),
    "highway softmax": (lambda: targets.soft_highway((2, 3), 1.7), Naive((2, 3), 1, soft(1.7))),
    "gate at 0": (lambda: table1.limited_gate((3,), 0), Naive((3,), 0)),
    "gate at 2": (lambda: table1.limited_gate((3, 1), 2), Naive((3, 1), 2)),
    "expectation gate": (lambda: table1.expectation_gate((2, 3), 0.6), Naive((1, 2, 3), weights=[0.4, 0.3, 0.3])),
}


@jax.jit
def apply_once(rule, mdp, policies, prior, q):
    return operator(rule, mdp, policies, policy_prior=prior)(q)


@pytest.mark.parametrize("name", RULES)
def test_operator_agrees_with_enumeration(name):
    """Every rule's exact operator is what its definition gives when all trajectories are written down."""
    make, naive = RULES[name]
    weighted = naive.over is mean  # max and softmax have no prior over policies
    for seed in range(2):
        mdp, policies, prior, q, pi = tiny_world(seed)
        rule = jax.tree.map(lambda x, pi=pi: pi if x is PI else x, make())
        found = apply_once(rule, mdp, policies, prior if weighted else None, q)
        np.testing.assert_allclose(found, naive(mdp, policies, prior, q, pi), rtol=0, atol=1e-10)


@pytest.mark.parametrize("rule", [targets.monte_carlo(), targets.sarsa_lambda(LAM), targets.retrace(LAM)])
def test_to_the_end_is_the_limit_of_depth(rule):
    """Depth TO_END is what 600 steps converge to."""
    mdp, policies, _, q, _ = tiny_world(5)
    deep = targets.TargetRule(table1.multi_step(600), rule.bootstrap, rule.trace)
    endless, truncated = jax.jit(lambda q: [operator(x, mdp, policies)(q) for x in (rule, deep)])(q)
    np.testing.assert_allclose(endless, truncated, rtol=0, atol=1e-8)


def test_policies_as_actions_or_probabilities():
    """A deterministic policy may come as whole numbers; anything of another shape is refused by name."""
    mdp, policies, _, q, _ = tiny_world(1)
    actions = policies[1:].argmax(axis=-1)
    rule = table1.highway(3)
    one, two = jax.jit(lambda q: [operator(rule, mdp, p)(q) for p in (actions, policies[1:])])(q)
    np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="empty"):
        as_policies(np.zeros((0, S)), mdp)
    with pytest.raises(ValueError, match=r"policies has shape \(2, 3, 5\)"):
        as_policies(np.zeros((2, 3, 5)), mdp)


# ---------------------------------------------------------------- the paper's example

GO, LEAVE = 0, 1
END = 17


def example():
    """S_A, s1, s2, seven blue states, seven orange ones, the end; red leaves at s1, orange at s2. γ = 1."""
    P, R = np.zeros((END + 1, 2, END + 1)), np.zeros((END + 1, 2))
    following = {9: END, 16: END, END: END}
    for s in range(END + 1):
        P[s, :, following.get(s, s + 1)] = 1
    for s, to, reward in ((0, END, 6.0), (1, END, -9.0), (2, 10, 0.0)):
        P[s, LEAVE], R[s, LEAVE] = np.eye(END + 1)[to], reward
    R[9], R[16] = 9.0, 3.0
    blue, orange, red = np.zeros((3, END + 1), int)
    orange[2] = red[1] = LEAVE
    return MDP.from_dense(P, R, 1.0), np.stack([blue, orange, red])


def iterates(rule, count=25):
    """Q₀ = 0, Q₁, …, [k s a]."""
    mdp, policies = example()
    apply = operator(rule, mdp, policies)
    start = jnp.zeros((END + 1, 2))
    return jnp.concatenate([start[None], jax.lax.scan(lambda q, _: (apply(q),) * 2, start, length=count)[1]])


def at_each_depth(make):
    """The iterates for n = 1 … 10, as ten priors over one set of depths."""
    runs = jax.jit(jax.vmap(lambda prior: iterates(make(range(1, 11), prior))))
    return np.asarray(runs(jnp.eye(10)))


def iterations(q):
    """How many applications until nothing changes; the one that only confirms it is not counted."""
    return int(np.flatnonzero(np.abs(q[1:] - q[:-1]).max(axis=(1, 2)) > 1e-10)[-1]) + 1


def test_example_multi_step_fixed_points():
    """At (S_A, ↗) the n-step operator ends at 9, 3, 1, 1, … for n = 1 … 10, so from n = 2 on ↘ looks better."""
    found = at_each_depth(table1.multi_step)[:, -1, 0]
    np.testing.assert_allclose(found[:, GO], [9, 3] + [1] * 8, atol=1e-9)
    assert found.argmax(axis=1).tolist() == [GO] + [LEAVE] * 9


def test_example_highway_fixed_points_and_iterations():
    """Highway ends at 9 for every n after 10, 6, 5, 4, 4, 4, 4, 3, 3, 3 iterations; at n = 10 through 4 and 7⅔."""
    runs = at_each_depth(table1.highway)
    np.testing.assert_allclose(runs[:, -1, 0, GO], 9, atol=1e-9)
    assert [iterations(q) for q in runs] == [10, 6, 5, 4, 4, 4, 4, 3, 3, 3]
    np.testing.assert_allclose(runs[9][1:4, 0, GO], [4, 23 / 3, 9], atol=1e-9)


def test_example_optimality_needs_one_iteration():
    """𝒢* over depths 1 … 10 is at Q* after one iteration; the uniform mean over them needs 10, not three."""
    rules = [make(range(1, 11)) for make in (table1.highway_optimality, table1.highway)]
    largest, uniform = (np.asarray(q) for q in jax.jit(lambda: [iterates(rule) for rule in rules])())
    assert (iterations(largest), largest[1][0, GO]) == (1, 9.0)
    np.testing.assert_allclose(uniform[1:6, 0, GO], [0.4, 3.1, 6.3, 8.3, 8.9], atol=0.05)
    assert int(np.argmax(np.abs(uniform[:, 0, GO] - 9) < 1e-10)) == 10


def test_example_chosen_depths():
    """The gate of n = 10 at (S_A, ↗): blue always takes n, red always 1, orange n at first and 1 from then on."""
    mdp, policies = example()
    rule = table1.highway(10)

    @jax.jit
    def chosen():
        def opened(q, policy):
            return gate_open(*exact_returns(rule, mdp, policy, q))[0, GO, 0]

        over_policies = jax.vmap(opened, in_axes=(None, 0))
        return jax.vmap(over_policies, in_axes=(0, None))(iterates(rule, 5), as_policies(policies, mdp))

    blue, orange, red = np.where(chosen(), 10, 1).T.tolist()
    assert blue == [10] * 6
    assert orange == [10, 1, 1, 1, 1, 1]
    assert red == [1] * 6


def test_example_to_the_end():
    """With discount 1 the return to the end exists as long as every path ends: here after at most 10 steps."""
    mdp, policies = example()
    q = jnp.zeros((END + 1, 2))
    endless, ten = jax.jit(lambda: [operator(table1.highway(n), mdp, policies)(q) for n in (TO_END, 10)])()
    np.testing.assert_allclose(endless, ten, atol=1e-12)
    assert float(endless[0, GO]) == pytest.approx(4.0)


def test_what_an_operator_refuses():
    mdp = make("garnet", states=4, actions=2, branching=2)
    rule, good = table1.highway(3), np.zeros((2, 4), int)
    for policies, says in (
        (np.zeros((0, 4), int), "is empty"),
        (good + 2, "actions from 2 to 2: give 0 to 1"),
        (good - 1, "actions from -1 to -1"),
        (np.ones((2, 4, 2)), r"policies=\[1.0, 1.0\]"),
        (np.full((2, 4, 2), np.nan), "policies=.*sum to one"),
    ):
        with pytest.raises(ValueError, match=says):
            operator(rule, mdp, policies)
    for prior, says in (
        ([1.0], r"shape \(1,\): give 2 entries"),
        ([1.5, -0.5], "give entries >= 0"),
        ([0.5, 0.6], "sum to one"),
    ):
        with pytest.raises(ValueError, match=f"policy_prior.*{says}"):
            operator(rule, mdp, good, policy_prior=prior)
    with pytest.raises(ValueError, match=r"q has shape \(4, 3\): give .*\(4, 2\)"):
        operator(rule, mdp, good)(np.zeros((4, 3)))


@pytest.mark.long
def test_an_operator_takes_either_form_of_a_model():
    mdp = make("garnet", states=4, actions=2, branching=2)
    q, policies = np.arange(8.0).reshape(4, 2), np.zeros((2, 4), int)
    both = [operator(table1.highway((2, TO_END)), m, policies)(q) for m in (mdp, mdp.sparse())]
    np.testing.assert_allclose(*both, rtol=1e-12)


def test_depths_of_any_kind_of_whole_number():
    rules = [table1.highway(n) for n in (3, np.int64(3), np.arange(3, 4))]
    assert [rule.depths for rule in rules] == [(3,)] * 3
    assert all(type(rule.depths[0]) is int for rule in rules)
    mdp = make("chain")
    assert len({highway_value_iteration(mdp, backup=rule).num_iters for rule in rules}) == 1
