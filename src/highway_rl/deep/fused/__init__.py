"""One update as seven kernels, for GPUs: what `dqn.learn` does, with the weights read and written once. Imports types,
the networks and their weights.

A step of many small runs is bound by memory and by the number of kernels. The gradient of the dense layer is the
product of what goes in, X, and what comes back, D, of which a tile is made where it is needed: once to be measured for
clipping, once for the step. It is never in memory. Of k networks only number `net` is touched, in place.

    see          bits → windows → convolution → X     all k networks at the observations to act on, one at the batch
    dense        X·W, in a few partial sums
    head         q, loss, the best actions, D, gradients of head and bias
    back         D·Wᵀ, and Σ (XᵀD)² of each tile
    windows      the convolution's gradient, in a few partial sums
    small_step   the length of the gradient, the step of all small weights
    large_step   the step of the dense layer: W and its moments, one read and one write

It fits a network of one convolution, one dense layer and a linear head that looks at truth values, which is MinAtar's,
and an optimiser that treats each number alone. Everything else takes the plain formula, which is also the reference
of the tests.
"""

from typing import TYPE_CHECKING, Any

from highway_rl.deep.fused.sizes import Sizes, fits

if TYPE_CHECKING:
    from highway_rl.deep.fused.update import learn, prepared

__all__ = ["Sizes", "fits", "learn", "prepared"]


def __getattr__(name: str) -> Any:
    """What needs Pallas is imported when it is asked for, by the agents that kernels fit: most programs never do."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from highway_rl.deep.fused import update

    return getattr(update, name)
