"""Speed on Gymnasium environments: environment steps a second, ours and Stable-Baselines3's DQN, in one call.

    python benchmarks/host.py --out host.json                       CartPole, one environment and eight
    python benchmarks/host.py --task ALE/Breakout-v5 --steps 400    an Atari game, with the Nature network

Equal: the environment, its number, a batch of 32, one update an environment step, dense layers of 64 and 64 (Atari: the
Nature network on 84 × 84 × 4), a store of 100,000 (Atari: 10,000) steps, a target network copied every 1,000 steps,
Adam. Ours is timed twice: with the store as it is after warming up, and full (`full`), since targets are made for all
rows drawn when the target network is copied. Not equal: ours clips gradients by their length as the other does, and
keeps observations as bytes; the other computes targets batch by batch.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from highway_rl.data import ring
from highway_rl.deep.networks import FlatNetwork, register_network
from highway_rl.records.provenance import provenance
from highway_rl.runs import Config, setup


def ours(task: str, algo: str, envs: int, periods: int, options: dict[str, Any]) -> dict[str, float]:
    config = Config(
        task, (algo,), steps=1_000_000, preset="general",
        settings={"num_envs": envs, "refresh": 1_000, "start": 1_000, "k": 1, **options},
    )  # fmt: skip
    program = setup(config).programs[0]
    go, run = program.compiled(), program.start()()
    schedule = program.schedule

    def timed(run: Any, first: int) -> tuple[Any, float]:
        best = float("inf")
        for period in range(first, first + periods):
            begin = time.perf_counter()
            run, _ = jax.block_until_ready(go(run, jnp.int32(period), jnp.int32(0), jnp.bool_(False)))
            best = min(best, time.perf_counter() - begin)
        return run, schedule.refresh / best

    for period in range(2):
        run, _ = go(run, jnp.int32(period), jnp.int32(0), jnp.bool_(False))
    run, early = timed(run, 2)
    full = jax.vmap(jax.vmap(lambda store: ring.repeated(store, 2 * schedule.refresh // envs)))
    run = run._replace(store=jax.jit(full)(run.store))
    _, late = timed(run, 2 * schedule.capacity // schedule.refresh)
    go.close()  # type: ignore[attr-defined]
    return {"per_s": early, "full_per_s": late}


def theirs(task: str, envs: int, steps: int, atari: bool) -> dict[str, float]:
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if atari:
        import ale_py
        import gymnasium

        gymnasium.register_envs(ale_py)
    env: Any = VecFrameStack(make_atari_env(task, envs), 4) if atari else make_vec_env(task, envs)
    model = DQN(
        "CnnPolicy" if atari else "MlpPolicy", env, learning_rate=3e-4, buffer_size=10_000 if atari else 100_000,
        learning_starts=100, batch_size=32, train_freq=1, gradient_steps=-1, target_update_interval=1_000, device="cpu",
        policy_kwargs={} if atari else {"net_arch": [64, 64]},
    )  # fmt: skip
    model.learn(200)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        best = min(best, time.perf_counter() - begin)
    return {"per_s": steps / best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="CartPole-v1")
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--algos", nargs="+", default=["dqn", "soft-highway-dqn"])
    parser.add_argument("--periods", type=int, default=3, help="of 1,000 steps, of which the best counts")
    parser.add_argument("--steps", type=int, default=1_000, help="of the other, three times")
    parser.add_argument("--out", type=Path, help="JSON to write, or to add to")
    args = parser.parse_args()
    register_network("64-64", functools.partial(FlatNetwork, hidden=(64, 64)))
    atari = args.task.startswith("ALE/")
    options: dict[str, Any] = (
        {"network": "nature", "capacity": 10_000} if atari else {"network": "64-64", "capacity": 100_000}
    )
    options |= {"batch_size": 32, "learning_rate": 3e-4}
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.exists() else []
    for envs in args.envs:
        try:
            other = theirs(args.task, envs, args.steps, atari)
        except ImportError as error:
            print(f"no Stable-Baselines3 here ({error}): ours alone")
            other = {"per_s": float("nan")}
        found = {"stable-baselines3": other}
        found |= {algo: ours(args.task, algo, envs, args.periods, options) for algo in args.algos}
        for name, row in found.items():
            ratio = row.get("full_per_s", row["per_s"]) / other["per_s"]
            facts = {"task": args.task, "envs": envs, "who": name, **row, "ratio": ratio}
            print("  ".join(f"{k} {v:,.4g}" if isinstance(v, float) else f"{v}" for k, v in facts.items()), flush=True)
            rows.append(facts | {"provenance": provenance(benchmark="host")})
        if args.out:
            args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
