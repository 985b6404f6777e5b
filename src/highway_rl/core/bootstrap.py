"""From action values at a state to one value: which policy the bootstrap follows.

A bootstrap is a function (q[..., a], behaviour[..., a]) → probabilities[..., a], the target policy π' at that
state; the value is Σ_a π'(a) q(a). `behaviour` is the distribution that acts there: the behavioural policy
in an exact operator, the one-hot of the action taken in sampled data. The same function therefore serves both.

A bootstrap may leave open what only the agent knows: its ε, its newer network's values. `filled` closes the gap.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float

from highway_rl import checks
from highway_rl.types import AnyArray, record


@runtime_checkable
class Bootstrap(Protocol):
    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Float[AnyArray, "*b a"]) -> Float[AnyArray, "*b a"]: ...


@record
class Greedy:
    """All probability on the first best action: Σ π'q = max_a q(a). Paper: Eq. 1.

    >>> import numpy as np
    >>> greedy(np.array([1.0, 5.0, 5.0])).tolist()
    [0.0, 1.0, 0.0]
    """

    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Any = None) -> Float[AnyArray, "*b a"]:
        xp = q.__array_namespace__()
        best = xp.argmax(q, axis=-1)
        return xp.astype(xp.arange(q.shape[-1]) == best[..., None], q.dtype)


@record
class OnAction:
    """The behaviour itself: SARSA in sampled data, 𝓑^π in an exact operator. Paper: Eq. 2."""

    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Float[AnyArray, "*b a"]) -> Float[AnyArray, "*b a"]:
        return q.__array_namespace__().broadcast_to(behaviour, q.shape)


@record
class EvenlyGreedy:
    """The greedy policy that shares ties evenly: every best action counts as greedy, the value is the same max.

    >>> import numpy as np
    >>> evenly_greedy(np.array([1.0, 5.0, 5.0])).tolist()
    [0.0, 0.5, 0.5]
    """

    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Any = None) -> Float[AnyArray, "*b a"]:
        xp = q.__array_namespace__()
        best = xp.astype(q == xp.max(q, axis=-1, keepdims=True), q.dtype)
        return best / xp.sum(best, axis=-1, keepdims=True)


greedy = Greedy()
on_action = OnAction()
evenly_greedy = EvenlyGreedy()


@record
class EpsilonGreedy:
    """(1−ε) max_a q(a) + ε mean_a q(a): the paper's stand-in for the max in its deep agents (App. C.3).

    Ties share the greedy part evenly, as an agent that breaks them at random acts. None is the ε of the agent that
    acts, filled in by it.
    """

    epsilon: Any = None

    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Any = None) -> Float[AnyArray, "*b a"]:
        if self.epsilon is None:
            raise checks.refusal("epsilon", None, "a number, or the agent's by filled(bootstrap, epsilon=...)")
        epsilon = q.__array_namespace__().asarray(self.epsilon, dtype=q.dtype)
        return (1 - epsilon) * evenly_greedy(q) + epsilon / q.shape[-1]


@record
class Mixed:
    """σ on the action taken and 1 − σ on a target policy: Q(σ), between SARSA and Tree Backup."""

    sigma: Any
    bootstrap: Bootstrap

    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Float[AnyArray, "*b a"]) -> Float[AnyArray, "*b a"]:
        sigma = q.__array_namespace__().asarray(self.sigma, dtype=q.dtype)
        return sigma * on_action(q, behaviour) + (1 - sigma) * self.bootstrap(q, behaviour)


@record
class Expected:
    """A given target policy π'(·|s): policy evaluation. `policy` broadcasts against q."""

    policy: Any

    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Any = None) -> Float[AnyArray, "*b a"]:
        xp = q.__array_namespace__()
        return xp.broadcast_to(xp.asarray(self.policy, dtype=q.dtype), q.shape)


@record
class Double:
    """Double DQN: the action is chosen by `selector`'s values and priced by q.

    None is the values of the agent's newer network, filled in by it.
    """

    selector: Any = None

    def __call__(self, q: Float[AnyArray, "*b a"], behaviour: Any = None) -> Float[AnyArray, "*b a"]:
        if self.selector is None:
            raise checks.refusal("selector", None, "values like q, or the agent's by filled(bootstrap, selector=...)")
        return greedy(self.selector)


def filled(bootstrap: Bootstrap, *, epsilon: Any = None, selector: Any = None) -> Bootstrap:
    """The bootstrap with the gaps an agent fills: its ε, its newer network's values; itself where there are none.

    >>> filled(Mixed(0.5, EpsilonGreedy()), epsilon=0.1)
    Mixed(sigma=0.5, bootstrap=EpsilonGreedy(epsilon=0.1))
    """
    if isinstance(bootstrap, EpsilonGreedy) and bootstrap.epsilon is None and epsilon is not None:
        return EpsilonGreedy(epsilon)
    if isinstance(bootstrap, Double) and bootstrap.selector is None and selector is not None:
        return Double(selector)
    if isinstance(bootstrap, Mixed):
        inside = filled(bootstrap.bootstrap, epsilon=epsilon, selector=selector)
        return bootstrap if inside is bootstrap.bootstrap else Mixed(bootstrap.sigma, inside)
    return bootstrap


def value_of(
    bootstrap: Bootstrap, q: Float[AnyArray, "*b a"], behaviour: Float[AnyArray, "*b a"]
) -> Float[AnyArray, "*b"]:
    """Σ_a π'(a) q(a), the value a return ends in; for the greedy policies simply the largest entry."""
    xp = q.__array_namespace__()
    if isinstance(bootstrap, Greedy | EvenlyGreedy):
        return xp.asarray(xp.max(q, axis=-1))
    return xp.asarray(xp.sum(bootstrap(q, behaviour) * q, axis=-1))


def maxmin(q: Float[AnyArray, "k *b a"]) -> Float[AnyArray, "*b a"]:
    """Maxmin DQN's element-wise minimum over k networks, taken before anything else looks at q."""
    return q.__array_namespace__().min(q, axis=0)
