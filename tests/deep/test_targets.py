"""The targets of a whole store against loops written from the equations, in NumPy and float64.

Two rings at a time: one that has wrapped around and one that is still filling.
"""

import dataclasses
import functools
import importlib.util
import itertools
import json
import math
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax_reference
from store_reference import Known, Reference, Row, smax

from highway_rl.core import targets
from highway_rl.core.backup import TO_END, Backup
from highway_rl.core.bootstrap import Double, EpsilonGreedy
from highway_rl.core.targets import TargetRule
from highway_rl.data import ring as stores
from highway_rl.data.codec import codec_of
from highway_rl.deep import diagnostics, dqn, networks
from highway_rl.deep.algorithms import ALGORITHMS, named_agent, with_bootstrap
from highway_rl.deep.dqn import DQN
from highway_rl.deep.learning import Learning
from highway_rl.deep.refresh import whole_store, whole_targets
from highway_rl.types import Spec

SLOTS, GAMMA, STEP = 48, 0.9, 160
STUB = Spec("stub", jax.ShapeDtypeStruct((3,), bool), 3)
SMALL = functools.partial(networks.FlatNetwork, hidden=(8,))
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # to compile, not to run
SETTINGS: dict[str, Any] = {"discount": GAMMA, "network": SMALL, "epsilon_steps": 500.0}
EPSILON = 1 + STEP / 500 * (0.1 - 1)


add = jax.jit(stores.add)


def as_rows(steps):
    """Steps as the store takes them."""
    coded = codec_of(STUB)
    return stores.Rows(
        obs=encoded(coded, [s.obs for s in steps]),
        action=jnp.asarray([s.action for s in steps], jnp.int32),
        reward=jnp.asarray([s.reward for s in steps], jnp.float32),
        terminated=jnp.asarray([s.terminated for s in steps]),
        behaviour=jnp.asarray([s.behaviour for s in steps], jnp.float32),
        policy=jnp.asarray([s.policy for s in steps], jnp.int32),
        born=jnp.asarray([s.born for s in steps], jnp.int32),
        real=jnp.asarray([s.real for s in steps]),
    )


def encoded(coded, observations):
    return jnp.asarray(np.packbits(np.asarray(observations, bool), axis=1))


def build(seed, blocks, count=11, policy_length=7):
    """A store filled block by block, and the list of all rows it was ever told; row i went to slot i modulo SLOTS."""
    rng = np.random.default_rng(seed)
    coded = codec_of(STUB)
    store, told, done = stores.empty(SLOTS - 1, jnp.zeros(coded.width, jnp.uint8)), [], 0
    draw = lambda: tuple(bool(x) for x in rng.random(3) < 0.2)  # noqa: E731
    current = draw()
    for _ in range(blocks):
        steps, cut, successors = [], [], []
        for _ in range(count):
            terminated = bool(rng.random() < 0.07)
            truncated = bool(not terminated and rng.random() < 0.09)
            reward, behaviour = float(np.float32(rng.normal())), float(np.float32(rng.uniform(0.1, 1)))
            step = Row(current, int(rng.integers(3)), reward, terminated, behaviour, done // policy_length, True, done)
            after = draw()
            steps.append(step)
            cut.append(truncated)
            successors.append(after)
            told += [step, Row(after, real=False)] if truncated else [step]
            current = draw() if terminated or truncated else after
            done += 1
        now = coded.encode(jnp.asarray(current))
        store = add(store, as_rows(steps), jnp.asarray(cut), encoded(coded, successors), now)
    return store, [*told, Row(current, real=False)]


@functools.cache
def two_rings():
    """A ring that has wrapped and one that has not, stacked, and for each its rows with the slots they lie in."""
    (full, long), (filling, short) = build(9, 7), build(5, 3)
    assert len(long) > SLOTS > len(short)
    kept = [[(i % SLOTS, row) for i, row in enumerate(told)][-SLOTS:] for told in (long, short)]
    return jax.tree.map(lambda *x: jnp.stack(x), full, filling), kept


def some_networks(agent, seed, fresh=False):
    """Networks with biases, so that no two actions tie; fresh ones tie where the observation is all zeros."""
    params = dqn.start(agent, STUB, jax.random.key(seed)).params
    if fresh:
        return params
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + jnp.asarray(rng.normal(size=x.shape), x.dtype), params)


def learning(agent, params, older=None):
    return Learning(params, None, older if agent.doubles else None)


@functools.cache
def program(num_networks):
    """The targets of all cases with so many networks as one program: compiling each alone takes minutes."""
    agents = {name: agent for name, (agent, _) in CASES.items() if agent.num_networks == num_networks}

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def run(params, older, store, key):
        return {
            name: whole_targets(agent, STUB, learning(agent, params, older), store, jnp.int32(STEP), key)[0]
            for name, agent in agents.items()
        }

    return run


@functools.cache
def found_and_q(num_networks, fresh):
    """The targets of all those cases by ring and slot, and the newer and the older networks' values everywhere."""
    agent = DQN(num_networks=num_networks, **SETTINGS)
    params, older = some_networks(agent, 2, fresh), some_networks(agent, 52, fresh)
    with mock.patch("highway_rl.deep.diagnostics.look", return_value=()):  # diagnostics are half of the tracing
        found = program(num_networks)(params, older, two_rings()[0], jax.random.key(3))
    everywhere = list(itertools.product([False, True], repeat=3))
    tables = [
        dict(
            zip(everywhere, np.asarray(dqn.q_values(agent, STUB, p, jnp.asarray(everywhere)), np.float64), strict=True)
        )
        for p in (params, older)
    ]
    return {name: np.asarray(x).reshape(-1, SLOTS) for name, x in found.items()}, *tables


def each_ring(case, fresh=False):
    """Of each ring: a reference, and the target found at each of its rows."""
    agent, known = CASES[case]
    found, newer, older = found_and_q(agent.num_networks, fresh)
    pool = []
    for ring in two_rings()[1]:
        rows = [row for _, row in ring]
        newer_q = [newer[row.obs] for row in rows]
        q = [older[row.obs] for row in rows] if known.bootstrap == "double" else newer_q
        pool.append(Reference(rows, q, newer_q, EPSILON, GAMMA))
    for reference, ring, by_slot in zip(pool, two_rings()[1], found[case], strict=True):
        reference.pool = pool
        yield reference, [by_slot[slot] for slot, _ in ring]


def compare(case, fresh=False):
    """The store's targets and the reference's, at every real row of both rings."""
    agent, known = CASES[case]
    for reference, found in each_ring(case, fresh):
        real = [t for t, row in enumerate(reference.rows) if row.real]
        assert len(real) > 30
        if agent.num_policies > 1:
            expected = [smax(list(reference.by_policy(t, known).values()), known.policy_alpha) for t in real]
        else:
            expected = [reference.target(t, known) for t in real]
        np.testing.assert_allclose([found[t] for t in real], expected, rtol=1e-5, atol=1e-5)


def clipped(chance, behaviour, is_greedy):
    return min(1.0, chance / behaviour)


def itself(chance, behaviour, is_greedy):
    return chance


def one(chance, behaviour, is_greedy):
    return 1.0


def only_greedy(chance, behaviour, is_greedy):
    return float(is_greedy)


NAMED = [
    ("dqn", {}, Known()),
    ("double-dqn", {}, Known(bootstrap="double")),
    ("maxmin-dqn", {}, Known()),
    ("n-step-dqn", {}, Known((TO_END,))),
    ("n-step-dqn", {"n": 3}, Known((3,))),
    ("lambda-dqn", {}, Known((TO_END,), trace="peng", lam=0.9)),
    ("watkins-dqn", {}, Known((TO_END,), trace=only_greedy, lam=0.9, bootstrap="shared")),
    ("tree-backup-dqn", {}, Known((TO_END,), trace=itself)),
    ("retrace", {}, Known((TO_END,), trace=clipped)),
    ("n-step-highway-dqn", {}, Known((TO_END,), 1)),
    ("n-step-highway-dqn", {"n": 4}, Known((4,), 1)),
    ("soft-highway-dqn", {}, Known((1, 2, TO_END), 1, 0.005, 0.005)),
    ("soft-highway-dqn", {"depths": (2, 5, 17), "alpha": 2.0}, Known((2, 5, 17), 1, 2.0, 2.0)),
    ("soft-highway-dqn", {"depths": (TO_END, 3), "alpha": 0.0}, Known((TO_END, 3), 1)),
    ("soft-highway-dqn", {"depths": (1, 4, 9), "alpha": math.inf}, Known((1, 4, 9), 1, math.inf, math.inf)),
    ("highway-gate-0", {}, Known((TO_END,), 0)),
    ("highway-gate-3", {}, Known((TO_END,), 3)),
    ("highway-mean-gate", {}, Known((1, TO_END), weights=(0.5, 0.5))),
]
OTHERS = {
    "q-lambda": (targets.q_lambda(0.8), Known((TO_END,), trace=one, lam=0.8)),
    "short-retrace": (targets.retrace(0.9, depth=3), Known((3,), trace=clipped, lam=0.9)),
    "short-peng": (targets.peng_q_lambda(0.5, depth=4), Known((4,), trace="peng", lam=0.5)),
    "no-gate": (TargetRule(Backup((2, 6), depth_alpha=0.7, gate_depth=None)), Known((2, 6), None, 0.7)),
    "gate-3": (TargetRule(Backup((2, 6), (0.2, 0.8), 1.5, gate_depth=3)), Known((2, 6), 3, 1.5, weights=(0.2, 0.8))),
    "gate-0": (TargetRule(Backup((1, 5), (0.3, 0.7), gate_depth=0)), Known((1, 5), 0, weights=(0.3, 0.7))),
}
BOTH = {
    "soft-highway": (targets.soft_highway((1, 3, TO_END), 0.5), Known((1, 3, TO_END), 1, 0.5)),
    "retrace": (targets.retrace(0.9), Known((TO_END,), trace=clipped, lam=0.9)),
    "tree-backup": (targets.tree_backup(0.9), Known((TO_END,), trace=itself, lam=0.9)),
    "peng": (targets.peng_q_lambda(0.7), Known((TO_END,), trace="peng", lam=0.7)),
}
POOLED = [
    ("soft-highway-dqn", {"depths": (1, 2, TO_END), "alpha": 1.0}, Known((1, 2, TO_END), 1, 1.0, 1.0)),
    ("soft-highway-dqn", {"depths": (3, 6), "alpha": math.inf}, Known((3, 6), 1, math.inf, math.inf)),
    ("n-step-highway-dqn", {}, Known((TO_END,), 1)),
    ("n-step-dqn", {"n": 3}, Known((3,))),
    ("highway-gate-0", {"n": 2}, Known((2,), 0)),
    ("highway-gate-3", {}, Known((TO_END,), 3)),
    ("highway-mean-gate", {"n": 5}, Known((1, 5), weights=(0.5, 0.5))),
    ("double-dqn", {}, Known(bootstrap="double")),
]


def label(name, options):
    return " ".join([name, *(f"{key}={value}".replace(str(TO_END), "end") for key, value in options.items())])


def ending(known, bootstrap):
    return dataclasses.replace(known, bootstrap=bootstrap)


CASES = {label(name, options): (named_agent(name, rule=options, **SETTINGS), known) for name, options, known in NAMED}
CASES |= {name: (DQN(rule=rule, **SETTINGS), known) for name, (rule, known) in OTHERS.items()}
CASES |= {
    f"{bootstrap} {name}": (
        DQN(rule=with_bootstrap(rule, bootstrap), num_networks=2, **SETTINGS),
        ending(known, bootstrap),
    )
    for name, (rule, known) in BOTH.items()
    for bootstrap in ("epsilon-greedy", "double")
    if (bootstrap, name) not in {("double", "peng"), ("double", "tree-backup")}  # to save time
}
CASES |= {  # several rules in one agent, of which one counts
    f"{i} of several": (DQN(rule=tuple(rule for rule, _ in BOTH.values()), which=i, **SETTINGS), known)
    for i, (_, known) in enumerate(BOTH.values())
    if i == 1
}
MIXED = {  # one agent whose rules end each in another bootstrap
    "greedy": (targets.q_learning(), Known()),
    "epsilon-greedy": (targets.highway(3, bootstrap=EpsilonGreedy()), Known((3,), 1, bootstrap="epsilon-greedy")),
    "double": (targets.n_step(2, bootstrap=Double()), Known((2,), bootstrap="double")),
}
CASES |= {
    f"{name} of mixed": (DQN(rule=tuple(rule for rule, _ in MIXED.values()), which=i, **SETTINGS), known)
    for i, (name, (_, known)) in enumerate(MIXED.items())
}
CASES |= {
    f"pooled {label(name, options)}": (named_agent(name, rule=options, num_policies=12, **SETTINGS), known)
    for name, options, known in POOLED
}
COMPARED = list(CASES)
CASES |= {
    f"room for {room}": (named_agent(name, rule=options, num_policies=room, **SETTINGS), known)
    for room in (2, 3)
    for name, options, known in POOLED[:1]
}


def test_every_algorithm_is_here():
    assert {name for name, _, _ in NAMED} == set(ALGORITHMS)


@pytest.mark.parametrize("case", COMPARED)
def test_targets(case):
    compare(case)


@pytest.mark.parametrize("case", ["watkins-dqn", "retrace", "soft-highway-dqn", "double-dqn", "epsilon-greedy retrace"])
def test_ties(case):
    """Where all actions are equally good all are greedy to Watkins, and the first to the others."""
    _, newer, older = found_and_q(CASES[case][0].num_networks, True)
    assert np.ptp(newer[False, False, False]) == np.ptp(older[False, False, False]) == 0
    compare(case, fresh=True)


def test_stores_hold_every_case():
    """The comparisons see terminated, cut and running paths, and gates both open and closed."""
    opened = []
    for reference, _ in each_ring("n-step-highway-dqn"):
        rows = reference.rows
        assert any(row.terminated for row in rows)
        assert any(not row.real for row in rows[:-1])
        assert rows[-2].real
        assert not rows[-2].terminated
        assert np.diff(np.sort(reference.q, axis=1), axis=1).min() > 1e-3  # no ties
        for t, row in enumerate(rows):
            if row.real:
                (far,), near = reference.returns(t, Known((TO_END,), 1))
                opened.append(far > near)
    assert 0.2 < np.mean(opened) < 0.8


def test_pools_are_worth_testing():
    """Some pairs were met by several policies, some several times by one, and twelve is room for all policies."""
    assert len({row.policy for ring in two_rings()[1] for _, row in ring}) <= 12
    for ring in two_rings()[1]:
        rows = [row for _, row in ring if row.real]
        met = {}
        for row in rows:
            met.setdefault((row.obs, row.action), []).append(row.policy)
        assert sum(len(set(policies)) >= 4 for policies in met.values()) >= 2
        assert sum(len(set(policies)) < len(policies) for policies in met.values()) >= 2


@pytest.mark.parametrize("room", [2, 3])
def test_fewer_policies_than_met(room):
    """The target is the value of the row's own policy and of as many others as there is room for."""
    case = f"room for {room}"
    known = CASES[case][1]
    shared: dict[Any, float] = {}
    for reference, found in each_ring(case):
        for t, row in enumerate(reference.rows):
            if not row.real:
                continue
            values = reference.by_policy(t, known)
            own = values.pop(row.policy)
            others = itertools.combinations(values.values(), min(room - 1, len(values)))
            possible = np.array([smax([own, *chosen], known.policy_alpha) for chosen in others])
            assert np.isclose(possible, found[t], rtol=1e-5, atol=1e-5).any(), t
            assert shared.setdefault((row.obs, row.action, row.policy), found[t]) == found[t]


def test_pools_reach_across_rings():
    """Some pair was met by other policies in the other ring: a pool of each ring alone would not do."""
    one, two = ({(row.obs, row.action): row.policy for _, row in ring if row.real} for ring in two_rings()[1])
    assert any(one[pair] != two[pair] for pair in one.keys() & two.keys())


SEEN = {
    "dqn": "n-step-dqn n=3",
    "gated": "n-step-highway-dqn",
    "several": "soft-highway-dqn depths=(2, 5, 17) alpha=2.0",
}
SEEN |= {"pooled": "pooled soft-highway-dqn depths=(3, 6) alpha=inf"}


@functools.cache
def all_seen():
    agents = {case: CASES[case][0] for case in SEEN.values()}
    params = some_networks(DQN(**SETTINGS), 2)

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def run(store, key):
        return {
            case: whole_targets(agent, STUB, learning(agent, params), store, jnp.int32(STEP), key)[1]
            for case, agent in agents.items()
        }

    return jax.tree.map(np.asarray, run(two_rings()[0], jax.random.key(3)))


@pytest.mark.parametrize("case", SEEN.values(), ids=SEEN)
def test_what_is_seen(case):
    """Each diagnostic by its meaning, over the steps of both rings together; loops over rows."""
    agent, known = CASES[case]
    shown = dataclasses.replace(known, gate=1 if known.gate is None else known.gate)
    opened, won, bias, value, largest, error, age = [], [], [], [], [], [], []
    ratio: dict[int, list[float]] = {k: [] for k in diagnostics.RATIO_DEPTHS}
    for reference, target in each_ring(case):
        rows, q = reference.rows, reference.q
        for t, row in enumerate(rows):
            if not row.real:
                continue
            far, near = reference.returns(t, shown)
            if agent.num_policies > 1:
                far, near = next((f, n) for policy, f, n in reference.of_policies(t, shown) if policy == row.policy)
            opened.append([x >= near - 1e-6 for x in far])
            won.append(0 if max(far) <= near else 1 + int(np.argmax(far)))
            value.append(max(q[t]))
            largest.append(max(q[t]))
            error.append(abs(target[t] - q[t][row.action]))
            age.append(STEP - row.born)
            total, weight, i = 0.0, 1.0, t
            product = 1.0
            while True:
                total, weight = total + weight * rows[i].reward, weight * GAMMA
                if reference.ends(i):
                    break
                i += 1
                product *= min(1.0, float(rows[i].action == int(np.argmax(q[i]))) / rows[i].behaviour)
                if i - t in ratio:
                    ratio[i - t].append(product)
            if rows[i].terminated:
                bias.append(target[t] - total)
    seen = all_seen()[case]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    close(seen.open, np.mean(opened, axis=0))
    close(seen.won, [np.mean(np.asarray(won) == i) for i in range(len(known.depths) + 1)])
    close(seen.bias, np.mean(bias))
    close(seen.value, np.mean(value))
    close(seen.largest, max(largest))
    close(seen.error, np.mean(error))
    close(seen.age, np.mean(age))
    close(seen.ratio, [np.mean(x) if x else np.nan for x in ratio.values()])
    assert sum(bool(x) for x in ratio.values()) >= 4
    assert len(bias) < len(value)


def test_rows_never_written_may_be_left_out():
    """Rows of a filling store go through the network in pieces, as far as that many steps reach; truncations count."""
    blocks = [build(seed, 1, count=6) for seed in (8, 15)]
    assert any(len(told) > 8 for _, told in blocks), "a truncated step takes a second row"
    store = jax.tree.map(lambda *x: jnp.stack(x), *(ring for ring, _ in blocks))
    agent = DQN(**SETTINGS)
    params = some_networks(agent, 2)

    def go(step):
        return jax.jit(lambda s, key: whole_targets(agent, STUB, learning(agent, params), s, jnp.int32(step), key))(
            store, jax.random.key(0)
        )

    whole, whole_seen = go(2 * SLOTS)
    with mock.patch("highway_rl.deep.refresh.ROWS_AT_ONCE", 4):
        found, seen = go(12)
        reached = jax.jit(lambda s: whole_store(agent, STUB, params, s, jnp.int32(12)))(store)
    real = np.asarray(store.rows.real).reshape(-1)
    assert real.sum() == 12
    np.testing.assert_allclose(found[real], whole[real], rtol=1e-6, atol=1e-6)
    for a, b in zip(seen._replace(age=0), whole_seen._replace(age=0), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not np.any(reached[:, 16:])


def test_other_policies_come_alike():
    """Five policies met one pair and there is room for two: over many keys each other one is chosen as often."""
    rewards = [0.0, 1.0, 2.0, 4.0, 8.0]
    steps = [Row((True, False, True), 1, reward, True, 1.0, 7 + i) for i, reward in enumerate(rewards)]
    rows = as_rows(steps)
    ring = add(stores.empty(6, rows.obs[0]), rows, jnp.zeros(5, bool), rows.obs, rows.obs[0])
    store = jax.tree.map(lambda x: x[None], ring)
    agent = named_agent("dqn", num_policies=2, **SETTINGS)
    params = some_networks(agent, 0)
    draw = jax.jit(
        jax.vmap(lambda key: whole_targets(agent, STUB, learning(agent, params), store, jnp.int32(5), key)[0]),
        compiler_options=QUICKLY,
    )
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 2000)))[:, :5]
    for i, own in enumerate(rewards):
        other = 2 * drawn[:, i] - own
        counts = [np.isclose(other, reward, atol=1e-5).sum() for reward in rewards]
        assert counts[i] == 0
        assert sum(counts) == 2000
        assert np.abs(np.delete(counts, i) - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


@pytest.mark.parametrize("number", [0, *(pytest.param(i, marks=pytest.mark.long) for i in (1, 2, 3))])
def test_against_rlax(number):
    """Retrace and Peng's Q(λ) as rlax has them; its numbers are stored, and made anew where it is installed."""
    case = json.loads(rlax_reference.STORED.read_text())["cases"][number]
    count, ended = len(case["action"]), case["terminated"]
    steps = [
        Row((False,) * 3, case["action"][t], case["reward"][t], ended and t == count - 1, case["behaviour"][t])
        for t in range(count)
    ]
    data = stores.trajectory(as_rows([*steps, Row((False,) * 3, real=False)]), rlax_reference.GAMMA)
    q = jnp.asarray(case["q"], jnp.float32)
    rules = {"retrace": targets.retrace(rlax_reference.RETRACE), "peng": targets.peng_q_lambda(rlax_reference.PENG)}
    for name, rule in rules.items():
        found = dqn.targets(DQN(rule=rule, **SETTINGS), rule, data, q, jnp.int32(0)).target[:count]
        np.testing.assert_allclose(found, case[name], rtol=1e-5, atol=1e-5)
    if importlib.util.find_spec("rlax"):
        for name, again in rlax_reference.by_rlax(case).items():
            np.testing.assert_allclose(again, case[name], rtol=1e-5, atol=1e-6)
