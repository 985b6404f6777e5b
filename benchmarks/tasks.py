"""Learning on Gymnasium's own tasks: Soft Highway DQN, preset `general` as it is, beside Stable-Baselines3's DQN.

    python benchmarks/tasks.py --out results/gymnasium-tasks.json                          all, with the other
    python benchmarks/tasks.py --tasks CartPole-v1 --delays end --seeds 2 --alone          ours alone
    python benchmarks/tasks.py --tasks LunarLander-v3 --delays end --show-time --discount 0.9995   named beside it
    python benchmarks/tasks.py --tasks LunarLander-v3 --delays end --alone --setting k=4 updates_per_step=2

Each task as it is and with all reward at the end of the episode (`DelayReward`, the amount owed in the observation). A
score is the mean of 100 greedy episodes after the last step; the row has the best mean over a fortieth of training too.
The other has the settings that RL Baselines3 Zoo tuned for the task; for MiniGrid, which is not there, those of
Acrobot. Both make the same number of steps and see the same observations; where rewards are late both have the
discount 1 − 0.2/horizon, without which nothing late is worth waiting for.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from highway_rl.envs.host.late import DelayReward
from highway_rl.envs.host.prepare import ShowTime, by_id
from highway_rl.envs.wrappers import late_discount
from highway_rl.records.provenance import provenance
from highway_rl.runs import Config, fit

TASKS = {
    "CartPole-v1": (475.0, 50_000),
    "Acrobot-v1": (-100.0, 100_000),
    "LunarLander-v3": (200.0, 100_000),
    "MiniGrid-DoorKey-5x5-v0": (0.9, 100_000),
}
"""What is enough, and how many steps: the zoo's number."""
WIDE: dict[str, Any] = {"policy_kwargs": {"net_arch": [256, 256]}}
CARTPOLE = WIDE | {
    "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1_000, "train_freq": 256,
    "gradient_steps": 128, "target_update_interval": 10, "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
}  # fmt: skip
ACROBOT = WIDE | {
    "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "train_freq": 4,
    "gradient_steps": -1, "target_update_interval": 250, "exploration_fraction": 0.12, "exploration_final_eps": 0.1,
}  # fmt: skip
PARTS = 40
"""Of training, whose best mean is kept."""


def ours(
    task: str, delay: str | None, steps: int, seeds: int, first: int, also: dict[str, Any]
) -> list[dict[str, Any]]:
    """Our runs, side by side in one learner."""
    curves: dict[int, list[float]] = {}

    def watch(news: dict[str, Any]) -> None:
        if news.get("rows"):
            step = news["rows"][0]["step"]
            end = "\n" if step >= steps else ""
            print(f"\r{task} {step:,} of {steps:,} steps", end=end, file=sys.stderr, flush=True)
        for row in news.get("rows", ()):
            if row["episodes"]:
                curves.setdefault(row["seed"], []).append(row["score"])

    env = ({} if delay is None else {"delay": delay}) | {k: also[k] for k in also if k == "show_time"}
    config = Config(
        task, ("soft-highway-dqn",), seeds=seeds, seed=first, steps=steps, preset="general", env=env,
        settings={k: also[k] for k in also if k != "show_time"},
        report_every=max(250, steps // PARTS // 250 * 250),
    )  # fmt: skip
    found = fit(config, None, report=watch).scores
    return [
        {"seed": row["seed"], "score": row["score"], "training": max(curves[row["seed"]])}
        for row in found
        if row["epsilon"] == 0
    ]


def theirs(task: str, delay: str | None, steps: int, seed: int, also: dict[str, Any]) -> dict[str, Any]:
    from stable_baselines3 import DQN
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    def make() -> gymnasium.Env:
        env: Any = by_id(task, {})
        env = ShowTime(env) if "show_time" in also else env
        env = DelayReward(env, "end", feature="amount") if delay else env
        return Monitor(gymnasium.wrappers.FlattenObservation(env))

    env = make()
    horizon = gymnasium.spec(task).max_episode_steps
    settings = CARTPOLE if task.startswith("CartPole") else ACROBOT
    gamma = also.get("discount", late_discount(horizon) if delay else 0.99)
    model = DQN("MlpPolicy", env, gamma=gamma, seed=seed, device="cpu", **settings)
    model.learn(steps)
    returns, ends = np.asarray(env.get_episode_rewards()), np.cumsum(env.get_episode_lengths())  # type: ignore[attr-defined]
    part = ends * PARTS // steps
    means = [float(returns[part == i].mean()) for i in set(part.tolist())]
    score, _ = evaluate_policy(model, make(), n_eval_episodes=100)
    return {"seed": seed, "score": float(np.mean(score)), "training": max(means, default=float("nan"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--delays", nargs="+", default=["no", "end"], choices=["no", "end"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=100, help="the first seed: those below were used to choose")
    parser.add_argument("--steps", type=int, help="in place of the zoo's")
    parser.add_argument("--show-time", action="store_true", help="the time beside the observation")
    parser.add_argument("--discount", type=float, help="in place of the one that goes with the task")
    parser.add_argument("--setting", nargs="+", default=[], metavar="NAME=NUMBER", help="of ours, so with --alone")
    parser.add_argument("--alone", action="store_true", help="without the other")
    parser.add_argument("--peer", action="store_true", help="the other alone")
    parser.add_argument("--out", type=Path, help="JSON to write, or to add to")
    args = parser.parse_args()
    made_by = provenance(benchmark="tasks")  # now: the code may change while it runs
    also: dict[str, Any] = {"show_time": True} if args.show_time else {}
    also |= {} if args.discount is None else {"discount": args.discount}
    also |= {name: json.loads(number) for name, number in (one.split("=") for one in args.setting)}
    if args.setting and not args.alone:
        parser.error("--setting names settings of ours: give --alone, too")
    for task in args.tasks:
        enough, steps = TASKS[task][0], args.steps or TASKS[task][1]
        for word in args.delays:
            delay = None if word == "no" else word
            for who in ("soft-highway-dqn", "stable-baselines3")[args.peer : 1 if args.alone else 2]:
                begin = time.perf_counter()
                if who == "soft-highway-dqn":
                    found = ours(task, delay, steps, args.seeds, args.first, also)
                else:
                    found = [theirs(task, delay, steps, args.first + i, also) for i in range(args.seeds)]
                facts = {"task": task, "delay": word, "steps": steps, "who": who, "enough": enough}
                tell(args.out, made_by, facts | ({"also": also} if also else {}), found, time.perf_counter() - begin)


def tell(out: Path | None, made_by: Any, facts: dict[str, Any], found: list[dict[str, Any]], took: float) -> None:
    """One line to read, and a row a seed to keep."""
    good = sum(row["score"] >= facts["enough"] for row in found)
    scores = ", ".join(f"{row['score']:.3g}" for row in found)
    best = ", ".join(f"{row['training']:.3g}" for row in found)
    what = f"{facts['task']} delay {facts['delay']} {facts['steps']:,} {facts['who']} {facts.get('also', '')}".rstrip()
    print(f"{what}: {good}/{len(found)} reach {facts['enough']:g}: {scores}; best {best}; {took:.0f} s", flush=True)
    if out is None:
        return
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    rows += [facts | row | {"provenance": made_by} for row in found]
    out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
