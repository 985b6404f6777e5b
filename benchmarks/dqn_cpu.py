"""One DQN run on a CPU beside Stable-Baselines3 and a plain PyTorch loop: same network, batch and update ratio.

    python benchmarks/dqn_cpu.py                     ours; the others where torch and stable-baselines3 are installed
    python benchmarks/dqn_cpu.py --only torch        a single one, for an environment that has no JAX

All play MinAtar's Breakout without delay: 16 filters of 3 × 3, a layer of 128, batches of 32, one update a step, a
target copied every 1,000 steps, 3-step returns (Stable-Baselines3: n_steps=3 where its version has it). Reported is
the time of a step with its update after 1,000 steps of warming up. Ours alone depends on how full the store is, since
targets are made for all rows drawn when the target network is copied; so it is measured once more with a full store of
100,000 (`full_us`). As in training by default, diagnostics of the whole store are made every 10,000 steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]  # a benchmark there is called minatar, too

WARM, STEPS = 1_000, 10_000


def ours(threads: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from highway_rl.deep import loop
    from highway_rl.deep.algorithms import named_agent
    from highway_rl.deep.refresh import make_agent
    from highway_rl.deep.schedule import Schedule
    from highway_rl.envs import make_env
    from highway_rl.records.provenance import provenance

    env = make_env("minatar/breakout")
    agent = make_agent(named_agent("n-step-dqn", rule={"n": 3}), env.spec)
    plan = Schedule(steps=10_000, start=1_000)
    run = jax.jit(lambda k: loop.init(env, agent, plan, k))(jax.random.key(0))
    go = jax.jit(lambda r, *when: loop.advance(env, agent, plan, r, when[0], 1, *when[1:]), donate_argnums=0)
    when = lambda period, learn_from=0: (jnp.int32(period), jnp.int32(learn_from), jnp.bool_(period % 10 == 0))  # noqa: E731
    begin = time.perf_counter()
    compiled = go.lower(run, *when(0)).compile()
    compile_s = time.perf_counter() - begin
    run, _ = compiled(run, *when(0))

    def later(run: Any, first: int) -> tuple[Any, float]:
        jax.block_until_ready(run)
        begin = time.perf_counter()
        for period in range(first, first + 10):
            run, _ = compiled(run, *when(period))
        jax.block_until_ready(run)
        return run, 1e6 * (time.perf_counter() - begin) / 10_000

    run, early = later(run, 1)
    for period in range(11, 111):  # plays, and does not learn
        run, _ = compiled(run, *when(period, 1_000))
    _, full = later(run, 111)
    return {"us": early, "full_us": full, "compile_s": compile_s, "provenance": provenance(benchmark="dqn_cpu")}


def board_game() -> Any:
    import gymnasium
    import numpy as np
    from minatar import Environment

    class Breakout(gymnasium.Env):
        def __init__(self) -> None:
            self.game = Environment("breakout")
            shape = (self.game.n_channels, 10, 10)
            self.observation_space = gymnasium.spaces.Box(0, 1, shape, np.float32)
            self.action_space = gymnasium.spaces.Discrete(6)

        def look(self) -> Any:
            return np.moveaxis(self.game.state(), -1, 0).astype(np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.game.reset()
            return self.look(), {}

        def step(self, action: Any) -> Any:
            reward, done = self.game.act(int(action))
            return self.look(), float(reward), bool(done), False, {}

    return Breakout()


def network(channels: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU())


def torch_loop(threads: int) -> dict[str, Any]:
    """In the manner of single-file implementations: one loop, numpy replay, no framework around it."""
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    env, rng = board_game(), np.random.default_rng(0)
    make = lambda: nn.Sequential(network(4), nn.Linear(128, 6))  # noqa: E731
    online, target = make(), make()
    target.load_state_dict(online.state_dict())
    optimiser = torch.optim.RMSprop(online.parameters(), lr=2.5e-4, alpha=0.95, eps=0.01, centered=True)
    capacity, n, gamma = 100_000, 3, 0.99
    obs = np.zeros((capacity, 4, 10, 10), np.uint8)
    later = np.zeros_like(obs)
    action, reward = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
    keep = np.zeros(capacity, np.float32)
    now, _ = env.reset()
    recent: list[Any] = []
    size = 0
    begin = 0.0
    for t in range(WARM + STEPS):
        if t == WARM:
            begin = time.perf_counter()
        if rng.random() < 0.5:
            a = int(rng.integers(6))
        else:
            with torch.no_grad():
                a = int(online(torch.as_tensor(now[None])).argmax())
        after, r, done, _, _ = env.step(a)
        recent.append((now, a, r))
        if len(recent) == n or done:
            while recent:
                first, act, _ = recent[0]
                slot = size % capacity
                obs[slot], later[slot], action[slot] = first, after, act
                reward[slot] = sum(gamma**i * x[2] for i, x in enumerate(recent))
                keep[slot] = 0.0 if done else gamma ** len(recent)
                size += 1
                recent.pop(0)
                if not done:
                    break
        now = env.reset()[0] if done else after
        if t < WARM:
            continue
        rows = rng.integers(0, min(size, capacity), 32)
        with torch.no_grad():
            best = target(torch.as_tensor(later[rows], dtype=torch.float32)).max(1).values
            goal = torch.as_tensor(reward[rows]) + torch.as_tensor(keep[rows]) * best
        q = online(torch.as_tensor(obs[rows], dtype=torch.float32))
        chosen = q.gather(1, torch.as_tensor(action[rows])[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(chosen, goal)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 1.0)
        optimiser.step()
        if t % 1_000 == 0:
            target.load_state_dict(online.state_dict())
    return {"us": 1e6 * (time.perf_counter() - begin) / STEPS, "torch": torch.__version__}


def sb3(threads: int) -> dict[str, Any]:
    import inspect

    import stable_baselines3
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    torch.set_num_threads(threads)

    class Features(BaseFeaturesExtractor):
        def __init__(self, space: Any) -> None:
            super().__init__(space, 128)
            self.layers = network(4)

        def forward(self, x: Any) -> Any:
            return self.layers(x)

    more = {"n_steps": 3} if "n_steps" in inspect.signature(DQN.__init__).parameters else {}
    rms = {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"alpha": 0.95, "eps": 0.01, "centered": True}}
    model = DQN(
        "CnnPolicy",
        board_game(),
        learning_rate=2.5e-4,
        buffer_size=100_000,
        learning_starts=WARM,
        batch_size=32,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=1_000,
        max_grad_norm=1.0,
        exploration_fraction=1.0,
        policy_kwargs={"features_extractor_class": Features, "net_arch": [], "normalize_images": False, **rms},
        device="cpu",
        **more,
    )
    model.learn(WARM)
    begin = time.perf_counter()
    model.learn(STEPS, reset_num_timesteps=False)
    found = {"us": 1e6 * (time.perf_counter() - begin) / STEPS, "stable_baselines3": stable_baselines3.__version__}
    return found | {"torch": torch.__version__, **more}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["ours", "torch", "sb3"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="JSON to write, or to add to")
    args = parser.parse_args()
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.exists() else []
    for name, measure in {"ours": ours, "torch": torch_loop, "sb3": sb3}.items():
        if args.only not in (None, name):
            continue
        try:
            row = {"implementation": name, **measure(args.threads)}
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        rows.append({**row, "threads": args.threads, "machine": platform.machine(), "load": os.getloadavg()[0]})
        shown = {k: v for k, v in rows[-1].items() if k != "provenance"}
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items()), flush=True)
    if args.out:
        args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
