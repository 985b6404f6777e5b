"""The original package played with its random draws written down, and the same draws replayed into our rules."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import minatar_policies as policies
import numpy as np
from minatar import Environment

from highway_rl.envs.minatar import rules
from highway_rl.envs.minatar.words import compress, expand

CHUNK = 256


class Recorder:
    """A NumPy generator that notes each call as (name, arguments, value)."""

    def __init__(self, seed):
        self.source = np.random.RandomState(seed)
        self.log = []

    def rand(self, *shape):
        self.log.append(("rand", shape, self.source.rand(*shape)))
        return self.log[-1][2]

    def randint(self, *args, **kwargs):
        if kwargs:
            args = (kwargs["low"], kwargs["high"])
        value = self.source.randint(*args)
        self.log.append(("randint", args, np.copy(value)))
        return value

    def take(self):
        log, self.log = self.log, []
        return log


@dataclasses.dataclass
class Episode:
    """One recorded episode; boards has one entry more than the others."""

    boards: list
    actions: list
    stuck: list
    draws: list
    rewards: list
    terminals: list
    events: Counter
    last_action: int


def draws_of(game: str, log: list) -> dict:
    """What a list of the original's draws means in the words of our `Draws`."""
    values = [value for _, _, value in log]
    if game == "breakout":
        return {"right": bool(values[0]) if values else False}
    if game == "freeway":
        if not values:
            return {"speed": np.ones(10, np.int32), "right": np.zeros(10, bool)}
        return {"speed": np.pad(values[0], 1, constant_values=1).astype(np.int32), "right": np.pad(values[1] > 0.5, 1)}
    if game == "asterix":
        free, slot = (log[2][1][0], int(values[2])) if len(log) == 3 else (1, 0)
        rightward, gold = (values[0] < 1 / 2, values[1] < 1 / 3) if log else (False, False)
        return {"right": bool(rightward), "gold": bool(gold), "slot": np.float32((slot + 0.5) / free)}
    if game == "space_invaders":
        return {}
    enemy = values[:3] if len(values) in (3, 5) else [1.0, 1.0, 1]
    diver = values[-2:] if len(values) in (2, 5) else [1.0, 1]
    return {
        "enemy_right": bool(enemy[0] < 1 / 2),
        "enemy_shoots": bool(enemy[1] < 1 / 3),
        "enemy_row": np.int32(enemy[2]),
        "diver_right": bool(diver[0] < 1 / 2),
        "diver_row": np.int32(diver[1]),
    }


def play(game, policy, seed, *, sticky=0.1, ramping=True, steps=2000, last_action=0, prepare=None) -> Episode:
    """One episode of the original, cut after so many steps."""
    env = Environment(game, sticky_action_prob=sticky, difficulty_ramping=ramping)
    recorder = Recorder(seed)
    env.random = env.env.random = recorder
    env.last_action = last_action
    env.reset()
    if prepare:
        prepare(env.env)
    episode = Episode([env.state()], [], [], [draws_of(game, recorder.take())], [], [], Counter(), last_action)
    notice = policies.Notice(game)
    for _ in range(steps):
        action = policy(env.env)
        reward, terminal = env.act(action)
        log = recorder.take()
        episode.actions.append(action)
        episode.stuck.append(log[0][2] < sticky)
        episode.draws.append(draws_of(game, log[1:]))
        episode.rewards.append(float(reward))
        episode.terminals.append(bool(terminal))
        episode.boards.append(env.state())
        episode.events.update(notice(env.env, reward))
        if terminal:
            break
    return episode


def _scan(chosen, state, last, actions, stuck, draws):
    def step(carry, x):
        packed, last = carry
        action, repeat, draw = x
        played = jnp.where(repeat, last, action)
        state, reward, terminated = chosen.transition(expand(chosen.state, packed), played, draw)
        packed = compress(state)
        return (packed, played), (chosen.observe(expand(chosen.state, packed)), reward, terminated)

    return jax.lax.scan(step, (state, last), (actions, stuck, draws))


def replayer(game: str, prepare=lambda state: state, **options) -> Callable[[list[Episode]], None]:
    """A check that every board, reward and end of the recorded episodes is also ours."""
    chosen = rules(game, **options)
    record = type(jax.eval_shape(chosen.draw, jax.random.key(0)))
    run = jax.jit(jax.vmap(lambda *args: _scan(chosen, *args)))
    begin = jax.jit(
        jax.vmap(lambda _, draws: (lambda s: (compress(s), chosen.observe(s)))(prepare(chosen.init(draws))))
    )

    def stacked(dicts: Iterable[dict]) -> object:
        dicts = list(dicts)
        return record(**{name: np.stack([d[name] for d in dicts]) for name in dicts[0]})

    def batched(rows: list) -> object:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rows) if jax.tree.leaves(rows) else record()

    def check(episodes: list[Episode]) -> None:
        state, board = begin(np.arange(len(episodes)), batched([record(**e.draws[0]) for e in episodes]))
        np.testing.assert_array_equal(board, np.stack([e.boards[0] for e in episodes]))
        last = jnp.asarray([e.last_action for e in episodes])
        longest = max(len(e.actions) for e in episodes)
        for start in range(0, longest, CHUNK):
            actions = np.zeros((len(episodes), CHUNK), np.int32)
            stuck = np.zeros((len(episodes), CHUNK), bool)
            rows = []
            for i, e in enumerate(episodes):
                size = len(e.actions[start : start + CHUNK])
                actions[i, :size] = e.actions[start : start + CHUNK]
                stuck[i, :size] = e.stuck[start : start + CHUNK]
                part = e.draws[1 + start : 1 + start + CHUNK]
                rows.append(stacked(part + [e.draws[0]] * (CHUNK - len(part))))
            (state, last), out = run(state, last, actions, stuck, batched(rows))
            _compare(episodes, start, *(np.asarray(leaf) for leaf in out))

    return check


def _compare(episodes, start, boards, rewards, terminals):
    for i, e in enumerate(episodes):
        size = len(e.actions[start : start + CHUNK])
        where = f"episode {i}, steps from {start}"
        part = slice(start, start + size)
        np.testing.assert_array_equal(rewards[i, :size], e.rewards[part], err_msg=f"rewards, {where}")
        np.testing.assert_array_equal(terminals[i, :size], e.terminals[part], err_msg=f"ends, {where}")
        if size:
            expected = np.stack(e.boards[start + 1 : start + 1 + size])
            np.testing.assert_array_equal(boards[i, :size], expected, err_msg=f"boards, {where}")
