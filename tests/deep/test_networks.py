"""Networks by name, the calm one, and the form for a whole store that a GPU uses: the same function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.core import targets
from highway_rl.deep import loop, networks
from highway_rl.deep.dqn import DQN
from highway_rl.deep.layers import Linear, convolve
from highway_rl.deep.networks import NETWORKS, BoardNetwork, SmallBoards, register_network, unrolled
from highway_rl.deep.refresh import make_agent
from highway_rl.deep.schedule import Schedule
from highway_rl.envs import probes
from highway_rl.types import Spec

SHAPES = [
    # board, filters, other features, hidden layers
    ((10, 10, 4), (16, 3, 1), 0, (128,)),
    ((10, 10, 7), (16, 3, 1), 20, (64,)),
    ((9, 12, 3), (5, 3, 2), 2, (8, 6)),
    ((7, 7, 1), (4, 3, 1), 1, (8,)),
    ((3, 3, 2), (4, 3, 1), 0, (8,)),
]


def made(board, filters, others, hidden, level=False):
    """A network with random biases, and 20 observations for it."""
    shapes = [jax.ShapeDtypeStruct(board, bool)] + [jax.ShapeDtypeStruct((others,), bool)] * bool(others)
    net = BoardNetwork(Spec("board", shapes, 5), jax.random.key(0), filters=(filters,), hidden=hidden, level=level)
    rng = np.random.default_rng(0)
    net = jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), net)
    return net, [jnp.asarray(rng.random((20, *s.shape)) < 0.3) for s in shapes]


@pytest.mark.parametrize(
    "shape", [*(pytest.param(s, marks=pytest.mark.long) for s in SHAPES[:3]), *SHAPES[3:], (*SHAPES[2], True)]
)
def test_bands_are_the_same_function(shape):
    net, obs = made(*shape)
    ready = net.prepared()
    assert isinstance(ready, SmallBoards)
    each = lambda obs: (net(obs), ready.by_bands(obs), ready(obs))  # noqa: E731
    wanted, by_bands, chosen = jax.jit(jax.vmap(each))(obs)
    assert np.std(wanted) > 0.1
    np.testing.assert_allclose(by_bands, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(chosen, wanted)  # a CPU goes through the windows


@pytest.mark.long
@pytest.mark.parametrize(
    ("board", "size", "stride"),
    [
        ((84, 84, 4), 8, 4),
        ((20, 20, 6), 4, 2),
        ((23, 26, 5), 4, 2),
        ((30, 31, 3), 6, 2),
        ((9, 8, 3), 3, 3),
        ((9, 9, 4), 3, 1),
    ],
)
def test_a_convolution_is_that_of_jax(board, size, stride):
    """Windows that are blocks, windows that are cut out, sides that leave a rest: values and gradients of one picture,
    of many, one by one and together, and of many for each of several networks."""
    rng, outputs = np.random.default_rng(0), 7
    pictures = jnp.asarray(rng.normal(size=(3, *board)), jnp.float32)
    made = [Linear(size * size * board[2], outputs, jax.random.key(i)) for i in range(2)]
    layer, layers = made[0], jax.tree.map(lambda *x: jnp.stack(x), *made)

    def theirs(layer, picture):
        window = layer.weight.reshape(size, size, board[2], outputs)
        kinds = ("NHWC", "HWIO", "NHWC")
        found = jax.lax.conv_general_dilated(picture[None], window, (stride, stride), "VALID", dimension_numbers=kinds)
        return found[0] + layer.bias

    def ours(layer, picture):
        return convolve(layer, picture, size, stride)

    def with_gradients(one, axes):
        for axis in axes:
            one = jax.vmap(one, in_axes=axis)
        loss = lambda *given: jnp.sum(jnp.sin(one(*given)))  # noqa: E731
        return jax.jit(lambda *given: (one(*given), jax.grad(loss, argnums=(0, 1))(*given)))

    for given, axes in (
        ((layer, pictures[0]), ()),
        ((layer, pictures), ((None, 0),)),
        ((layers, pictures), ((None, 0), (0, None))),
    ):
        found, wanted = with_gradients(ours, axes)(*given), with_gradients(theirs, axes)(*given)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-4), found, wanted)
        if axes:  # the innermost as one: the pictures together
            together = with_gradients(ours, axes[1:])(*given)
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-4), together, wanted)


def test_a_picture_is_bytes_from_0_to_1():
    """As those numbers would be, by windows and by bands; against JAX's own convolution."""
    net, _ = made(*SHAPES[3])
    picture = jnp.asarray(np.random.default_rng(1).integers(256, size=(7, 7, 1)), jnp.uint8)
    beside = jnp.ones(1, bool)
    wanted = net([picture.astype(jnp.float32) / 255, beside])
    np.testing.assert_allclose(net([picture, beside]), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(net.prepared().by_bands([picture, beside]), wanted, rtol=1e-5, atol=1e-5)
    layer = net.convolutions[0]
    found = jax.lax.conv_general_dilated(
        picture[None] / jnp.float32(255), layer.weight.reshape(3, 3, 1, 4), (1, 1), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    np.testing.assert_allclose(convolve(layer, picture, 3, 1), found[0] + layer.bias, rtol=1e-4, atol=1e-4)


def test_unrolled_is_the_librarys_convolution():
    """Against JAX's own convolution."""
    board = jax.random.normal(jax.random.key(0), (9, 8, 3))
    weight = jax.random.normal(jax.random.key(1), (3 * 3 * 3, 5))
    found = jnp.append(board.reshape(-1), jnp.array([1.0, 0, 0, 0])) @ unrolled(weight, jnp.ones(5), board.shape, 3, 2)
    wanted = jax.lax.conv_general_dilated(
        board[None], weight.reshape(3, 3, 3, 5), (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(found, wanted.reshape(-1) + 1, rtol=1e-4, atol=1e-4)


def test_large_boards_and_deep_networks_stay_as_they_are():
    net = BoardNetwork(Spec("board", [jax.ShapeDtypeStruct((20, 20, 1), bool)], 5), jax.random.key(0))
    assert net.prepared() is net
    assert eqx.tree_equal(net.prepared(), net)


SPECS = {
    "board": Spec("board", jax.ShapeDtypeStruct((6, 6, 2), bool), 3),
    "flat": Spec("flat", jax.ShapeDtypeStruct((9,), jnp.float32), 3),
}


def some(spec):
    """Four observations with few zeros."""
    return jnp.asarray(np.random.default_rng(1).random((4, *spec.observation.shape)) > 0.3, spec.observation.dtype)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("dueling", [False, True])
def test_calm_is_auto_with_a_hundredth_of_its_last_weights(spec, dueling, monkeypatch):
    """Biases are zero at first, so its values are a hundredth of auto's; all layers before the head are the same."""
    if dueling:
        whole = {"board": "dueling-minatar", "flat": "dueling-mlp"}[spec.name]
        monkeypatch.setattr(networks, "auto", NETWORKS.find(whole))
    key, obs = jax.random.key(4), some(spec)
    usual, calm = networks.auto(spec, key), networks.calm(spec, key)
    assert isinstance(calm.head, networks.Dueling) == dueling
    wanted = jax.vmap(usual)(obs)
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(jax.vmap(calm)(obs), wanted / 100, rtol=1e-4, atol=1e-6)
    without = lambda net: eqx.tree_at(lambda n: n.head, net, None)  # noqa: E731
    assert eqx.tree_equal(without(usual), without(calm))
    back = jax.tree.map(lambda x: x * 100, calm.head)
    assert eqx.tree_equal(back, usual.head, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_level_is_auto_with_equinox_layer_norm_and_pytorch_numbers(spec):
    """Its shapes are auto's. Weights and biases fill ±1/√inputs, the head's weights a hundredth; every dense layer goes
    through LayerNorm, here Equinox's."""
    key, obs = jax.random.key(4), some(spec)
    usual, level = networks.auto(spec, key), networks.level(spec, key)
    assert jax.tree.map(jnp.shape, eqx.filter(level, eqx.is_array)) == jax.tree.map(
        jnp.shape, eqx.filter(eqx.tree_at(lambda n: n.hidden, level, usual.hidden), eqx.is_array)
    )
    for layer in [*getattr(level, "convolutions", []), *level.hidden, level.head]:
        last = layer is level.head
        bound = (0.01 if last else 1) / np.sqrt(layer.weight.shape[0])
        assert 0.9 * bound < np.abs(layer.weight).max() <= bound
        assert np.all(layer.bias == 0) if last else 0.3 * bound < np.std(layer.bias) < 0.9 * bound
    assert len({float(x.weight[0, 0]) for x in level.hidden}) == len(level.hidden)

    def by_equinox(obs):
        if spec.name == "board":
            found = jax.nn.relu(networks.convolve(level.convolutions[0], obs, *level.windows[0])).reshape(-1)
        else:
            found = obs
        for layer in level.hidden:
            found = jax.nn.relu(eqx.nn.LayerNorm(layer.bias.shape, use_weight=False, use_bias=False)(layer(found)))
        return level.head(found)

    wanted = jax.vmap(by_equinox)(obs)
    assert 0 < np.abs(wanted).max() < 0.1
    np.testing.assert_allclose(jax.vmap(level)(obs), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_uniform_is_auto_with_pytorch_numbers(spec):
    """The numbers of `level` in layers that nothing brings to one scale, the head's whole."""
    key = jax.random.key(4)
    usual, uniform, level = (make(spec, key) for make in (networks.auto, networks.uniform, networks.level))
    assert jax.tree.map(jnp.shape, eqx.filter(uniform, eqx.is_array)) == jax.tree.map(
        jnp.shape, eqx.filter(usual, eqx.is_array)
    )
    assert not uniform.level
    assert eqx.tree_equal(uniform.hidden, level.hidden)
    assert eqx.tree_equal(uniform.head.weight / 100, level.head.weight)
    assert 0 < np.abs(uniform.head.bias).max() <= 1 / np.sqrt(uniform.head.weight.shape[0])


@pytest.mark.parametrize("name", NETWORKS.known)
def test_networks_by_name(name):
    """Each gives a finite value an action, from a spec alone."""
    flat = "mlp" in name
    shape = (84, 84, 1) if name == "nature" else (6, 6, 2)
    spec = SPECS["flat"] if flat else Spec("board", jax.ShapeDtypeStruct(shape, bool), 3)
    net = NETWORKS.find(name)(spec, jax.random.key(0))
    q = net(jnp.ones(spec.observation.shape, spec.observation.dtype))
    assert q.shape == (3,)
    assert np.isfinite(q).all()
    assert isinstance(net.head, networks.Dueling) == name.startswith("dueling")


def test_auto_looks_at_what_there_is():
    kinds = {(9,): "FlatNetwork", (2, 6, 1): "FlatNetwork", (6, 6, 2): "BoardNetwork", (84, 84, 1): "BoardNetwork"}
    for shape, kind in kinds.items():
        net = networks.auto(Spec("x", jax.ShapeDtypeStruct(shape, bool), 2), jax.random.key(0))
        assert type(net).__name__ == kind
        assert kind == "FlatNetwork" or len(net.convolutions) == (3 if shape[0] == 84 else 1)


def test_boards_that_do_not_fit():
    with pytest.raises(ValueError, match="shows 0 boards: give"):
        networks.minatar(SPECS["flat"], jax.random.key(0))
    with pytest.raises(ValueError, match="too small for windows of"):
        networks.nature(SPECS["board"], jax.random.key(0))


def mine(spec, key):
    return eqx.nn.MLP(spec.observation.shape[0], spec.num_actions, 16, 1, key=key)


@pytest.mark.long
def test_a_network_of_ones_own():
    env, plan = probes.two_steps(), Schedule(steps=600, capacity=400, start=100, refresh=100)
    agent = make_agent(DQN(network=mine, rule=targets.soft_highway()), env.spec)
    run, _ = jax.jit(lambda key: loop.train(env, agent, plan, key))(jax.random.key(0))
    assert np.isfinite(run.learning.params.small).all()
    assert not np.array_equal(run.learning.params.small, agent.init(jax.random.key(0)).params.small)


def test_ones_own_by_name():
    try:
        assert register_network("test-mine", mine) is mine
        assert NETWORKS.find("test-mine") is mine
        assert "test-mine" in NETWORKS.names()
        assert register_network("test-mine", networks.mlp) is NETWORKS.find("test-mine")  # one's own may change
    finally:
        NETWORKS.known.pop("test-mine", None)
        NETWORKS.added.pop("test-mine", None)


def test_names_that_are_taken_or_unknown():
    with pytest.raises(ValueError, match="network 'calm' is built in: give yours another name"):
        register_network("calm", mine)
    assert NETWORKS.find("calm") is networks.calm
    with pytest.raises(ValueError, match=r"minatra.*minatar"):
        NETWORKS.find("minatra")


@pytest.mark.parametrize("shape", [(6, 6, 2), (40, 40, 1), (9,)])
def test_bytes_are_numbers_from_zero_to_one(shape):
    """A picture of bytes, or any other array of them, is worth what the same in fractions is."""
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    spec = Spec("bytes", jax.ShapeDtypeStruct(shape, jnp.uint8), 3)
    net = networks.auto(spec, jax.random.key(0))
    expected = net(jnp.asarray(picture / 255, jnp.float32))
    np.testing.assert_allclose(net(jnp.asarray(picture)), expected, rtol=1e-5, atol=1e-5)
    ready = getattr(net, "prepared", lambda: net)()
    np.testing.assert_allclose(ready(jnp.asarray(picture)), expected, rtol=1e-5, atol=1e-5)
