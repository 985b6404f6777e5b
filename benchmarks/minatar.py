"""Steps per second of the games, beside the other implementations that are installed.

    python benchmarks/minatar.py --out minatar.json            # all games; 1 and 1,024 boards on a CPU,
                                                               # 1, 60, 1,024 and 16,384 on a GPU
    python benchmarks/minatar.py --games seaquest --boards 60

Every implementation runs the same program: `--steps` steps of random play on so many boards with auto-reset, as one
`scan`, its keys and actions drawn beforehand inside the program. Times are the best of `--repeats` runs, or of as many
as fit in half a second; compiling is timed apart. pgx and gymnax play their minimal action set, which is their
default, and gymnax without sticky actions. The NumPy package plays one board in a Python loop: it acts, its board is
read, and it begins again when a game ends; its actions are drawn beforehand and not timed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]  # or this file would hide the package minatar

import jax  # noqa: E402

from highway_rl.envs import minatar  # noqa: E402
from highway_rl.envs.wrappers import auto_reset  # noqa: E402

GPU_BARS = {game: 80.0 if game == "seaquest" else 45.0 for game in minatar.GAMES}  # µs a step, 60 boards
CPU_BARS = {game: 10.0 if game == "seaquest" else 2.0 for game in minatar.GAMES}  # times the better port, 1,024 boards
COMPILE_BAR = 8.0  # s, 1000 steps on a CPU
LEAST_TIME = 0.5  # s
Program = Callable[[Any], Any]


def ours(game: str, boards: int, steps: int) -> Program:
    env = auto_reset(minatar.make(game))

    def run(key: Any) -> Any:
        start, each, play = jax.random.split(key, 3)
        state, _ = jax.vmap(env.reset)(jax.random.split(start, boards))
        xs = (
            jax.random.randint(play, (steps, boards), 0, env.spec.num_actions),
            jax.random.split(each, (steps, boards)),
        )

        def step(state: Any, x: Any) -> Any:
            out = jax.vmap(env.step)(state, *x)
            return out.state, (out.reward.sum(), out.terminated.sum())

        return jax.lax.scan(step, state, xs)

    return run


def pgx(game: str, boards: int, steps: int) -> Program:
    package = importlib.import_module("pgx")
    env = package.make(f"minatar-{game}")
    stepper = importlib.import_module("pgx.experimental").auto_reset(env.step, env.init)

    def run(key: Any) -> Any:
        start, each, play = jax.random.split(key, 3)
        state = jax.vmap(env.init)(jax.random.split(start, boards))
        xs = (
            jax.random.randint(play, (steps, boards), 0, env.spec.num_actions),
            jax.random.split(each, (steps, boards)),
        )

        def step(state: Any, x: Any) -> Any:
            state = jax.vmap(stepper)(state, *x)
            return state, (state.rewards.sum(), state.terminated.sum())

        return jax.lax.scan(step, state, xs)

    return run


def gymnax(game: str, boards: int, steps: int) -> Program:
    env, params = importlib.import_module("gymnax").make(f"{game.title().replace('_', '')}-MinAtar")

    def run(key: Any) -> Any:
        start, each, play = jax.random.split(key, 3)
        obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(start, boards), params)
        xs = (
            jax.random.randint(play, (steps, boards), 0, env.spec.num_actions),
            jax.random.split(each, (steps, boards)),
        )

        def step(carry: Any, x: Any) -> Any:
            actions, keys = x
            out = jax.vmap(env.step, (0, 0, 0, None))(keys, carry[1], actions, params)
            return (out[0], out[1]), (out[2].sum(), out[3].sum())

        return jax.lax.scan(step, (obs, state), xs)

    return run


RIVALS = {"ours": ours, "pgx": pgx, "gymnax": gymnax}


def timed(run: Callable[[], Any], steps: int, repeats: int) -> dict[str, float]:
    """Microseconds a step: the best and the median by the clock, the best by the processors' time."""
    walls: list[float] = []
    cpus: list[float] = []
    while len(walls) < repeats or sum(walls) < LEAST_TIME:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    names = ("us_per_step", "median_us_per_step", "cpu_us_per_step")
    return {n: 1e6 * t / steps for n, t in zip(names, (min(walls), statistics.median(walls), min(cpus)), strict=True)}


def measure(name: str, game: str, boards: int, steps: int, repeats: int) -> dict[str, Any]:
    """Compiles and times one program; a failure is reported as its own kind of row."""
    row: dict[str, Any] = {"implementation": name, "game": game, "boards": boards, "steps": steps}
    try:
        program = RIVALS[name](game, boards, steps)
        key = jax.random.PRNGKey(0)
        begin = time.perf_counter()
        compiled = jax.jit(program).lower(key).compile()
        row["compile_s"] = time.perf_counter() - begin
        jax.block_until_ready(compiled(key))
        row |= timed(lambda: jax.block_until_ready(compiled(key)), steps, repeats)
        row["steps_per_s"] = 1e6 * boards / row["us_per_step"]
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return row


def measure_original(game: str, steps: int, repeats: int) -> dict[str, Any]:
    """The NumPy package: one board, its boards read out, begun again when it ends."""
    row: dict[str, Any] = {"implementation": "minatar", "game": game, "boards": 1, "steps": steps}
    try:
        numpy = importlib.import_module("numpy")
        env = importlib.import_module("minatar").Environment(game)
        env.seed(0)
        env.reset()
        actions = numpy.random.RandomState(0).randint(0, 6, steps)

        def run() -> None:
            for action in actions:
                _, terminal = env.act(action)
                env.state()
                if terminal:
                    env.reset()

        row |= timed(run, steps, repeats)
        row["steps_per_s"] = 1e6 / row["us_per_step"]
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each game and number of boards, one column for each implementation."""
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    head = [
        "game",
        "boards",
        *(f"{name} µs/step" for name in names),
        "ours steps/s",
        "ours compile s",
        "faster than next",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for game, boards in dict.fromkeys((row["game"], row["boards"]) for row in rows):
        found = {r["implementation"]: r for r in rows if (r["game"], r["boards"]) == (game, boards)}
        mine = found.get("ours", {})
        others = [r["us_per_step"] for n, r in found.items() if n != "ours" and "us_per_step" in r]
        cells = [f"{found[n]['us_per_step']:.1f}" if "us_per_step" in found.get(n, {}) else "-" for n in names]
        rate = f"{mine['steps_per_s']:.3g}" if "steps_per_s" in mine else "-"
        compiling = f"{mine['compile_s']:.1f}" if "compile_s" in mine else "-"
        ratio = f"{min(others) / mine['us_per_step']:.1f}×" if others and "us_per_step" in mine else "-"
        lines.append("| " + " | ".join([game, f"{boards:,}", *cells, rate, compiling, ratio]) + " |")
    return "\n".join(lines)


def verdicts(rows: list[dict[str, Any]], on_gpu: bool) -> list[str]:
    """One line for each bar of the issue that these rows can judge."""
    lines = []
    times = {(r["implementation"], r["game"], r["boards"]): r for r in rows if "us_per_step" in r}
    judge = lambda met: "met" if met else "MISSED"  # noqa: E731
    for (name, game, boards), row in times.items():
        mine = row["us_per_step"]
        rival = {n: times[n, game, boards]["us_per_step"] for n in (*RIVALS, "minatar") if (n, game, boards) in times}
        ports = [rival[n] for n in ("pgx", "gymnax") if n in rival]
        if name != "ours":
            continue
        if on_gpu and boards == 60:
            bar = GPU_BARS[game]
            lines.append(f"{game}: {mine:.1f} µs a step for 60 boards, bar {bar:.0f}: {judge(mine <= bar)}")
        if not on_gpu and boards == 1024 and ports:
            bar, ratio = CPU_BARS[game], min(ports) / mine
            lines.append(f"{game}: {ratio:.1f} times the better port, bar {bar:.0f}: {judge(ratio >= bar)}")
        if not on_gpu and "minatar" in rival:
            ratio = rival["minatar"] / mine
            lines.append(f"{game}: one board {ratio:.2f} times NumPy's speed, bar 1: {judge(ratio >= 1)}")
        if not on_gpu and row["steps"] >= 1000:
            took = row["compile_s"]
            lines.append(f"{game}: {boards} boards compile in {took:.1f} s, bar 8: {judge(took <= COMPILE_BAR)}")
    return lines


def main() -> None:
    device, load = jax.devices()[0], os.getloadavg()[0]
    on_gpu = device.platform == "gpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(minatar.GAMES), choices=minatar.GAMES)
    parser.add_argument("--boards", nargs="+", type=int, default=[1, 60, 1024, 16384] if on_gpu else [1, 1024])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rival-steps", type=int, default=1000 if on_gpu else 100, help="steps for pgx and gymnax")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", nargs="*", default=["pgx"] if on_gpu else ["pgx", "gymnax", "minatar"])
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()

    rows: list[dict[str, Any]] = []
    for game in args.games:
        for boards in args.boards:
            new = [measure("ours", game, boards, args.steps, args.repeats)]
            rivals = [name for name in args.against if name in RIVALS]
            new += [measure(name, game, boards, args.rival_steps, args.repeats) for name in rivals]
            if boards == 1 and "minatar" in args.against:
                new.append(measure_original(game, 3000, args.repeats))
            print("\n".join(json.dumps(row) for row in new), flush=True)
            rows += new

    report = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device.device_kind,
        "platform": device.platform,
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_before": load,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("jax", "jaxlib", "numpy", "minatar", "pgx", "gymnax")},
        "rows": rows,
    }
    print(table(rows))
    print("\n".join(verdicts(rows, on_gpu)))
    print(f"{report['device']} ({report['platform']}), {report['cpus']} CPUs, versions {report['versions']}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
