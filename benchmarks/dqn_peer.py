"""DQNs in JAX that others wrote beside ours, on one device in one call: µs per environment step of all runs together.

    PYTHONPATH=src python benchmarks/dqn_peer.py --peer FOLDER --runs 1 16 60 --out dqn_peer.json
    PYTHONPATH=src python benchmarks/dqn_peer.py --peer FOLDER --runs 1 2 --capacity 2000 --steps 300      a short try

FOLDER (or PYTHONPATH) holds flax, chex, optax, gymnax < 1 and the peers:
    rejax      rejax 0.1.3 with distrax; its store draws without replacement by a rank of all its rows
    purejaxrl  dqn.py of luchris429/purejaxrl (31756b19) with flashbax, as the module purejaxrl.dqn. Two lines need a
               change: jax.tree_map is now jax.tree.map, and `rng = jax.random.PRNGKey(0)` has to go, or all seeds are
               given the same numbers (`distinct` then says fewer than `runs`)

Equal: MinAtar's Breakout, one network and one environment a run, one update of 32 a step, a store of 100,000 steps, 16
filters of 3 × 3 without padding, a layer of 128, float32 weights, a target network copied every 1,000 steps, runs
vmapped in one program, no evaluation. Not equal: the peers play gymnax's game (3 actions, none sticky, at most 1,000
steps), keep observations as float32 (rejax the next one, too), draw each batch at its step and compute its targets
there, and use Adam and the squared error. Ours has 6 actions that stick, coded observations, centred RMSprop and the
Huber loss; every 1,000 steps it draws all their batches and computes their targets, and every 10,000 diagnostics of the
whole store.
Its `dqn` is rewarded at once, its `soft-highway-dqn` when an episode ends, with what is owed in the observation.

A peer trains for 200 steps, of which it learns in the last 100, and for `--steps` more: the best of three times of one
less that of the other, by steps, is what is reported. With `--own` it has the network it comes with: layers of 64 and
64 (rejax) or 120 and 84 (purejaxrl), so that how Flax's convolution fares under vmap plays no part. Ours is timed by
`benchmarks/dqn.py`: the best of three periods of 1,000 steps, with a full store.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dqn import whole

from highway_rl.deep.schedule import Schedule
from highway_rl.envs import make_env
from highway_rl.records.provenance import provenance
from highway_rl.runs.config import Config, build
from highway_rl.runs.text import parse

FILL, WARM = 100, 200  # steps of a peer without learning, and with those after it that are not counted
GAME = "Breakout-MinAtar"
Train = Callable[[Any], Any]


def network() -> Any:
    """MinAtar's network for a batch of boards, flat or not."""
    from flax import linen as nn

    class Network(nn.Module):
        action_dim: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(16, (3, 3), padding="VALID")(x.reshape(-1, 10, 10, 4)))
            x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
            return nn.Dense(self.action_dim)(x)

        def take(self, obs: Any, action: Any) -> Any:
            return jnp.take_along_axis(self(obs), action[:, None], axis=1).squeeze(1)

    return Network


def rejax(steps: int, capacity: int, own: bool) -> Train:
    """key → what was learned."""
    from rejax import DQN
    from rejax.networks import EpsilonGreedyPolicy

    sizes = {"total_timesteps": steps, "eval_freq": steps, "fill_buffer": FILL, "buffer_size": capacity}
    rates = {"learning_rate": 2.5e-4, "gamma": 0.99, "eps_end": 0.1, "exploration_fraction": 1e5 / steps, "polyak": 0.0}
    counts = {"num_envs": 1, "num_epochs": 1, "batch_size": 32, "target_update_freq": 1_000}
    algo: Any = DQN.create(env=GAME, ddqn=False, skip_initial_evaluation=True, **sizes, **rates, **counts)
    agent = algo.agent if own else EpsilonGreedyPolicy(network())(algo.action_dim)
    algo = algo.replace(agent=agent, eval_callback=lambda *_: ())
    return lambda key: algo.train(key)[0].q_ts


def purejaxrl(steps: int, capacity: int, own: bool) -> Train:
    """key → what was learned."""
    from purejaxrl import dqn as theirs

    if not own:
        theirs.QNetwork = network()
    config = {"ENV_NAME": GAME, "NUM_ENVS": 1, "TRAINING_INTERVAL": 1, "BUFFER_BATCH_SIZE": 32, "BUFFER_SIZE": capacity}
    config |= {"TOTAL_TIMESTEPS": steps, "LEARNING_STARTS": FILL, "TARGET_UPDATE_INTERVAL": 1_000, "TAU": 1.0}
    config |= {"EPSILON_START": 1.0, "EPSILON_FINISH": 0.1, "EPSILON_ANNEAL_TIME": 1e5, "LR": 2.5e-4, "GAMMA": 0.99}
    train = theirs.make_train(config)

    return lambda key: train(key)["runner_state"][0]


PEERS = {"purejaxrl": purejaxrl, "rejax": rejax}


def peer(name: str, runs: int, capacity: int, steps: int, own: bool) -> dict[str, Any]:
    """µs a step of the peer's own program, vmapped over seeds."""
    keys = jax.random.split(jax.random.PRNGKey(0), runs)
    took, updates = [], []
    for total in (WARM, WARM + steps):
        begin = time.perf_counter()
        compiled = jax.jit(jax.vmap(PEERS[name](total, capacity, own))).lower(keys).compile()
        compile_s, times = time.perf_counter() - begin, []
        for _ in range(4):
            begin = time.perf_counter()
            learned = jax.block_until_ready(compiled(keys))
            times.append(time.perf_counter() - begin)
        took.append(min(times[1:]))
        updates.append(int(np.min(learned.step)))
    if updates[1] - updates[0] != steps:
        raise SystemExit(f"{name} made {updates[1] - updates[0]} updates in {steps} steps")
    memory = compiled.memory_analysis()
    bytes_ = 0 if memory is None else memory.argument_size_in_bytes + memory.temp_size_in_bytes
    last = np.stack([np.asarray(x).reshape(runs, -1).sum(-1) for x in jax.tree.leaves(learned.params)], -1)
    row = {"us": 1e6 * (took[1] - took[0]) / steps, "compile_s": compile_s, "GB": bytes_ / 1e9}
    return row | {"distinct": len(np.unique(last, axis=0))}


def versions(names: list[str]) -> dict[str, str]:
    """What the peers are; stops where one of them cannot be imported."""
    try:
        for name in names:
            PEERS[name](WARM, WARM, True)
    except ImportError as error:
        need = "flax, chex, optax, gymnax<1; rejax and distrax; purejaxrl/dqn.py and flashbax"
        raise SystemExit(f"{error}\nGive --peer FOLDER, or a PYTHONPATH, that holds {need}.") from error
    packages = ["flax", "gymnax", "optax"] + [{"purejaxrl": "flashbax"}.get(name, name) for name in names]
    found = {name: importlib.metadata.version(name) for name in packages}
    if not found["gymnax"].startswith("0."):
        raise SystemExit(f"gymnax {found['gymnax']} returns six values from a step: the peers need gymnax<1.")
    if "purejaxrl" in names:  # it has no versions: a hash of the file
        source = Path(str(sys.modules["purejaxrl.dqn"].__file__)).read_bytes()
        found["purejaxrl/dqn.py"] = hashlib.sha256(source).hexdigest()[:12]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="folder with the peers and what they import")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 16, 60])
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=3_000, help="of a peer that are timed")
    parser.add_argument("--own", action="store_true", help="peers with the dense networks they come with")
    parser.add_argument("--out", type=Path, help="JSON to write, or to add to")
    args = parser.parse_args()
    if args.peer:
        sys.path.insert(0, str(args.peer.resolve()))
    facts = provenance(benchmark="dqn_peer", peers=versions(args.peers))
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {facts['peers']}")
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.exists() else []

    def done(row: dict[str, Any]) -> float:
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in row.items()), flush=True)
        rows.append({**row, "provenance": facts})
        if args.out:
            args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        return float(row["us"])

    schedule = Schedule(steps=10_000, start=1_000, capacity=args.capacity)
    for runs in args.runs:
        fast: dict[str, float] = {}
        for algo, delay in (("dqn", "none"), ("soft-highway-dqn", "end")):
            env = make_env("minatar/breakout", **({} if delay == "none" else {"delay": delay}))
            agent, _ = build(Config("minatar/breakout", preset="paper", settings={"k": 1}), env, parse(algo)[0])
            row = {"game": "breakout", "delay": delay, "algo": algo, "preset": "paper", "runs": runs, "networks": 1}
            fast[algo] = done(row | {"capacity": args.capacity} | whole(env, agent, schedule, runs, 3))
        for name in args.peers:
            row = {"game": GAME, "delay": "none", "algo": name, "runs": runs, "networks": 1, "capacity": args.capacity}
            row |= {"steps": args.steps, "network": "its own" if args.own else "the same"}
            us = done(row | peer(name, runs, args.capacity, args.steps, args.own))
            print(f"  {runs} runs: {name} takes", ", ".join(f"{us / x:.2f} × {algo}" for algo, x in fast.items()))


if __name__ == "__main__":
    main()
