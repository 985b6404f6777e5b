"""MinAtar: five games on a ten by ten board, as exact, branch-free JAX functions. Imports types, checks, wrappers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from highway_rl import checks
from highway_rl.envs.minatar import asterix, breakout, freeway, seaquest, space_invaders
from highway_rl.envs.minatar.common import ACTION_NAMES, SIZE, Game, hold
from highway_rl.envs.minatar.words import compress, expand
from highway_rl.envs.wrappers import sticky_actions
from highway_rl.types import Env, Spec, Step

__all__ = ["GAMES", "environment", "make", "rules"]

_GAMES = {module.GAME.name: module.GAME for module in (asterix, breakout, freeway, seaquest, space_invaders)}
GAMES = tuple(sorted(_GAMES))
COUNT_WIDTHS = {name: game.count_width for name, game in _GAMES.items()}
RAMPING = ("asterix", "seaquest", "space_invaders")


def rules(game: str, *, ramping: bool = True, oxygen: str | None = None) -> Game:
    """The rules of a game as pure functions of state, action and draws."""
    if game not in _GAMES:
        raise checks.unknown("game", game, GAMES)
    chosen = _GAMES[game]
    if not ramping and game in RAMPING:
        chosen = dataclasses.replace(chosen, transition=functools.partial(chosen.transition, ramping=False))
    if oxygen is not None and game != "seaquest":
        raise checks.refusal("oxygen", oxygen, f"None to {game}, only seaquest has oxygen")
    if oxygen is not None:
        checks.choice("oxygen", oxygen, ("1.0.11", "1.0.10"))
    if oxygen == "1.0.10":
        chosen = dataclasses.replace(
            chosen,
            transition=functools.partial(chosen.transition, spare_oxygen=1),
            observe=functools.partial(chosen.observe, spare_oxygen=1),
        )
    return chosen


def environment(game: Game, actions: Sequence[int]) -> Env:
    """A game as an environment whose action i is the game's actions[i]."""

    @functools.cache
    def first_boards() -> list[np.ndarray]:
        with jax.ensure_compile_time_eval():
            board = jax.jit(lambda draws: game.observe(game.init(draws)))
            return [np.asarray(board(draws)) for draws in game.starts or ()]

    def reset(key: PRNGKeyArray) -> tuple[PyTree, Bool[Array, "10 10 c"]]:
        draws = game.draw(key)
        first = game.init(draws)
        state = compress(first)
        if game.starts is None:
            return state, game.observe(first)
        boards = first_boards()
        obs = jnp.asarray(boards[0])
        for i, board in enumerate(boards[1:], start=1):
            obs = jnp.where(game.start(draws) == i, board, obs)
        return state, obs

    def step(state: PyTree, action: Array, key: PRNGKeyArray) -> Step:
        played = jnp.asarray(action, jnp.int32)
        if tuple(actions) != tuple(range(len(actions))):
            played = sum((jnp.where(action == i, a, 0) for i, a in enumerate(actions)), jnp.asarray(0, jnp.int32))
        draws = game.draw(key)
        new, reward, terminated = game.transition(expand(game.state, state), played, draws)
        packed = hold(compress(new, reward.astype(jnp.int32) << 1 | terminated))
        result = packed.words[-1]
        packed = dataclasses.replace(packed, words=packed.words[:-1])
        ended = result & 1 != 0
        reward = (result >> 1).astype(jnp.float32)
        return Step(packed, game.observe(expand(game.state, packed)), reward, ended, jnp.zeros_like(ended))

    shape = jax.ShapeDtypeStruct((SIZE, SIZE, len(game.channels)), bool)
    return Env(Spec(game.name, shape, len(actions), discount=0.99, horizon=game.horizon), reset, step)


def make(
    game: str,
    *,
    sticky: float = 0.1,
    ramping: bool = True,
    actions: Literal["all", "minimal"] = "all",
    oxygen: Literal["1.0.11", "1.0.10"] | None = None,
) -> Env:
    """A MinAtar game as `minatar` 1.0.15 plays it: no step limit, sticky actions, all six actions.

    `oxygen="1.0.10"` gives Seaquest its older end: one step later, behind an oxygen bar that shows nine cells.
    """
    chosen = rules(game, ramping=ramping, oxygen=oxygen)
    checks.choice("actions", actions, ("all", "minimal"))
    checks.number("sticky", sticky, 0, 1)
    numbers = range(len(ACTION_NAMES)) if actions == "all" else chosen.minimal_actions
    return sticky_actions(environment(chosen, tuple(numbers)), sticky)
