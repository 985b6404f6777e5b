"""`targets` with a user's own data: many paths at once, lists, mixed types, tracing, and what it refuses."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import highway_rl.core
from highway_rl.core import rules, table1, targets
from highway_rl.core.backup import TO_END
from highway_rl.core.bootstrap import Double, EpsilonGreedy, Expected, greedy, on_action
from highway_rl.core.targets import TargetRule, Trajectory, sampled_returns

RNG = np.random.default_rng(0)
BATCH, T, A = (2, 3), 6, 3
PI = np.array([0.5, 0.3, 0.2])
NAMES = ("action", "reward", "discount", "last", "behaviour")


def sample(shape=(*BATCH, T)):
    """Paths with ends of both kinds inside, and none marked at the end of a row."""
    last = RNG.random(shape) < 0.25
    last[..., -1] = False
    return {
        "action": RNG.integers(A, size=shape),
        "reward": RNG.normal(size=shape),
        "discount": np.where(last & (RNG.random(shape) < 0.5), 0.0, RNG.uniform(0.5, 1.0, shape)),
        "last": last,
        "behaviour": RNG.uniform(0.1, 1.0, shape),
        "q": RNG.normal(size=(*shape, A)),
        "next_q": RNG.normal(size=(*shape, A)),
    }


def found(rule, data, to=lambda x: x):
    path = Trajectory(*(to(data[name]) for name in NAMES))
    return targets.targets(rule, path, to(data["q"]), to(data["next_q"]))


DATA = sample()
RULES = {
    "q-learning": rules.q_learning(),
    "n-step": rules.n_step(4),
    "n-step sarsa": rules.n_step_sarsa(3),
    "monte carlo": rules.monte_carlo(),
    "monte carlo sarsa": rules.monte_carlo(bootstrap=on_action),
    "expected sarsa": rules.expected_sarsa(PI),
    "peng": rules.peng_q_lambda(0.8),
    "importance sampling": rules.importance_sampling(3, PI),
    "retrace": rules.retrace(0.9, Expected(PI)),
    "q(lambda)": rules.q_lambda(0.8, depth=5),
    "watkins": rules.watkins_q_lambda(0.8),
    "sarsa(lambda)": rules.sarsa_lambda(0.8),
    "tree backup": rules.tree_backup(0.8, EpsilonGreedy(0.2)),
    "q(sigma)": rules.q_sigma(0.5, EpsilonGreedy(0.2)),
    "highway": rules.highway((2, 5, 9, TO_END)),
    "soft highway": rules.soft_highway(alpha=0.7),
    "highway optimality": rules.highway_optimality((2, 7)),
    "gate at 0": TargetRule(table1.limited_gate((3, 8), 0)),
}
EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


@EVERY
def test_many_paths_are_as_each_alone(rule):
    """Rows do not see each other: for any rule the targets are those of a loop over rows."""
    together = found(rule, DATA)
    assert together.shape == (*BATCH, T)
    for row in np.ndindex(*BATCH):
        alone = found(rule, {name: x[row] for name, x in DATA.items()})
        np.testing.assert_allclose(together[row], alone, rtol=0, atol=1e-14)


@EVERY
def test_jax_traced_and_mapped(rule):
    """In `jit`, and `vmap` over rows, as in NumPy."""
    expected = found(rule, DATA)
    on_device = {name: jnp.asarray(x) for name, x in DATA.items()}
    together = jax.jit(lambda data: found(rule, data))(on_device)
    np.testing.assert_allclose(together, expected, atol=1e-12)
    mapped = jax.jit(jax.vmap(jax.vmap(lambda data: found(rule, data))))(on_device)
    np.testing.assert_allclose(mapped, expected, atol=1e-12)


def test_bootstraps_and_priors_of_their_own_per_step():
    """A selector, a policy or a prior with the axes of the data stays with its step."""
    selector, policy = RNG.normal(size=(*BATCH, T, A)), RNG.dirichlet(np.ones(A), size=(*BATCH, T))
    prior = RNG.dirichlet(np.ones(2), size=(*BATCH, T, 1))
    for build in (
        lambda row: rules.n_step(3, bootstrap=Double(selector[row])),
        lambda row: rules.tree_backup(0.9, Expected(policy[row])),
        lambda row: rules.highway((2, 4), prior[row]),
    ):
        together = found(build(()), DATA)
        for row in np.ndindex(*BATCH):
            np.testing.assert_array_equal(together[row], found(build(row), {name: x[row] for name, x in DATA.items()}))


def test_gradient_is_that_of_the_returns():
    """The target of a 2-step path is r₀ + γ(r₁ + γ max Q): its derivatives are 1, γ and γ² at the best action."""
    gamma, one = 0.9, jnp.zeros((1, 2, 2)).at[0, 1, 1].set(1.0)

    def first(reward, next_q):
        path = Trajectory([[0, 0]], reward, gamma, [[False, False]])
        return targets.targets(rules.n_step(2), path, jnp.zeros((1, 2, 2)), next_q)[0, 0]

    by_reward, by_value = jax.grad(first, argnums=(0, 1))(jnp.zeros((1, 2)), one)
    np.testing.assert_allclose(by_reward, [[1, gamma]], atol=1e-12)
    np.testing.assert_allclose(by_value, gamma**2 * one, atol=1e-12)


# ---------------------------------------------------------------- what may come in


@pytest.mark.parametrize("shape", [(T,), (2, T), (2, 0, T)])
def test_lists_are_numpy(shape):
    """Nested lists give NumPy's answer, as do flags written 0 and 1."""
    data = sample(shape)
    expected = found(RULES["retrace"], data)
    given = data | {"q": data["q"].reshape(*shape, A), "last": data["last"].astype(int)}
    if 0 not in shape:  # a list without entries has no shape
        assert isinstance(found(RULES["retrace"], given, np.ndarray.tolist), np.ndarray)
        np.testing.assert_array_equal(found(RULES["retrace"], given, np.ndarray.tolist), expected)
    for dtype in (int, np.float32, np.uint8):
        np.testing.assert_array_equal(found(RULES["retrace"], data | {"last": data["last"].astype(dtype)}), expected)


def test_whole_numbers_become_real_ones():
    """Integer values and rewards, any integer type of actions; never an integer target."""
    data = DATA | {name: RNG.integers(-5, 5, size=DATA[name].shape) for name in ("q", "next_q", "reward")}
    for action_type in (np.int32, np.uint8, np.int64):
        kind = data | {"action": data["action"].astype(action_type)}
        real = kind | {name: kind[name].astype(float) for name in ("q", "next_q", "reward")}
        for to in (np.asarray, jnp.asarray):
            answer = found(RULES["soft highway"], kind, to)
            assert answer.dtype == np.float64
            np.testing.assert_array_equal(answer, found(RULES["soft highway"], real, to))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_answer_is_of_the_kind_and_dtype_of_q(dtype):
    """Whatever the kinds and types of the rest."""
    for to, kind in ((np.asarray, np.ndarray), (jnp.asarray, jax.Array)):
        for other in (np.asarray, jnp.asarray):
            path = Trajectory(*(other(DATA[name]) for name in NAMES))
            answer = targets.targets(RULES["retrace"], path, to(DATA["q"].astype(dtype)), other(DATA["next_q"]))
            assert isinstance(answer, kind)
            assert answer.dtype == dtype
            np.testing.assert_allclose(answer, found(RULES["retrace"], DATA), atol=1e-4)


def test_anything_may_be_traced():
    """A traced α or reward among NumPy arrays and lists makes the answer a traced one."""
    expected = found(RULES["soft highway"], DATA)
    by_alpha = jax.jit(lambda alpha: found(rules.soft_highway(alpha=alpha), DATA))(0.7)
    np.testing.assert_allclose(by_alpha, expected, atol=1e-12)
    by_reward = jax.jit(lambda reward: found(RULES["soft highway"], DATA | {"reward": reward}))(DATA["reward"])
    np.testing.assert_allclose(by_reward, expected, atol=1e-12)
    listed = Trajectory(*(DATA[name].tolist() for name in NAMES))
    by_list = jax.jit(lambda path: targets.targets(RULES["soft highway"], path, DATA["q"], DATA["next_q"]))(listed)
    np.testing.assert_allclose(by_list, expected, atol=1e-12)


def test_one_discount_is_every_steps():
    for discount in (0.9, np.float32(0.5), jnp.asarray(0.25), 1):
        every = found(RULES["peng"], DATA | {"discount": np.full((*BATCH, T), float(discount))})
        np.testing.assert_array_equal(found(RULES["peng"], DATA | {"discount": discount}), every)


def test_behaviour_is_asked_for_by_traces_alone():
    """Rules without a trace do not look at it; those with one say so."""
    for rule in RULES.values():
        if rule.trace is None:
            np.testing.assert_array_equal(found(rule, DATA | {"behaviour": None}), found(rule, DATA))
            continue
        with pytest.raises(ValueError, match=r"^behaviour=None: give π\(a\|s\) of each action taken, which the trace"):
            found(rule, DATA | {"behaviour": None})


def test_a_backup_bootstraps_greedily():
    backup = table1.highway((2, 5))
    np.testing.assert_array_equal(found(backup, DATA), found(TargetRule(backup, greedy), DATA))


def test_nan_passes_through_and_stays_in_its_path():
    """A missing reward spoils the targets that see it and no others."""
    reward = DATA["reward"].copy()
    reward[1, 0, 2] = np.nan
    spoilt = np.isnan(found(RULES["monte carlo"], DATA | {"reward": reward}))
    assert spoilt[1, 0, 2]
    assert not spoilt[1, 0, 3:].any()
    spoilt[1, 0] = False
    assert not spoilt.any()


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"q": np.zeros(6)}, r"^q has shape \(6,\): give \[\.\.\., T, A\]"),
        ({"next_q": np.zeros((2, 3, 6, 4))}, r"^next_q has shape \(2, 3, 6, 4\): give \(2, 3, 6, 3\), .* as q has$"),
        ({"action": np.zeros((2, 6), int)}, r"^action has shape \(2, 6\): give \(2, 3, 6\), one number per step of q$"),
        ({"reward": np.zeros((2, 3, 5))}, r"^reward has shape \(2, 3, 5\): give \(2, 3, 6\)"),
        ({"reward": 0.0}, r"^reward has shape \(\): give \(2, 3, 6\)"),
        ({"discount": np.ones(6)}, r"^discount has shape \(6,\): give \(2, 3, 6\)"),
        ({"last": np.zeros((2, 3, 7), bool)}, r"^last has shape \(2, 3, 7\): give \(2, 3, 6\)"),
        ({"behaviour": np.ones((3, 6))}, r"^behaviour has shape \(3, 6\): give \(2, 3, 6\)"),
        ({"action": np.zeros((2, 3, 6))}, "^action has dtype float64: give whole numbers"),
        ({"action": np.zeros((2, 3, 6), bool)}, "^action has dtype bool: give whole numbers"),
        ({"action": np.full((2, 3, 6), 3)}, "^action=3: give actions from 0 to 2, as q has 3$"),
        ({"action": np.full((2, 3, 6), -1)}, "^action=-1: give actions from 0 to 2"),
        ({"reward": np.zeros((2, 3, 6), complex)}, "^reward has dtype complex128: give real numbers"),
        ({"q": np.zeros((2, 3, 6, 3), bool)}, "^q has dtype bool: give real numbers"),
        ({"behaviour": np.full((2, 3, 6), "a")}, "^behaviour has dtype <U1: give real numbers"),
        ({"last": np.full((2, 3, 6), 2)}, "^last=2: give bools, or 0 and 1$"),
        ({"last": np.full((2, 3, 6), np.nan)}, "^last=nan: give bools, or 0 and 1$"),
        ({"last": np.full((2, 3, 6), "a")}, "^last has dtype <U1: give"),
        ({"reward": [[1.0], [1.0, 2.0]]}, "^reward is no array: give numbers"),
        ({"last": None}, "^last has .*: give"),
    ],
)
def test_wrong_data_is_named_in_one_line(changed, says):
    """Which argument has which shape or type, and which it should have."""
    with pytest.raises(ValueError, match=says) as error:
        found(RULES["retrace"], DATA | changed)
    assert "\n" not in str(error.value)


def test_shapes_are_refused_while_traced():
    """Numbers are not known inside `jit`; shapes and types are."""
    with pytest.raises(ValueError, match=r"^reward has shape \(5,\): give \(6,\)"):
        jax.jit(lambda data: found(rules.q_learning(), data))(sample((T,)) | {"reward": np.zeros(5)})


def test_what_is_no_rule_or_no_trajectory_is_refused():
    with pytest.raises(ValueError, match=r"^rule=None: give a TargetRule or a Backup"):
        rules.as_rule(None)
    with pytest.raises(ValueError, match=r"^trajectory is of type dict: give a Trajectory$"):
        targets.as_arrays(DATA, DATA["q"], DATA["next_q"])


# ---------------------------------------------------------------- the room


@pytest.mark.parametrize(
    ("build", "arguments"),
    [
        (rules.q_learning, ()),
        (rules.n_step, (3,)),
        (rules.monte_carlo, ()),
        (rules.peng_q_lambda, (0.7,)),
        (rules.highway, ((1, 3),)),
        (rules.highway_optimality, ((1, 3),)),
        (rules.soft_highway, ()),
    ],
)
def test_any_rule_takes_a_bootstrap(build, arguments):
    """Greedy by default; another one ends the same returns."""
    assert build(*arguments).bootstrap is greedy
    nearly = EpsilonGreedy(0.3)
    rule = build(*arguments, bootstrap=nearly)
    assert rule.bootstrap is nearly
    np.testing.assert_array_equal(
        found(rule, DATA), found(dataclasses.replace(build(*arguments), bootstrap=nearly), DATA)
    )
    assert np.any(found(rule, DATA) != found(build(*arguments), DATA))


def test_the_room_exports_its_names():
    """Every name is there, `targets` is the module, and all the rules are both here and there."""
    room = highway_rl.core
    assert all(hasattr(room, name) for name in room.__all__)
    assert isinstance(room.targets, types.ModuleType)
    assert "targets" not in room.__all__
    constructors = {
        name for name, f in vars(rules).items() if getattr(f, "__annotations__", {}).get("return") == "TargetRule"
    }
    named = {name for name in constructors if not name.startswith(("_", "as_"))}
    assert len(named) == 16
    assert named <= set(room.__all__)
    assert named <= set(targets.__all__)


def test_sampled_returns_keep_the_axes_of_the_data():
    path = Trajectory(*(DATA[name] for name in NAMES))
    returns, reference = sampled_returns(RULES["highway"], path, DATA["q"], DATA["next_q"])
    assert returns.shape == (*BATCH, T, 4)
    assert reference.shape == (*BATCH, T)
