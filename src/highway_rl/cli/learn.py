"""The command of the tabular agents: learn."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any, NamedTuple

from tyro.conf import Positional, UseAppendAction, arg

from highway_rl import checks
from highway_rl.cli.console import short, table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learn:
    """Learn a task with late rewards by table: episodes until it is solved, over many seeds.

    highway-rl learn trace-back --set delay=50

    highway-rl learn choice --chooser half

    highway-rl learn choice --method watkins-q-lambda --episodes 20000 --epsilon 0.1
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """trace-back, choice, grid-world or watch-repair."""
    method: str = "highway-q-learning"
    """highway-q-learning, watkins-q-lambda, sarsa-lambda, monte-carlo, q-learning, n-step-q-learning, n-step-sarsa,
    tree-backup, q-sigma, retrace, rudder or rudder-q-lambda."""
    chooser: str | None = None
    """What opens highway-q-learning's gate: sample, the paper's, or half, for tasks with chance in them."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """An option of the task, such as delay=50; may be given several times."""
    epsilon: float = 0.2
    """Share of random actions."""
    episodes: int = 3000
    """Most episodes of a seed."""
    seeds: int = 20
    """How many learn side by side."""
    seed: int = 0
    """Seed of everything random."""
    json: bool = False
    """Print the numbers as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        row = learn(self)
        if self.json:
            print(json.dumps(row, indent=2))
        else:
            table(tuple(row), [tuple(short(v) for v in row.values())])


class Outside(NamedTuple):
    """What a refusal says of an environment that is none of ours."""

    name: str
    observation: Any


def learn(command: Learn) -> dict[str, Any]:
    """Mean and median episodes until the greedy policy is optimal, and the share of seeds that never got there.

    Tables are in double precision, as in the experiment: in single precision values that should differ tie, and Q(λ)
    learns up to twice as fast.
    """
    import jax
    import numpy as np

    from highway_rl.tabular import agent as tabular
    from highway_rl.tabular import rudder
    from highway_rl.tabular.loop import trainer
    from highway_rl.types import NEVER

    checks.whole("seeds", command.seeds, 1)
    checks.whole("episodes", command.episodes, 1)
    if not 0 <= command.seed < 2**63:
        raise ValueError(f"seed={command.seed}: give a whole number from 0 to 2**63 - 1")
    env = environment(command.task, command.set)
    tabular.check_task(env)
    chosen = {} if command.chooser is None else {"chooser": command.chooser}
    if chosen and command.method != "highway-q-learning":
        raise ValueError(f"{command.method} has no gate to choose for: leave chooser={command.chooser} out")
    late = {"rudder": rudder.rudder, "rudder-q-lambda": rudder.rudder_q_lambda}
    if command.method in late:
        learner = rudder.learner(env, late[command.method](epsilon=command.epsilon))
    elif command.method in tabular.AGENTS:
        agent = tabular.tabular_agent(command.method, env.horizon, epsilon=command.epsilon, **chosen)
        learner = tabular.learner(env, agent)
    else:
        raise checks.unknown("method", command.method, [*tabular.AGENTS, *late])
    keys = jax.random.split(jax.random.key(command.seed), command.seeds)
    program = trainer(env, learner, max_episodes=command.episodes, until="greedy", keep=lambda memory: ())
    with jax.enable_x64(command.method not in late):
        solved = np.asarray(program(keys).greedy)
    episodes = np.minimum(solved, command.episodes)
    return {
        "task": command.task,
        "method": command.method,
        "seeds": command.seeds,
        "mean episodes": float(episodes.mean()),
        "median": float(np.median(episodes)),
        "not solved": float((solved == NEVER).mean()),
    }


def environment(name: str, options: tuple[str, ...]) -> Any:
    """The task; or, of any other environment, enough to say why a table cannot learn it."""
    from highway_rl import envs
    from highway_rl.runs.text import settings

    chosen = settings(options)
    if name in envs.TASKS or (name not in envs.names() and "-v" not in name):
        return envs.make_task(name, **chosen)
    if name in envs.names():
        made = envs.make(name, **chosen)
        spec = getattr(made, "spec", None)
        return Outside(name, getattr(spec, "observation", made))
    import gymnasium

    try:
        return Outside(name, gymnasium.make(name, **chosen).observation_space)
    except gymnasium.error.Error as error:
        raise ValueError(
            f"{name} cannot be made ({checks.one_line(error)}): give a task, as `highway-rl list` shows them"
        ) from None
