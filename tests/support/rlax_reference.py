"""Targets by rlax, kept in rlax_reference.json: what `test_targets.py` compares with where rlax is not installed.

pip install rlax && python tests/support/rlax_reference.py
"""

import json
import warnings
from pathlib import Path

import numpy as np

STORED = Path(__file__).with_suffix(".json")
GAMMA, RETRACE, PENG = 0.9, 0.9, 0.8


def cases():
    """Trajectories without a cut, running or terminated at their end; q has one row more, for what comes after."""
    rng = np.random.default_rng(5)
    for count, terminated in ((20, False), (20, True), (3, False), (1, True)):
        yield {
            "q": rng.normal(size=(count + 1, 3)).astype(np.float32).tolist(),
            "action": rng.integers(3, size=count).tolist(),
            "reward": rng.normal(size=count).astype(np.float32).tolist(),
            "behaviour": rng.uniform(0.1, 1, size=count).astype(np.float32).tolist(),
            "terminated": terminated,
        }


def by_rlax(case):
    """Its Retrace and Q(λ), which is Peng's, as targets: rlax gives errors."""
    import jax
    import jax.numpy as jnp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import rlax

        q, reward = jnp.asarray(case["q"]), jnp.asarray(case["reward"])
        taken, count = jnp.asarray(case["action"]), len(case["action"])
        discount = jnp.full(count, GAMMA).at[-1].set(0.0 if case["terminated"] else GAMMA)
        # rlax asks for an action at the far end, but does not use it
        action = jnp.append(taken[1:], 0)
        behaviour = jnp.append(jnp.asarray(case["behaviour"])[1:], 1.0)
        greedy = jax.nn.one_hot(jnp.argmax(q[1:], axis=1), 3)
        value = q[jnp.arange(count), taken]
        retrace = rlax.retrace(q[:-1], q[1:], taken, action, reward, discount, greedy, behaviour, RETRACE)
        peng = rlax.q_lambda(q[:-1], taken, reward, discount, q[1:], PENG)
    return {"retrace": (value + retrace).tolist(), "peng": (value + peng).tolist()}


if __name__ == "__main__":
    import rlax

    found = [{**case, **by_rlax(case)} for case in cases()]
    STORED.write_text(json.dumps({"rlax": rlax.__version__, "cases": found}, indent=1) + "\n")
