"""The loop where environments step outside JAX: the same agent, refresh, store and tallies, with the turns made on the
host.

    begin ──> act ──> learn, which goes on while the environments step ──> act ──> … ──> finish

begin, act, learn and finish are compiled, for all runs together. An action is chosen by the networks as they were
before the updates of its turn, as in `loop.turn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.deep import loop
from highway_rl.deep.agent import Agent
from highway_rl.deep.schedule import Schedule
from highway_rl.envs.wrappers import AutoResetState
from highway_rl.types import HostEnv, Spec


def init(spec: Spec, agent: Agent, schedule: Schedule, key: PRNGKeyArray) -> loop.Run:
    """A run before its environments have begun: what is seen then is zero."""
    k_net, _, k_run = jax.random.split(key, 3)
    obs = jax.tree.map(lambda x: jnp.zeros((schedule.num_envs, *x.shape), x.dtype), spec.observation)
    store = loop.new_store(spec, schedule, obs)
    return loop.begun(agent.init(k_net), store, AutoResetState((), obs), k_run, schedule)


class Interrupted(ValueError):
    """An environment failed; `run` is where the runs stand, with all that was collected."""

    run: loop.Run


class HostLoop:
    """(runs, period, learn_from, look) → (runs, curve), as the compiled loop; `agent_of(own)` is a run's agent.

    Environments begin at the first call, with a fresh episode: what a store holds of an older one is cut there. They
    are seeded by the run's seed and the period, so that a run that is resumed does not see the same episodes again.
    """

    def __init__(
        self, env: HostEnv, schedule: Schedule, agent_of: Callable[[Any], Agent], own: Any, seeds: Sequence[int]
    ) -> None:
        self.env, self.schedule, self.own, self.seeds = env, schedule, own, seeds
        self.worlds: list[Any] = []
        self.here: Any = None
        spec, coded, count = env.spec, codec_of(env.spec), len(seeds)
        self.coded = coded
        each = lambda f, *axes: loop.of_each(f, (0, *axes), count)  # noqa: E731

        def draw(own: Any, run: loop.Run, number: Any) -> loop.Drawn:
            return loop.draw(spec, agent_of(own), schedule, run.key, number)

        def begin(own: Any, run: loop.Run, number: Any, look: Any) -> Any:
            agent = agent_of(own)
            drawn = loop.draw(spec, agent, schedule, run.key, number)
            return drawn, *loop.begin(agent, schedule, run, drawn, look)

        def act(own: Any, learning: PyTree, here: Array) -> Array:
            return agent_of(own).act(learning, jax.vmap(coded.decode)(here))

        def learn(own: Any, learning: PyTree, batches: PyTree, losses: Array, turn: Any) -> Any:
            agent, updates = agent_of(own), schedule.updates_per_turn

            def one(learning: PyTree, i: Any) -> tuple[PyTree, Array]:
                learning, loss, _ = agent.learn(learning, batches, (turn, i), jnp.zeros((0, coded.width), jnp.uint8))
                return learning, loss

            if updates == 1:  # a loop would copy what it changes
                learning, loss = one(learning, 0)
            else:
                learning, loss = jax.lax.scan(one, learning, jnp.arange(updates))
            return learning, losses.at[turn].set(jnp.mean(loss))

        def finish(own: Any, run: loop.Run, drawn: loop.Drawn, played: loop.Played) -> Any:
            return loop.finish(spec, schedule, run, drawn, played)

        self.unseen = lambda: each(lambda own: agent_of(own).unseen)(own)
        self._draw = jax.jit(each(draw, 0, None))
        self._begin = jax.jit(each(begin, 0, None, None))
        self._act = jax.jit(each(act, 0, 0))
        self._learn = jax.jit(each(learn, 0, 0, 0, None), donate_argnums=(1, 3))
        self._finish = jax.jit(each(finish, 0, 0, 0), donate_argnums=1)
        self._decode = jax.jit(jax.vmap(jax.vmap(coded.decode)))
        self._cut = jax.jit(lambda store, here: jax.vmap(jax.vmap(ring.cut))(store, coded.row(here)), donate_argnums=0)

    def check(self, run: loop.Run) -> HostLoop:
        """Traces what a turn needs, from shapes alone: what cannot be compiled says so before anything has begun."""
        number = jax.ShapeDtypeStruct((), jnp.int32)
        _, learning, batches, _ = jax.eval_shape(self._begin, self.own, run, number, True)
        here = jax.ShapeDtypeStruct((*run.score.shape, self.coded.width), jnp.uint8)
        losses = jax.ShapeDtypeStruct((len(self.seeds), self.schedule.turns), jnp.float32)
        self._begin.lower(self.own, run, number, True)
        self._act.lower(self.own, learning, here)
        if self.schedule.updates_per_turn:
            self._learn.lower(self.own, learning, batches, losses, number)
        return self

    def __call__(self, run: loop.Run, period: Any, learn_from: Any, look: Any) -> tuple[loop.Run, loop.Curve]:
        if not self.worlds:
            run = self._open(run, int(period))
        s, number = self.schedule, jnp.asarray(period, jnp.int32)
        learns = int(period) * s.refresh >= s.start and int(period) >= int(learn_from)
        if learns:
            drawn, learning, batches, seen = self._begin(self.own, run, number, look)
        else:
            drawn, learning, batches, seen = self._draw(self.own, run, number), run.learning, None, self.unseen()
        updates = learns and s.updates_per_turn > 0
        learning = jax.tree.map(lambda x: x.copy(), learning)  # what learns is given away; the runs keep theirs
        runs, turns, E = len(self.seeds), s.turns, s.num_envs
        losses = jnp.zeros((runs, turns), jnp.float32)
        explores, chance = np.asarray(drawn.turns.explores), np.asarray(drawn.turns.action)
        all_random = np.asarray(drawn.epsilon) == 1
        obs = np.zeros((runs, turns, E, 2 * self.coded.width), np.uint8)
        action = np.zeros((runs, turns, E), np.int32)
        reward, flags = np.zeros(action.shape, np.float32), np.zeros((4, *action.shape), bool)
        made, failure = 0, None
        for t in range(turns):
            random = all_random[:, t].all()
            best = chance[:, t] if random else np.asarray(self._act(self.own, learning, self.here))
            if updates:
                learning, losses = self._learn(self.own, learning, batches, losses, np.int32(t))
            action[:, t] = np.where(explores[:, t], chance[:, t], best)
            for world, chosen in zip(self.worlds, action[:, t], strict=True):
                world.send(chosen)
            came: list[Any] = []
            try:
                for world in self.worlds:
                    came.append(world.receive())
            except Exception as error:
                failure = error
                break
            obs[:, t, :, : self.coded.width] = self.here
            for r, one in enumerate(came):
                obs[r, t, :, self.coded.width :] = self.coded.encode_rows(one.after)
                reward[r, t] = one.reward
                flags[1:, r, t] = one.terminated, one.truncated, one.real
                self.here[r] = self.coded.encode_rows(one.here)
            flags[0, :, t] = action[:, t] == best
            made = t + 1
        every = lambda x: x[:, :made]  # noqa: E731
        loss = jnp.broadcast_to(every(losses)[:, :, None], (runs, made, E))
        best_, terminated, truncated, real = map(every, flags)
        did = loop.Happened(every(action), best_, terminated, truncated, every(reward), loss)
        state = AutoResetState((), self._decode(self.here.copy()))
        part = drawn._replace(
            turns=jax.tree.map(every, drawn.turns), steps=every(drawn.steps), epsilon=every(drawn.epsilon)
        )
        played = loop.Played(learning, state, every(obs), did, seen, real)
        if failure is None:
            run, curve = self._finish(self.own, run, part, played)
            return run, jax.tree.map(lambda x: x[:, None], curve)
        self.close()
        stopped = Interrupted(f"at step {int(period) * s.refresh + made * E:,}{self._seed(len(came))}: {failure}")
        stopped.run = self._finish(self.own, run, part, played)[0] if made else run
        raise stopped from failure

    def _open(self, run: loop.Run, period: int) -> loop.Run:
        """The environments, each run's own, and the runs with their first observations."""
        entropy = [int(np.random.SeedSequence([seed, period]).generate_state(1)[0]) for seed in self.seeds]
        first: list[Any] = []
        try:
            for seed in entropy:
                self.worlds.append(self.env.start(self.schedule.num_envs, seed))
            for world in self.worlds:
                first.append(self.coded.encode_rows(world.reset()))
        except Exception as error:
            whose = self._seed(len(self.worlds) if len(self.worlds) < len(entropy) else len(first))
            self.close()
            stopped = Interrupted(f"before step {period * self.schedule.refresh:,}{whose}: {error}")
            stopped.run = run
            raise stopped from error
        self.here = np.stack(first)
        zero = lambda x: jnp.zeros_like(x)  # noqa: E731
        return run._replace(
            store=self._cut(run.store, self.here.copy()), score=zero(run.score), length=zero(run.length)
        )

    def _seed(self, i: int) -> str:
        """Whose environments these are, where there are several runs."""
        return f" of seed {self.seeds[i]}" if len(self.seeds) > 1 else ""

    def close(self) -> None:
        for world in self.worlds:
            world.close()
        self.worlds = []
