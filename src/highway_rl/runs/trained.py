"""A trained agent as an object: `agent = highway_rl.load(folder)`; it acts, values, and is evaluated."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from highway_rl import checks
from highway_rl.deep import dqn
from highway_rl.deep.dqn import DQN
from highway_rl.deep.evaluation import Played, play, play_outside, summary
from highway_rl.envs.films import film_name, write_film
from highway_rl.envs.registry import make_env
from highway_rl.runs.config import Config
from highway_rl.runs.episode import Episode, as_episode, pictures, play_episode
from highway_rl.runs.evaluate import outside
from highway_rl.runs.explain import Explained, explained, teller
from highway_rl.runs.fit import fit
from highway_rl.runs.standing import Trained
from highway_rl.types import Env, HostEnv, Spec


class TrainedAgent:
    """One run's networks. `spec` is what it knows of its environment, `label` and `seed` which run it is, `step` how
    far it was trained, `score` the mean of its greedy test episodes where there were any, `metrics` what else was
    measured of it."""

    def __init__(
        self,
        config: Config,
        spec: Spec,
        agent: DQN,
        params: PyTree,
        label: str,
        seed: int,
        step: int,
        score: Any,
        metrics: dict[str, Any] | None = None,
        trained: Trained | None = None,
    ) -> None:
        self._trained = trained
        self.config, self.spec, self.agent, self.params = config, spec, agent, params
        self.label, self.seed, self.step, self.score, self.metrics = label, seed, step, score, metrics or {}

    def __repr__(self) -> str:
        score = "" if self.score is None else f", score {self.score:.4g}"
        return f"<{self.label} seed {self.seed} on {self.config.task}, step {self.step:,}{score}>"

    def save(self, path: Path | str) -> Path:
        """Writes this agent as one file, which `highway_rl.load(path)` reads, here or on another machine."""
        from highway_rl.runs import agent_file

        kept = (self.config, self.spec, self.agent, self.params, self.label, self.seed, self.step, self.score)
        return agent_file.write(Path(path), agent_file.Kept(*kept, self.metrics))

    @cached_property
    def _values(self) -> Any:
        return jax.jit(self._q)

    @cached_property
    def _best(self) -> Any:
        return jax.jit(lambda params, arrays: dqn.best(self._q(params, arrays)))

    def _q(self, params: PyTree, arrays: list[Any]) -> Any:
        return dqn.q_values(self.agent, self.spec, params, jax.tree.unflatten(self._wanted[0], arrays))

    def q_values(self, obs: Any) -> np.ndarray:
        """Q(s, ·): [a] of one observation, [t, a] of a batch."""
        batch, single = self._batch(obs)
        q = np.asarray(self._values(self.params, batch))
        return q[0] if single else q

    def act(self, obs: Any, *, epsilon: float = 0.0, rng: np.random.Generator | None = None) -> Any:
        """The greedy action of one observation, or of each in a batch; random with probability `epsilon`. For a
        Gymnasium environment both are its own: what `reset` and `step` return, and what `step` takes."""
        chosen = self._choose(obs, epsilon, rng)
        return chosen if self._own is None else self._own.actions(chosen)

    @cached_property
    def _own(self) -> Any:
        """How its environment's own observations and actions are read and written, where they look different."""
        if self.spec.spaces is None:
            return None
        from highway_rl.envs.host import Own

        return Own(self.spec.spaces)

    def _choose(self, obs: Any, epsilon: float = 0.0, rng: np.random.Generator | None = None) -> Any:
        """`act` by the numbers of the actions."""
        if type(epsilon) is not float or epsilon != 0.0:
            checks.unit_interval("epsilon", epsilon)
        batch, single = self._batch(obs)
        best = np.asarray(self._best(self.params, batch))
        if epsilon > 0:
            rng = rng or np.random.default_rng()
            chance = rng.integers(self.spec.num_actions, size=best.shape)
            best = np.where(rng.random(best.shape) < epsilon, chance, best)
        return int(best[0]) if single else best

    def learn(self, more_steps: int, *, report: Any = lambda news: None, callbacks: Any = ()) -> TrainedAgent:
        """Trains this agent, and the others it was trained with, for so many steps more; returns itself, improved."""
        more = checks.whole("more_steps", more_steps, 1)
        if self._trained is None:
            raise ValueError(
                f"{self.label} seed {self.seed} came without its store: train it with out=FOLDER and load that folder"
            )
        again = self._trained
        if len(again.setup.programs) > 1 and again.folder is None:
            raise ValueError("these runs are in several programs: train them with out=FOLDER to go on with all")
        steps = again.setup.programs[0].schedule
        wanted = -(-(self.step + more) // steps.refresh) * steps.refresh
        config = dataclasses.replace(self.config, steps=wanted)
        onward: Any = {"onward": again} if again.folder is None else {"out": again.folder, "resume": True}
        from highway_rl.runs.agents import best

        found = best(fit(config, report=report, callbacks=callbacks, **onward), (self.label, self.seed))
        self.__dict__ = found.__dict__
        return self

    def evaluate(
        self,
        env: Any = None,
        episodes: int = 100,
        *,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int = 100_000,
    ) -> dict[str, Any]:
        """So many episodes in an environment, its own by default: score, half its 95 % interval, length, cut off."""
        checks.whole("episodes", episodes, 1)
        found = self._environment(env)
        if isinstance(found, HostEnv):
            best, params = outside(self.agent, self.spec), jax.tree.map(lambda x: x[None], self.params)
            options: Any = {"epsilon": [epsilon], "episodes": episodes, "max_steps": max_steps}
            found_scores = play_outside(found, lambda here: best(params, here), [seed], **options)
            return summary(Played(*(x[0] for x in found_scores)), epsilon)
        act = lambda params, obs: dqn.best(dqn.q_values(self.agent, self.spec, params, obs))  # noqa: E731
        go = jax.jit(
            lambda params, key, share: play(
                found, lambda obs: act(params, obs), key, epsilon=share, episodes=episodes, max_steps=max_steps
            )
        )
        played = jax.device_get(go(self.params, jax.random.key(seed), jnp.float32(epsilon)))
        return summary(played, epsilon)

    def episode(self, env: Any = None, *, seed: int = 0, max_steps: int = 1_000) -> Episode:
        """One greedy episode in an environment, its own by default, step by step: what `explain` takes."""
        return play_episode(self._environment(env), self._choose, seed, max_steps)

    def environment(self) -> Any:
        """A Gymnasium environment as in training, made ready in the same way: for a loop of your own."""
        found = self._environment(None)
        if not isinstance(found, HostEnv):
            raise ValueError(f"{found.spec.name} is not Gymnasium's: use highway_rl.make({self.config.task!r})")
        return found.one()

    def film(self, out: Path | str, *, seed: int = 0, max_steps: int = 1_000, epsilon: float = 0.0) -> Path:
        """A film of an episode in its Gymnasium environment, as a .gif or .mp4; its pictures are the environment's."""
        path, found, rng = film_name(out), self._environment(None), np.random.default_rng(seed)
        if not isinstance(found, HostEnv):
            raise ValueError(f"{found.spec.name} draws no pictures: use `highway-rl watch` for MinAtar's games")
        return write_film(path, *pictures(found, lambda obs: self.act(obs, epsilon=epsilon, rng=rng), seed, max_steps))

    def explain(self, trajectory: Any, last_obs: Any = None) -> Explained:
        """An episode as training sees it: at each step the return of every depth, which won the gate, what followed.

        `trajectory` is a list of (obs, action, reward, terminated), as a Gymnasium environment gave and took them, or
        has obs, action, reward and terminated as a dict or a named tuple has; `last_obs` is the observation after its
        last step, unless that terminated or is in obs.
        """
        numbers = None if self._own is None else self._own.numbers
        episode = as_episode(trajectory, last_obs, self.spec, self._batch, numbers)
        return explained(self._tell, self.agent, self.params, episode, f"{self!r}".strip("<>"))

    @cached_property
    def _tell(self) -> Any:
        return jax.jit(teller(self.agent, self.spec, self.step))

    def _environment(self, env: Any) -> Env | HostEnv:
        if env is not None and not isinstance(env, Env | HostEnv):
            env = make_env(Config(env).task)
        found = make_env(self.config.task, **self.config.env) if env is None else env
        mine, theirs = _shapes(self.spec), _shapes(found.spec)
        if mine != theirs:
            raise ValueError(
                f"{found.spec.name} has observations {theirs[0]} and {theirs[1]} actions, the agent {mine[0]} and"
                f" {mine[1]}: give an environment like the one it was trained on"
            )
        if self.spec.spaces is not None and found.spec.spaces is not None:
            self._own.same(found.spec.spaces, found.spec.name)
        return found

    @cached_property
    def _wanted(self) -> tuple[Any, list[tuple[tuple[int, ...], np.dtype]]]:
        """How an observation is made of arrays, and the shape and type of each."""
        leaves, structure = jax.tree.flatten(self.spec.observation)
        return structure, [(tuple(x.shape), np.dtype(x.dtype)) for x in leaves]

    def _batch(self, obs: Any) -> tuple[list[np.ndarray], bool]:
        """The arrays of observations with a first axis, and whether there was only one."""
        structure, wanted = self._wanted
        try:
            given = structure.flatten_up_to(obs)
        except (ValueError, TypeError):
            given = [obs]
        if [(x.shape, x.dtype) for x in given if type(x) is np.ndarray] == wanted:  # most often, and therefore fast
            return [x[None] for x in given], True
        shapes = [np.shape(x) for x in given]
        for lead in (0, 1):
            if [shape[lead:] for shape in shapes] == [shape for shape, _ in wanted]:
                arrays = [np.asarray(x, dtype) for x, (_, dtype) in zip(given, wanted, strict=True)]
                return [x if lead else x[None] for x in arrays], lead == 0
        if self._own is not None:
            return self._own.arrays(obs)
        raise ValueError(
            f"obs has shape {', '.join(map(str, shapes))}: give {', '.join(str(shape) for shape, _ in wanted)}, or that"
            " with one more axis in front"
        )


def _shapes(spec: Spec) -> tuple[str, int]:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(spec.observation)), spec.num_actions
