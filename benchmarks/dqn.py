"""Speed of the deep agent: µs per environment step (with its update of 32), in all and by part.

    python benchmarks/dqn.py                       one run on this machine
    python benchmarks/dqn.py --runs 1 60 --games breakout seaquest --algos dqn retrace
    python benchmarks/dqn.py --preset paper --networks 1 2 4 --envs 1 8 --ratio 1 0.25
    python benchmarks/dqn.py --algos soft-highway-dqn:depths=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,end dqn:k=4

A period is timed with a full store, and looks at the whole store's targets in one of ten, as training does by default
every 10,000 steps. Rows without `us_looking` are older: they looked in every period. By default with preset explorer:
one network, one environment, one update of 32 a step, a store of 1e5 steps and a refresh every 1000.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.deep import dqn, loop
from highway_rl.deep.refresh import make_agent, whole_store, whole_targets
from highway_rl.deep.schedule import Schedule
from highway_rl.envs import make_env
from highway_rl.envs.wrappers import auto_reset
from highway_rl.records.provenance import provenance
from highway_rl.runs.config import Config, build
from highway_rl.runs.text import parse


def seconds(f: Any, *args: Any, repeats: int = 3) -> float:
    jax.block_until_ready(f(*args))
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(f(*args))
        best = min(best, time.perf_counter() - begin)
    return best


def program(env: Any, agent: Any, schedule: Any, runs: int) -> tuple[Any, Any]:
    """The runs as they begin, and one more period of them; state is donated, as the host loop does."""
    keys = jax.random.split(jax.random.key(0), runs)
    made = make_agent(agent, env.spec)
    state = jax.jit(jax.vmap(lambda k: loop.init(env, made, schedule, k)))(keys)
    one = lambda r, first, look: loop.advance(env, made, schedule, r, first, 1, look=look)  # noqa: E731
    return state, jax.jit(jax.vmap(one, in_axes=(0, None, None)), donate_argnums=0)


def whole(
    env: Any, agent: Any, schedule: Any, runs: int, periods: int, profile: Path | None = None
) -> dict[str, float]:
    """µs a step of the compiled program that trains with a full store, where one period of ten looks at its targets."""
    state, go = program(env, agent, schedule, runs)
    begin = time.perf_counter()
    compiled = go.lower(state, jnp.int32(0), True).compile()
    compile_s = time.perf_counter() - begin
    memory = compiled.memory_analysis()
    times: dict[bool, list[float]] = {True: [], False: []}
    for period in range(2):
        state, _ = compiled(state, jnp.int32(period), True)
    full = jax.vmap(jax.vmap(lambda store: ring.repeated(store, 2 * schedule.refresh // schedule.num_envs)))
    state = state._replace(store=jax.jit(full)(state.store))
    late = 2 + 2 * schedule.capacity // schedule.refresh
    for period, look in itertools.product(range(late, late + 1 + periods), (False, True)):
        begin = time.perf_counter()
        state, curve = compiled(state, jnp.int32(period), look)
        jax.block_until_ready((state, curve))
        times[look].append(time.perf_counter() - begin)
    bytes_ = 0 if memory is None else memory.argument_size_in_bytes + memory.temp_size_in_bytes
    us = {look: 1e6 * min(found[1:]) / schedule.refresh for look, found in times.items()}
    row = {"us": 0.9 * us[False] + 0.1 * us[True], "us_looking": us[True], "compile_s": compile_s, "GB": bytes_ / 1e9}
    if profile:
        what = f"{runs} runs, {env.spec.name}, k={agent.num_networks}"
        kernels(what, lambda: compiled(state, jnp.int32(late), False), schedule.refresh, profile)
    held = jax.devices()[0].memory_stats() or {}  # the most this process ever held, earlier rows included; not on CPU
    return row | ({"peak_GB": held["peak_bytes_in_use"] / 1e9} if held else {})


def kernels(what: str, period: Any, steps: int, file: Path) -> None:
    """Where the time of a period goes on a GPU: µs a step of each kernel, and how often it runs in a step."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(period())
        (found,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(found))
    spent: dict[str, tuple[float, int]] = {}
    first, last = float("inf"), 0.0
    for plane in data.planes:
        for line in plane.lines if plane.name.startswith("/device:GPU") else ():
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                time_, count = spent.get(event.name, (0.0, 0))
                spent[event.name] = time_ + event.duration_ns, count + 1
                first, last = min(first, event.start_ns), max(last, event.start_ns + event.duration_ns)
    total = sum(time_ for time_, _ in spent.values())
    text = f"{what}, period of {steps} steps without a look at its targets\n"
    text += f"{(last - first) / 1e3 / steps:9.2f} us/step from first to last, {total / 1e3 / steps:9.2f} in kernels\n"
    for name, (time_, count) in sorted(spent.items(), key=lambda x: -x[1][0])[:80]:
        text += f"{time_ / 1e3 / steps:9.2f} us/step  x {count / steps:6.2f}  {name[:150]}\n"
    with file.open("a") as out:
        out.write(text)


def parts(env: Any, agent: Any, schedule: Any, runs: int, steps: int = 1000) -> dict[str, float]:
    """µs a step of each part alone."""
    coded = codec_of(env.spec)
    playing = auto_reset(env)
    run, _ = program(env, agent, schedule, runs)
    rows = jnp.zeros((runs, 1, 1, agent.batch_size, coded.width), jnp.uint8)
    net, taken = jnp.zeros((runs, 1, 1), jnp.int32), jnp.zeros((runs, 1, 1, agent.batch_size), jnp.int32)
    batches = dqn.Batch(net, rows, taken, jnp.ones(taken.shape, jnp.float32))

    def repeat(f: Any) -> Any:
        return jax.jit(lambda x: jax.lax.scan(lambda c, i: (f(c, i), None), x, jnp.arange(steps))[0])

    def step(state: Any, i: Any) -> Any:
        step_keys = jax.random.split(jax.random.key(i), runs)
        return jax.vmap(playing.step)(state, jnp.zeros(runs, jnp.int32), step_keys).state

    def act(first: Any, i: Any) -> Any:
        q = jax.vmap(lambda p, o: dqn.q_values(agent, env.spec, p, o))(
            run.learning.params, jax.tree.map(lambda x: x ^ (first[0, 0] > 1e9), run.env.obs)
        )
        return first + jnp.argmax(q, axis=-1)

    def learn(learning: Any, i: Any) -> Any:
        here = jax.vmap(jax.vmap(coded.encode))(run.env.obs)
        drawn = batches._replace(obs=batches.obs ^ i.astype(jnp.uint8))
        return jax.vmap(lambda c, b, h: dqn.learn(agent, env.spec, c, b, (0, 0), h)[0])(learning, drawn, here)

    full = jnp.int32(schedule.capacity)
    refresh = jax.jit(jax.vmap(lambda r: whole_targets(agent, env.spec, r.learning, r.store, full, jax.random.key(0))))
    network = jax.jit(jax.vmap(lambda r: whole_store(agent, env.spec, r.learning.params, r.store, full)))
    return {
        "environment": 1e6
        * seconds(repeat(step), jax.vmap(lambda s: jax.tree.map(lambda x: x[0], s))(run.env))
        / steps,
        "act": 1e6 * seconds(repeat(act), jnp.zeros((runs, 1), jnp.int32)) / steps,
        "update": 1e6 * seconds(repeat(learn), run.learning) / steps,
        "refresh": 1e6 * seconds(refresh, run) / schedule.refresh,
        "refresh: network": 1e6 * seconds(network, run) / schedule.refresh,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=["breakout"])
    parser.add_argument("--algos", nargs="+", default=["soft-highway-dqn"], metavar="NAME[:…]")
    parser.add_argument("--preset", default="explorer", help="explorer or paper")
    parser.add_argument(
        "--networks", nargs="+", type=int, default=[], metavar="K", help="how many: the preset's if none"
    )
    parser.add_argument("--bootstrap", help="greedy or epsilon-greedy: the preset's if none")
    parser.add_argument("--runs", nargs="+", type=int, default=[1])
    parser.add_argument("--envs", nargs="+", type=int, default=[1], help="environments of a run that step at once")
    parser.add_argument("--ratio", nargs="+", type=float, default=[1.0], help="updates per environment step")
    parser.add_argument("--delay", default="end", help="end, or none")
    parser.add_argument("--parts", action="store_true", help="also each part alone")
    parser.add_argument("--kernels", type=Path, help="file that gets the time of each kernel on a GPU")
    parser.add_argument("--periods", type=int, default=3)
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--out", type=Path, help="JSON to write, or to add to")
    args = parser.parse_args()
    device = jax.devices()[0]
    print(f"jax {jax.__version__}, {device.device_kind}")
    rows = json.loads(args.out.read_text())["rows"] if args.out and args.out.exists() else []
    facts = provenance(benchmark="dqn")
    bootstrap = {"bootstrap": args.bootstrap} if args.bootstrap else {}
    networks_ = [{"k": k} for k in args.networks] or [{}]
    cases = itertools.product(args.games, args.algos, networks_, args.runs, args.envs, args.ratio)
    for game, algo, networks, runs, envs, ratio in cases:
        env = make_env(f"minatar/{game}", **({} if args.delay == "none" else {"delay": args.delay}))
        config = Config(f"minatar/{game}", preset=args.preset, settings=networks | bootstrap)
        agent, _ = build(config, env, parse(algo)[0])
        schedule = Schedule(steps=10_000, start=1_000, capacity=args.capacity, num_envs=envs, updates_per_step=ratio)
        row: dict[str, Any] = {"game": game, "delay": args.delay, "algo": algo, "preset": args.preset, "runs": runs}
        row |= {"networks": agent.num_networks, "envs": envs, "ratio": ratio} | bootstrap
        row |= whole(env, agent, schedule, runs, args.periods, args.kernels)
        if args.parts:
            row |= parts(env, agent, schedule, runs)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in row.items()), flush=True)
        rows.append({**row, "provenance": facts})
        if args.out:
            args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
