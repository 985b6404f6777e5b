"""Sixteen runs on eight virtual devices, beside the same on one: a script, since the number of devices is fixed when
JAX starts. Prints what the test compares, as JSON."""

import json
import os
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from highway_rl.runs import Config, fit
from highway_rl.runs.config import setup

CONFIG = Config(
    "late", ("dqn", "n-step-dqn:n=3"), seeds=8, env={"length": 6}, preset="explorer", steps=300, episodes=3,
    settings={"capacity": 500, "start": 100, "refresh": 100, "network": "mlp"},
)  # fmt: skip


def numbers(tree):
    """All leaves, keys as the numbers they are."""
    leaves = jax.tree.leaves(tree)
    typed = [jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves]
    return [np.asarray(jax.random.key_data(x) if key else x) for x, key in zip(leaves, typed, strict=True)]


def held(tree):
    """Bytes that each device has."""
    found = {}
    for leaf in jax.tree.leaves(tree):
        leaf = jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for shard in leaf.addressable_shards:
            found[shard.device.id] = found.get(shard.device.id, 0) + shard.data.nbytes
    return sorted(found.values())


def temporary(program):
    """Bytes that the compiled program sets aside on each device while it runs."""
    specs = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
    own, same = (jax.sharding.NamedSharding(program.mesh, spec) for spec in specs)
    jitted = jax.jit(program.advance(), in_shardings=(own, same, same, same))
    when = np.int32(0), np.int32(0), np.bool_(True)
    return jitted.lower(program.shapes(), *when).compile().memory_analysis().temp_size_in_bytes


def moved():
    """A run that was stopped on eight devices and went on on two."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        assert not fit(CONFIG, out, devices="all", should_stop=lambda: True).finished
        return fit(CONFIG, out, devices=2, resume=True)


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    one, eight = fit(CONFIG), fit(CONFIG, devices="all")
    pairs = list(zip(numbers(one.last), numbers(eight.last), strict=True))
    gaps = [float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs if a.dtype.kind == "f"]
    found = {
        "devices": [setup(CONFIG, devices=n).programs[0].devices for n in (1, 3, 5, "all")],
        "same": all(np.array_equal(a, b) for a, b in pairs),
        "gap": max(gaps),
        "scores": one.scores == eight.scores,
        "held": [held(one.last), held(eight.last)],
    }
    if "full" in sys.argv:
        found["temporary"] = [temporary(setup(CONFIG, devices=n).programs[0]) for n in (1, "all")]
        found["moved"] = all(map(np.array_equal, numbers(one.last), numbers(moved().last)))
    print(json.dumps(found))
