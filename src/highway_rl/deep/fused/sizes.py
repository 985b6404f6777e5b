"""What the kernels must know when they are compiled, and which agents they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from highway_rl.deep.layers import Linear
from highway_rl.deep.networks import BoardNetwork
from highway_rl.deep.weights import SMALL, Weights
from highway_rl.types import Spec

if TYPE_CHECKING:
    from highway_rl.deep.dqn import DQN


class Cut(NamedTuple):
    """How the work of each kernel is cut, as measured on an H200 with 60 runs and with one."""

    see_all: int = 16
    """Observations of a program of `see_all`."""
    dense: int = 32
    """Inputs of the dense layer in a tile of its forward product."""
    parts: int = 6
    """Partial sums of that product: more programs at once, more to add up."""
    back: int = 64
    """Inputs of the dense layer in a program of `back`."""
    large: int = 16
    """The same in `large_step`."""
    windows: int = 2
    """Rows of the batch in a partial sum of the convolution's gradient."""


class Warps(NamedTuple):
    """Groups of 32 threads in a program of each kernel."""

    see: int = 4
    see_all: int = 4
    dense: int = 4
    head: int = 4
    back: int = 8
    windows: int = 2
    small_step: int = 16
    large_step: int = 4


class Sizes(NamedTuple):
    """What the kernels must know when they are compiled. `places` are the positions of a window, `taps` its numbers."""

    batch: int
    here: int
    networks: int
    board: tuple[int, int, int]
    window: tuple[int, int]
    filters: int
    beside: int
    hidden: int
    actions: int
    heads: int = 1
    cut: Cut = Cut()
    warps: Warps = Warps()

    @property
    def columns(self) -> int:
        return (self.board[1] - self.window[0]) // self.window[1] + 1

    @property
    def places(self) -> int:
        return ((self.board[0] - self.window[0]) // self.window[1] + 1) * self.columns

    @property
    def taps(self) -> int:
        return self.window[0] ** 2 * self.board[2]

    @property
    def groups_a_row(self) -> int:
        """A window's row is so many groups of 16 taps, the last filled up."""
        return -(-self.window[0] * self.board[2] // 16)

    @property
    def groups(self) -> int:
        """All groups of a window, and empty ones up to a power of two."""
        return power(self.window[0] * self.groups_a_row, 1)

    @property
    def features(self) -> int:
        return self.places * self.filters

    @property
    def inputs(self) -> int:
        return self.features + self.beside

    @property
    def convolution(self) -> int:
        """Its weights and biases: the first so many of the small numbers, then the dense layer's bias and the head."""
        return (self.taps + 1) * self.filters

    @property
    def outputs(self) -> int:
        """Q of every action, then every other head's numbers."""
        return self.heads * self.actions

    @property
    def small(self) -> int:
        return self.convolution + self.hidden + (self.hidden + 1) * self.outputs

    @property
    def share(self) -> int:
        """Numbers beyond the dense layer of a program of `small_step`: about as many as one head has."""
        return power(self.hidden + (self.hidden + 1) * self.actions)


def power(count: int, least: int = 16) -> int:
    """The next power of two: the only lengths that a kernel's arrays may have."""
    return max(least, 1 << (count - 1).bit_length())


def fits(agent: DQN, spec: Spec, envs: int) -> Sizes | None:
    """The sizes of an agent that these kernels can train, else None."""
    leaves = jax.tree.leaves(spec.observation)
    if any(leaf.dtype != bool for leaf in leaves) or leaves[0].ndim != 3:
        return None
    network = jax.eval_shape(lambda: agent.make_network(spec, jax.random.key(0)))
    if type(network) is not BoardNetwork or not isinstance(network.head, Linear):
        return None
    if network.level or len(network.convolutions) != 1 or len(network.hidden) != 1:
        return None
    inputs, hidden = network.hidden[0].weight.shape
    filters = network.convolutions[0].bias.shape[0]
    beside = sum(int(np.prod(leaf.shape)) for leaf in leaves[1:])
    sizes = Sizes(
        agent.batch_size, max(envs, 1), agent.num_networks, leaves[0].shape, network.windows[0], filters, beside,
        hidden, spec.num_actions, agent.heads,
    )  # fmt: skip
    weights = jax.eval_shape(lambda: Weights([jnp.zeros((inputs, hidden))], jnp.zeros(sizes.small)))
    state = jax.eval_shape(agent.optimizer().init, weights)
    alone = all(isinstance(leaf, Weights) for leaf in jax.tree.leaves(state, is_leaf=is_weights))
    powers = all(n == power(n) for n in (sizes.batch, filters, hidden))
    fine = sizes.inputs == inputs and inputs * hidden > SMALL and powers and alone and tried(sizes)
    return sizes if fine else None


def tried(s: Sizes) -> bool:
    """Whether a GPU has run kernels of these sizes or larger ones: they hold whole windows, rows of the batch and all
    networks' actions at once, and much larger ones would not fit into its registers."""
    windows = power(s.places) * 16 * s.groups
    rows = s.batch <= 32 and s.filters <= 16 and s.hidden <= 128
    return windows <= 64 * 128 and rows and s.here * s.networks <= 8 and s.actions <= 8 and s.heads <= 4


def is_weights(x: object) -> bool:
    return isinstance(x, Weights)
