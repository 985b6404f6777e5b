"""The targets of a whole store against loops written from the equations, in NumPy and float64.

Two rings at a time: one that has wrapped around and one that is still filling.
"""

import dataclasses
import functools
import itertools
import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl import store as stores
from highway_rl.agents import dqn, networks
from highway_rl.agents.algorithms import ALGORITHMS, make_agent
from highway_rl.agents.dqn import DQN
from highway_rl.agents.refresh import refresh
from highway_rl.core import targets
from highway_rl.core.backup import TO_END, Backup
from highway_rl.core.targets import TargetRule
from highway_rl.types import Env

SLOTS, GAMMA, STEP = 48, 0.9, 30
ENV = Env("stub", 3, jax.ShapeDtypeStruct((3,), bool), lambda key: None, lambda state, action, key: None)
SMALL = functools.partial(networks.FlatNetwork, hidden=(8,))
SETTINGS: dict[str, Any] = {"discount": GAMMA, "network": SMALL, "epsilon_steps": 100.0}


class Row(NamedTuple):
    """A step as the reference sees it; rows that are not real have only an observation."""

    obs: tuple[bool, ...]
    action: int = 0
    reward: float = 0.0
    terminated: bool = False
    behaviour: float = 1.0
    policy: int = 0
    real: bool = True


@dataclasses.dataclass(frozen=True)
class Spec:
    """What the reference needs to know of an algorithm. `trace`: c(π', π, greedy?) without λ, or "peng"."""

    depths: tuple[int, ...] = (1,)
    gate: int | None = None
    alpha: float = 0.0
    policy_alpha: float = 0.0
    weights: tuple[float, ...] | None = None
    trace: Any = None
    lam: float = 1.0
    shares_ties: bool = False


def smax(values, alpha, weights=None):
    """Σ w e^{αx} x / Σ w e^{αx}: the mean at α = 0, the largest at α = ∞."""
    values = np.asarray(values, np.float64)
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    if alpha == math.inf:
        return values[weights > 0].max()
    weights = weights * np.exp(alpha * values)
    return float((weights * values).sum() / weights.sum())


class Reference:
    """One ring: its rows in the order they happened, the last of them the observation to act on next."""

    def __init__(self, rows, q, newer_q, bootstrap="greedy", epsilon=0.0, discount=GAMMA):
        self.rows, self.q, self.newer_q = rows, q, newer_q
        self.bootstrap, self.epsilon, self.discount = bootstrap, epsilon, discount

    def target_policy(self, i, shares_ties):
        """π'(·|sᵢ)."""
        q = self.newer_q[i] if self.bootstrap == "double" else self.q[i]
        even = (q == q.max()) / (q == q.max()).sum()
        if shares_ties:
            return even
        if self.bootstrap == "epsilon-greedy":
            return (1 - self.epsilon) * even + self.epsilon / len(q)
        return np.eye(len(q))[q.argmax()]

    def value(self, i, spec):
        """V(sᵢ)."""
        return float(self.target_policy(i, spec.shares_ties) @ self.q[i])

    def q_taken(self, i):
        return float(self.q[i][self.rows[i].action])

    def ends(self, i):
        """Whether no step follows step i on its path."""
        return self.rows[i].terminated or not self.rows[i + 1].real

    def after(self, i, spec):
        """What step i is worth after its reward: nothing if it terminated."""
        return 0.0 if self.rows[i].terminated else self.value(i + 1, spec)

    def n_step(self, t, n, spec):
        total = 0.0
        for k in itertools.count():
            total += self.discount**k * self.rows[t + k].reward
            if k + 1 == n or self.ends(t + k):
                return total + self.discount ** (k + 1) * self.after(t + k, spec)

    def traced(self, t, n, spec):
        total, weight = self.q_taken(t), 1.0
        for i in itertools.count(t):
            error = self.rows[i].reward + self.discount * self.after(i, spec) - self.q_taken(i)
            total += weight * error
            if i + 1 == t + n or self.ends(i):
                return total
            following = self.rows[i + 1]
            chance = self.target_policy(i + 1, spec.shares_ties)[following.action]
            is_greedy = self.q[i + 1][following.action] == self.q[i + 1].max()
            weight *= self.discount * spec.lam * spec.trace(chance, following.behaviour, is_greedy)

    def peng(self, t, n, spec):
        here = self.rows[t].reward
        if n == 1 or self.ends(t):
            return here + self.discount * self.after(t, spec)
        later = self.peng(t + 1, n - 1, spec)
        return here + self.discount * ((1 - spec.lam) * self.value(t + 1, spec) + spec.lam * later)

    def returns(self, t, spec):
        """The return of each depth, and what the gate compares with."""
        find = self.peng if spec.trace == "peng" else self.n_step if spec.trace is None else self.traced
        found = [find(t, n, spec) for n in spec.depths]
        return found, self.q_taken(t) if spec.gate == 0 else find(t, spec.gate, spec) if spec.gate else None

    def combine(self, found, reference, spec):
        gated = found if spec.gate is None else [max(x, reference) for x in found]
        return smax(gated, spec.alpha, spec.weights)

    def target(self, t, spec):
        return self.combine(*self.returns(t, spec), spec)

    def by_policy(self, t, spec):
        """The value of each policy that met the pair of row t, averages before the gate."""
        met: dict[int, list[int]] = {}
        for i, row in enumerate(self.rows):
            if row.real and (row.obs, row.action) == (self.rows[t].obs, self.rows[t].action):
                met.setdefault(row.policy, []).append(i)
        values = {}
        for policy, steps in met.items():
            each = [self.returns(i, spec) for i in steps]
            mean = [float(np.mean([found[n] for found, _ in each])) for n in range(len(spec.depths))]
            reference = None if spec.gate is None else float(np.mean([r for _, r in each]))
            values[policy] = self.combine(mean, reference, spec)
        return values


def as_rows(steps):
    """Steps as the store takes them."""
    coded = stores.codec(ENV.observation)
    return stores.Rows(
        obs=encoded(coded, [s.obs for s in steps]),
        action=jnp.asarray([s.action for s in steps], jnp.int32),
        reward=jnp.asarray([s.reward for s in steps], jnp.float32),
        terminated=jnp.asarray([s.terminated for s in steps]),
        behaviour=jnp.asarray([s.behaviour for s in steps], jnp.float32),
        policy=jnp.asarray([s.policy for s in steps], jnp.int32),
        born=jnp.zeros(len(steps), jnp.int32),
        real=jnp.ones(len(steps), bool),
    )


def encoded(coded, observations):
    return jax.vmap(coded.encode)(jnp.asarray(observations, bool))


def build(seed, blocks, count=11, policy_length=9):
    """A store filled block by block, and the list of all rows it was ever told; row i went to slot i modulo SLOTS."""
    rng = np.random.default_rng(seed)
    coded = stores.codec(ENV.observation)
    store, told, done = stores.empty(SLOTS - 1, coded.width), [], 0
    draw = lambda: tuple(bool(x) for x in rng.random(3) < 0.3)  # noqa: E731
    current = draw()
    for _ in range(blocks):
        steps, cut, successors = [], [], []
        for _ in range(count):
            terminated = bool(rng.random() < 0.07)
            truncated = bool(not terminated and rng.random() < 0.09)
            reward, behaviour = float(np.float32(rng.normal())), float(np.float32(rng.uniform(0.1, 1)))
            step = Row(current, int(rng.integers(3)), reward, terminated, behaviour, done // policy_length)
            after = draw()
            steps.append(step)
            cut.append(truncated)
            successors.append(after)
            told += [step, Row(after, real=False)] if truncated else [step]
            current = draw() if terminated or truncated else after
            done += 1
        now = coded.encode(jnp.asarray(current))
        store = stores.add(store, as_rows(steps), jnp.asarray(cut), encoded(coded, successors), now)
    return store, [*told, Row(current, real=False)]


@functools.cache
def two_rings(seed=0):
    """A ring that has wrapped and one that has not, stacked, and for each its rows with the slots they lie in."""
    with jax.enable_x64(False):
        (full, long), (filling, short) = build(seed, 7), build(seed + 100, 3)
        assert len(long) > SLOTS > len(short)
        store = jax.tree.map(lambda *x: jnp.stack(x), full, filling)
    kept = [[(i % SLOTS, row) for i, row in enumerate(told)][-SLOTS:] for told in (long, short)]
    return store, kept


def some_networks(agent, seed, fresh=False):
    """Networks with biases, so that no two actions tie; fresh ones tie where the observation is all zeros."""
    params = dqn.start(agent, ENV, jax.random.key(seed)).params
    if fresh:
        return params
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + jnp.asarray(rng.normal(size=x.shape), x.dtype), params)


def references(agent, params, older, kept, step=STEP):
    """The reference of each ring, with the network's values at its observations."""

    def q_at(params, rows):
        found = dqn.q_values(agent, ENV, params, jnp.asarray([row.obs for row in rows], bool))
        return np.asarray(found, np.float64)

    epsilon = float(dqn.epsilon(agent, step))
    made = []
    for ring in kept:
        rows = [row for _, row in ring]
        q, newer = q_at(older if agent.bootstrap == "double" else params, rows), q_at(params, rows)
        made.append(Reference(rows, q, newer, agent.bootstrap, epsilon))
    return made


def found_by_slot(agent, params, older, store, key=0):
    found, _ = refresh(agent, ENV, params, older, store, jnp.int32(STEP), jax.random.key(key))
    return np.asarray(found).reshape(-1, SLOTS)


def compare(agent, spec, *, seed=0, fresh=False):
    """The store's targets and the reference's, at every real row of both rings."""
    store, kept = two_rings(seed)
    params, older = some_networks(agent, seed, fresh), some_networks(agent, seed + 50, fresh)
    found = found_by_slot(agent, params, older if agent.bootstrap == "double" else None, store)
    count = 0
    for ring, reference, by_slot in zip(kept, references(agent, params, older, kept), found, strict=True):
        for t, (slot, row) in enumerate(ring):
            if not row.real:
                continue
            if agent.num_policies > 1:
                expected = smax(list(reference.by_policy(t, spec).values()), spec.policy_alpha)
            else:
                expected = reference.target(t, spec)
            np.testing.assert_allclose(by_slot[slot], expected, rtol=1e-5, atol=1e-5, err_msg=f"row {t}")
            count += 1
    assert count > 60


def clipped(chance, behaviour, is_greedy):
    return min(1.0, chance / behaviour)


def itself(chance, behaviour, is_greedy):
    return chance


def one(chance, behaviour, is_greedy):
    return 1.0


def only_greedy(chance, behaviour, is_greedy):
    return float(is_greedy)


NAMED = [
    ("dqn", {}, Spec()),
    ("double-dqn", {}, Spec()),
    ("maxmin-dqn", {}, Spec()),
    ("maxmin-dqn", {"k": 3}, Spec()),
    ("n-step-dqn", {}, Spec((TO_END,))),
    ("n-step-dqn", {"n": 3}, Spec((3,))),
    ("lambda-dqn", {}, Spec((TO_END,), trace="peng", lam=0.9)),
    ("watkins-dqn", {}, Spec((TO_END,), trace=only_greedy, lam=0.9, shares_ties=True)),
    ("tree-backup-dqn", {}, Spec((TO_END,), trace=itself)),
    ("tree-backup-dqn", {"lam": 0.7}, Spec((TO_END,), trace=itself, lam=0.7)),
    ("retrace", {}, Spec((TO_END,), trace=clipped)),
    ("retrace", {"lam": 0.6}, Spec((TO_END,), trace=clipped, lam=0.6)),
    ("n-step-highway-dqn", {}, Spec((TO_END,), 1)),
    ("n-step-highway-dqn", {"n": 4}, Spec((4,), 1)),
    ("soft-highway-dqn", {}, Spec((1, 2, TO_END), 1, 0.005, 0.005)),
    ("soft-highway-dqn", {"depths": (2, 5, 17), "alpha": 2.0}, Spec((2, 5, 17), 1, 2.0, 2.0)),
    ("soft-highway-dqn", {"depths": (TO_END, 3), "alpha": 0.0}, Spec((TO_END, 3), 1)),
    ("soft-highway-dqn", {"depths": (1, 4, 9), "alpha": math.inf}, Spec((1, 4, 9), 1, math.inf, math.inf)),
    ("highway-gate-0", {}, Spec((TO_END,), 0)),
    ("highway-gate-3", {}, Spec((TO_END,), 3)),
    ("highway-mean-gate", {}, Spec((1, TO_END), weights=(0.5, 0.5))),
]
UNNAMED = [
    (targets.q_lambda(0.8), Spec((TO_END,), trace=one, lam=0.8)),
    (targets.retrace(0.9, depth=3), Spec((3,), trace=clipped, lam=0.9)),
    (targets.peng_q_lambda(0.5, depth=4), Spec((4,), trace="peng", lam=0.5)),
    (TargetRule(Backup((2, 6), depth_alpha=0.7, gate_depth=None)), Spec((2, 6), None, 0.7)),
    (TargetRule(Backup((2, 6), (0.2, 0.8), 1.5, gate_depth=3)), Spec((2, 6), 3, 1.5, weights=(0.2, 0.8))),
    (TargetRule(Backup((1, 5), (0.3, 0.7), gate_depth=0)), Spec((1, 5), 0, weights=(0.3, 0.7))),
]


def test_every_algorithm_is_here():
    assert {name for name, _, _ in NAMED} == set(ALGORITHMS)


@pytest.mark.parametrize(("name", "options", "spec"), NAMED)
def test_named_algorithms(name, options, spec):
    compare(make_agent(name, rule=options, **SETTINGS), spec)


@pytest.mark.parametrize(("rule", "spec"), UNNAMED)
def test_other_rules(rule, spec):
    compare(DQN(rule=rule, **SETTINGS), spec, seed=1)


@pytest.mark.parametrize("bootstrap", ["epsilon-greedy", "double"])
@pytest.mark.parametrize(
    ("rule", "spec"),
    [
        (targets.soft_highway((1, 3, TO_END), 0.5), Spec((1, 3, TO_END), 1, 0.5)),
        (targets.retrace(0.9), Spec((TO_END,), trace=clipped, lam=0.9)),
        (targets.peng_q_lambda(0.7), Spec((TO_END,), trace="peng", lam=0.7)),
    ],
)
def test_bootstraps(bootstrap, rule, spec):
    """The policy that prices the far end is the one a trace follows, too."""
    compare(DQN(rule=rule, bootstrap=bootstrap, num_networks=2, **SETTINGS), spec)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("watkins-dqn", Spec((TO_END,), trace=only_greedy, lam=0.9, shares_ties=True)),
        ("retrace", Spec((TO_END,), trace=clipped)),
        ("soft-highway-dqn", Spec((1, 2, TO_END), 1, 0.005, 0.005)),
    ],
)
def test_ties(name, spec):
    """Where all actions are equally good all are greedy to Watkins, and the first to the others."""
    agent = make_agent(name, **SETTINGS)
    q = dqn.q_values(agent, ENV, some_networks(agent, 0, fresh=True), jnp.zeros((1, 3), bool))
    assert float(jnp.ptp(q)) == 0
    compare(agent, spec, fresh=True)


def test_stores_hold_every_case():
    """The comparison above sees terminated, cut and running paths, gates that open and gates that stay closed."""
    _, kept = two_rings()
    agent = make_agent("n-step-highway-dqn", **SETTINGS)
    params = some_networks(agent, 0)
    opened = []
    for ring, reference in zip(kept, references(agent, params, None, kept), strict=True):
        rows = [row for _, row in ring]
        assert any(row.terminated for row in rows)
        assert any(not row.real for row in rows[:-1])
        assert rows[-2].real
        assert not rows[-2].terminated
        assert np.diff(np.sort(reference.q, axis=1), axis=1).min() > 1e-3
        for t, row in enumerate(rows):
            if row.real:
                (far,), near = reference.returns(t, Spec((TO_END,), 1))
                opened.append(far > near)
    assert 0.2 < np.mean(opened) < 0.8


def test_one_program_of_several_rules():
    """With several rules `which` picks one; the others leave no mark on its targets."""
    chosen = [targets.q_learning(), targets.retrace(0.9), targets.soft_highway((1, 4, TO_END), 0.5)]
    store, _ = two_rings()
    params = some_networks(DQN(**SETTINGS), 0)
    for which, rule in enumerate(chosen):
        together = found_by_slot(DQN(rule=tuple(chosen), which=which, **SETTINGS), params, None, store)
        np.testing.assert_allclose(together, found_by_slot(DQN(rule=rule, **SETTINGS), params, None, store), rtol=1e-6)


def test_one_ring_is_as_good_as_two():
    """Rings know nothing of each other."""
    store, _ = two_rings()
    agent = make_agent("soft-highway-dqn", num_policies=2, **SETTINGS)
    params = some_networks(agent, 0)
    both = found_by_slot(agent, params, None, store)
    for i in range(2):
        alone = found_by_slot(agent, params, None, jax.tree.map(lambda x, i=i: x[i : i + 1], store))
        np.testing.assert_allclose(alone[0], both[i], rtol=1e-6)


POOLED = [
    ("soft-highway-dqn", {"depths": (1, 2, TO_END), "alpha": 1.0}, Spec((1, 2, TO_END), 1, 1.0, 1.0)),
    ("soft-highway-dqn", {"depths": (3, 6), "alpha": math.inf}, Spec((3, 6), 1, math.inf, math.inf)),
    ("n-step-highway-dqn", {}, Spec((TO_END,), 1)),
    ("n-step-dqn", {"n": 3}, Spec((3,))),
    ("highway-gate-0", {"n": 2}, Spec((2,), 0)),
    ("highway-gate-3", {}, Spec((TO_END,), 3)),
    ("highway-mean-gate", {"n": 5}, Spec((1, 5), weights=(0.5, 0.5))),
    ("double-dqn", {}, Spec()),
]


@pytest.mark.parametrize(("name", "options", "spec"), POOLED)
def test_all_policies_that_met_a_pair(name, options, spec):
    """With room for every policy: averages within a policy, gate, depths, then policies."""
    compare(make_agent(name, rule=options, num_policies=9, **SETTINGS), spec, seed=2)


def test_pools_are_worth_testing():
    """Some pairs were met by several policies, and several times by one."""
    _, kept = two_rings(2)
    rows = [row for _, row in kept[0] if row.real]
    pairs = [(row.obs, row.action) for row in rows]
    several = [len({r.policy for r, p in zip(rows, pairs, strict=True) if p == pair}) for pair in set(pairs)]
    assert sorted(several)[-2] >= 4
    assert len(set(zip(pairs, (r.policy for r in rows), strict=True))) < len(rows) - 5
    assert max(row.policy for row in rows) - min(row.policy for row in rows) < 9


@pytest.mark.parametrize("room", [2, 3])
def test_fewer_policies_than_met(room):
    """The target is the value of the row's own policy and of as many others as there is room for."""
    spec = Spec((1, 2, TO_END), 1, 1.0, 1.0)
    rule = {"depths": spec.depths, "alpha": 1.0}
    agent = make_agent("soft-highway-dqn", rule=rule, num_policies=room, **SETTINGS)
    store, kept = two_rings(2)
    params = some_networks(agent, 2)
    found = found_by_slot(agent, params, None, store, key=3)
    shared: dict[Any, float] = {}
    for number, (ring, reference) in enumerate(zip(kept, references(agent, params, None, kept), strict=True)):
        for t, (slot, row) in enumerate(ring):
            if not row.real:
                continue
            values = reference.by_policy(t, spec)
            own = values.pop(row.policy)
            others = itertools.combinations(values.values(), min(room - 1, len(values)))
            possible = np.array([smax([own, *chosen], 1.0) for chosen in others])
            target = found[number, slot]
            assert np.isclose(possible, target, rtol=1e-5, atol=1e-5).any(), (number, t)
            assert shared.setdefault((number, row.obs, row.action, row.policy), target) == target


def test_other_policies_come_alike():
    """Five policies met one pair and there is room for two: over many keys each other one is chosen as often."""
    rewards = [0.0, 1.0, 2.0, 4.0, 8.0]  # no two sums are alike
    steps = [Row((True, False, True), 1, reward, True, 1.0, 7 + i) for i, reward in enumerate(rewards)]
    coded = stores.codec(ENV.observation)
    rows, nothing = as_rows(steps), jnp.zeros(5, bool)
    ring = stores.add(stores.empty(6, coded.width), rows, nothing, rows.obs, rows.obs[0])
    store = jax.tree.map(lambda x: x[None], ring)
    agent = make_agent("dqn", num_policies=2, **SETTINGS)
    params = some_networks(agent, 0)
    draw = jax.jit(jax.vmap(lambda key: refresh(agent, ENV, params, None, store, jnp.int32(0), key)[0]))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 2000)))[:, :5]
    for i, own in enumerate(rewards):
        other = 2 * drawn[:, i] - own
        counts = [np.isclose(other, reward, atol=1e-5).sum() for reward in rewards]
        assert counts[i] == 0
        assert sum(counts) == 2000
        assert np.abs(np.delete(counts, i) - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


@pytest.mark.parametrize(("name", "lam"), [("retrace", 0.9), ("lambda-dqn", 0.8)])
@pytest.mark.parametrize("terminated", [False, True])
def test_against_rlax(name, lam, terminated):
    """One trajectory without a cut, run on or terminated at its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rlax = pytest.importorskip("rlax")
    rng = np.random.default_rng(5)
    count = SLOTS - 1
    observations = [tuple(bool(x) for x in rng.random(3) < 0.5) for _ in range(SLOTS)]
    steps = [
        Row(obs, int(rng.integers(3)), float(rng.normal()), terminated and t == count - 1, float(rng.uniform(0.1, 1)))
        for t, obs in enumerate(observations[:-1])
    ]
    coded = stores.codec(ENV.observation)
    rows, last = as_rows(steps), coded.encode(jnp.asarray(observations[-1]))
    ring = stores.add(stores.empty(count, coded.width), rows, jnp.zeros(count, bool), rows.obs, last)
    agent = make_agent(name, rule={"lam": lam}, **SETTINGS)
    params = some_networks(agent, 0)
    found = found_by_slot(agent, params, None, jax.tree.map(lambda x: x[None], ring))[0, :count]

    q = dqn.q_values(agent, ENV, params, jnp.asarray(observations, bool))
    discount = jnp.full(count, GAMMA, jnp.float32).at[-1].set(0.0 if terminated else GAMMA)
    taken = q[jnp.arange(count), rows.action]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "lambda-dqn":
            error = rlax.q_lambda(q[:-1], rows.action, rows.reward, discount, q[1:], lam)
        else:
            # rlax wants an action at the far end, too, but starts there from the value
            action, behaviour = jnp.append(rows.action[1:], 0), jnp.append(rows.behaviour[1:], 1.0)
            greedy = jax.nn.one_hot(jnp.argmax(q[1:], axis=1), 3)
            error = rlax.retrace(q[:-1], q[1:], rows.action, action, rows.reward, discount, greedy, behaviour, lam)
    np.testing.assert_allclose(found, error + taken, rtol=1e-5, atol=1e-5)
