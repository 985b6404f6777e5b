"""Programs: runs whose computations have one shape are compiled once and advance side by side.

Runs may differ in every number (discount, learning rate, α, λ, …) and in their rule; what makes another shape is the
number of networks, the batch, the loss, the optimiser, the network, a bootstrap that doubles, the schedule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from highway_rl.deep import host, loop
from highway_rl.deep.dqn import DQN
from highway_rl.deep.refresh import make_agent
from highway_rl.deep.rescale import final
from highway_rl.deep.schedule import Schedule
from highway_rl.types import Env, HostEnv


class HasAgent(Protocol):
    """What grouping looks at in a run."""

    @property
    def label(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def agent(self) -> DQN: ...
    @property
    def schedule(self) -> Schedule: ...


class Program(NamedTuple):
    """Runs of one shape. `agent` holds all their rules and the numbers they share; `own` are the numbers they do not,
    by place among the agent's leaves, a row a run. `numbers` are the runs' places in the config. Several `devices`
    have as many of the runs each, and nothing to say to each other; they are those of so many `processes`."""

    env: Env | HostEnv
    agent: DQN
    schedule: Schedule
    own: dict[int, Array]
    keys: Any
    labels: list[tuple[str, int]]
    numbers: list[int]
    devices: int = 1
    processes: int = 1

    def one(self, own: dict[int, Any]) -> DQN:
        """The agent of a single run."""
        leaves, structure = jax.tree.flatten(self.agent)
        new: DQN = jax.tree.unflatten(structure, [own.get(i, leaf) for i, leaf in enumerate(leaves)])
        return new

    def which(self, i: int) -> int:
        """The rule of the i-th run, by its place in the agent's rules."""
        return int(self.one({place: values[i] for place, values in self.own.items()}).which)

    def start(self) -> Callable[[], loop.Run]:
        """Makes all runs as they are before the first step."""

        def begin(own: dict[int, Any], key: Any) -> loop.Run:
            return unplayed(self.env, self.one(own), self.schedule, key)

        made = self._spread(jax.vmap(begin))
        return jax.jit(lambda: made(self.own, self.keys))

    def shapes(self) -> PyTree:
        """The shapes of all runs' states; computes nothing."""
        return jax.eval_shape(self.start())

    def advance(self) -> Callable[..., tuple[loop.Run, loop.Curve]]:
        """(runs, period, learn_from, look) → (runs, curve): one more period of all runs, to be compiled."""
        env = self.env
        assert isinstance(env, Env)

        def more(own: dict[int, Any], run: loop.Run, *when: Any) -> tuple[loop.Run, loop.Curve]:
            first, learn_from, look = when
            agent = make_agent(self.one(own), env.spec)
            return loop.advance(env, agent, self.schedule, run, first, 1, learn_from, look)

        every = self._spread(loop.of_each(more, (0, 0, None, None, None), len(self.labels), self.devices), 3)

        def all_runs(runs: loop.Run, *when: Any) -> tuple[loop.Run, loop.Curve]:
            return every(self.own, runs, *when)

        return all_runs

    @property
    def mesh(self) -> jax.sharding.Mesh:
        """The devices, along the axis of runs: as many of every process, or of this one alone."""
        mine = range(self.processes) if self.processes > 1 else [jax.process_index()]
        found = [jax.local_devices(process_index=i)[: self.devices // self.processes] for i in mine]
        return jax.sharding.Mesh(np.array(found).reshape(-1), ("runs",))

    def whole(self, tree: PyTree) -> PyTree:
        """The same arrays, with all runs in every process."""
        same = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())
        return tree if self.processes == 1 else jax.jit(lambda x: x, out_shardings=same)(tree)

    def left(self, runs: loop.Run) -> PyTree:
        """The networks that training leaves, of all runs."""
        learned = self.whole(runs.learning._replace(moments=None, older=None))
        return jax.vmap(lambda learning: final(self.agent, self.env.spec, learning))(learned)

    def _spread(self, all_runs: Callable[..., Any], shared: int = 0) -> Callable[..., Any]:
        """A function of arrays with an axis of runs, and of `shared` last ones without, on every device for its own."""
        if self.devices == 1:
            return all_runs
        own, same = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
        specs = (own, own, *[same] * shared)
        return jax.shard_map(all_runs, mesh=self.mesh, in_specs=specs, out_specs=own, check_vma=False)

    def compiled(self) -> Callable[..., tuple[loop.Run, loop.Curve]]:
        """What `advance` describes, compiled; where environments step outside JAX, the loop that steps them."""
        if isinstance(self.env, HostEnv):
            spec, seeds = self.env.spec, [seed for _, seed in self.labels]
            agent_of = lambda own: make_agent(self.one(own), spec)  # noqa: E731
            return host.HostLoop(self.env, self.schedule, agent_of, self.own, seeds).check(self.shapes())
        when = jnp.int32(0), jnp.int32(0), jnp.bool_(True)
        if self.devices == 1:
            return jax.jit(self.advance(), donate_argnums=0).lower(self.shapes(), *when).compile()
        specs = jax.sharding.PartitionSpec("runs"), jax.sharding.PartitionSpec()
        own, same = (jax.sharding.NamedSharding(self.mesh, spec) for spec in specs)
        told = own if self.processes == 1 else same  # every process hears of all runs
        more = jax.jit(
            self.advance(), donate_argnums=0, in_shardings=(own, same, same, same), out_shardings=(own, told)
        )
        made = more.lower(self.shapes(), *when).compile()
        return lambda runs, *when: made(_placed(runs, own), *_placed(when, same))


def _placed(tree: PyTree, sharding: jax.sharding.NamedSharding) -> PyTree:
    """Arrays where a program wants them; what a process has whole it gives its own devices their part of."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def place(x: Any) -> Any:
        if not x.is_fully_addressable:
            return x
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(x)))
        here = np.asarray(x)
        return jax.make_array_from_callback(here.shape, sharding, lambda part: here[part])

    return jax.tree.map(place, tree)


def unplayed(env: Env | HostEnv, agent: DQN, schedule: Schedule, key: Any) -> loop.Run:
    """A run that has not begun."""
    made = make_agent(agent, env.spec)
    if isinstance(env, HostEnv):
        return host.init(env.spec, made, schedule, key)
    return loop.init(env, made, schedule, key)


def grouped(env: Env | HostEnv, runs: Sequence[HasAgent], devices: int = 1, processes: int = 1) -> list[Program]:
    """The programs of these runs, in the order of their first run; each on as many of the devices as divide its runs,
    of every one of the processes where these do."""
    groups: dict[Any, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(shape(run.agent, run.schedule), []).append(number)
    found = [_program(env, [runs[i] for i in numbers], numbers) for numbers in groups.values()]
    spread = [_spread_over(len(p.labels), devices, processes) for p in found]
    return [p._replace(devices=n, processes=many) for p, (n, many) in zip(found, spread, strict=True)]


def _spread_over(runs: int, devices: int, processes: int) -> tuple[int, int]:
    """Over how many devices, of how many processes with so many each, runs are spread evenly."""
    many = processes if runs % processes == 0 else 1
    return many * max(n for n in range(1, devices + 1) if runs % (many * n) == 0), many


def shape(agent: DQN, schedule: Schedule) -> tuple[Any, ...]:
    """What runs of one program have in common."""
    fixed = [f.name for f in dataclasses.fields(agent) if f.metadata.get("static")]
    times = [getattr(schedule, f.name) for f in dataclasses.fields(schedule)]
    return (*(getattr(agent, name) for name in fixed), agent.doubles, *times)


def _program(env: Env | HostEnv, runs: list[HasAgent], numbers: list[int]) -> Program:
    """All rules in one agent; rules that differ in numbers only are one rule with a number a run."""
    distinct = {id(run.agent): run.agent for run in runs}  # seeds share theirs
    first: dict[Any, Any] = {}
    for agent in distinct.values():
        first.setdefault(jax.tree.structure(agent.rule), agent.rule)
    places = {structure: place for place, structure in enumerate(first)}
    whole = []
    for agent in distinct.values():
        place = places[jax.tree.structure(agent.rule)]
        rules: Any = tuple(agent.rule if i == place else rule for i, rule in enumerate(first.values()))
        whole.append(dataclasses.replace(agent, rule=rules, which=place))
    columns = list(zip(*(jax.tree.leaves(agent) for agent in whole), strict=True))
    row = {name: i for i, name in enumerate(distinct)}
    rows = np.array([row[id(run.agent)] for run in runs])
    own = {i: jnp.asarray(np.stack(column)[rows]) for i, column in enumerate(columns) if not _equal(column)}
    keys = jax.vmap(jax.random.key)(np.array([run.seed for run in runs], np.uint32))
    labels = [(run.label, run.seed) for run in runs]
    return Program(env, whole[0], runs[0].schedule, own, keys, labels, numbers)


def _equal(column: Sequence[Any]) -> bool:
    return all(np.array_equal(np.asarray(value), np.asarray(column[0])) for value in column)
