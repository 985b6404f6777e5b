"""Each game against the original package, with the original's random draws replayed into ours."""

from __future__ import annotations

import dataclasses
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("minatar")

from minatar_oracle import play, replayer
from minatar_policies import DOWN, SCRIPTED, random_policy, roaming

from highway_rl.envs.minatar import make

MUST_SEE = {
    "asterix": ("gold", "top spawn rate", "top speed", "all rows taken"),
    "breakout": ("new rows", "passes a second brick"),
    "freeway": ("crossing", "hit by a car", "last step"),
    "seaquest": (
        "surfaced with six divers",
        "surfaced with a negative count",
        "top spawn rate",
        "top speed",
        "ten enemies",
        "enemy bullet",
        "two divers",
        "out of oxygen",
    ),
    "space_invaders": ("wave cleared", "fastest wave", "one alien left", "aliens at the bottom"),
}
RANDOM, COMPETENT, BATCH = 200, 50, 25
STEPS = 2600
REDUCED = {"seaquest": (5, 1000), "space_invaders": (2, STEPS)}


def _check(game, policies, *, sticky=(0.1,), ramping=True, steps=STEPS, theirs=None, ours=lambda state: state):
    check = replayer(game, ours, ramping=ramping)
    events = Counter()
    for first in range(0, len(policies), BATCH):
        batch = policies[first : first + BATCH]
        episodes = [
            play(
                game,
                policy,
                1000 + i,
                sticky=sticky[i % len(sticky)],
                ramping=ramping,
                steps=steps,
                last_action=i % 6,
                prepare=theirs,
            )
            for i, policy in enumerate(batch, start=first)
        ]
        check(episodes)
        for episode in episodes:
            events.update(episode.events)
            events["steps"] += len(episode.actions)
    return events


@pytest.mark.parametrize("game", MUST_SEE)
def test_random_play_is_the_original(game):
    _check(game, [random_policy(seed) for seed in range(25)], steps=300)


@pytest.mark.long
@pytest.mark.parametrize("game", MUST_SEE)
def test_competent_play_is_the_original(game):
    count, steps = REDUCED.get(game, (3, STEPS))
    events = _check(game, [SCRIPTED[game](seed) for seed in range(count)], sticky=(0.0, 0.1), steps=steps)
    for name in MUST_SEE[game]:
        assert events[name] > 0, f"the scripted policy never met: {name}"


def _crowded(episodes):
    """Seaquest from the start as crowded and fast as it gets, with three divers aboard."""

    def theirs(env):
        env.e_spawn_speed, env.e_spawn_timer, env.move_speed, env.diver_count = 1, 1, 2, 3

    def ours(state):
        ramped = {"spawn_every": 1, "spawn_wait": 1, "move_wait": 2, "crew": 3}
        return dataclasses.replace(state, **{name: jnp.asarray(n) for name, n in ramped.items()})

    policies = [(random_policy if seed % 2 else roaming)(seed) for seed in range(episodes)]
    return _check("seaquest", policies, sticky=(0.0, 0.1), steps=400, theirs=theirs, ours=ours)


def test_a_crowded_sea_is_the_original():
    assert _crowded(25)["reward"] > 20


def test_without_ramping_is_the_original():
    for game in ("asterix", "seaquest", "space_invaders"):
        _check(game, [SCRIPTED[game](0), random_policy(1)], sticky=(0.0, 0.1), ramping=False, steps=400)


@pytest.mark.full
def test_older_oxygen_lasts_one_step_longer_behind_a_bar_of_nine():
    """The older rule against the original one: equal boards up to the last, which then shows nine cells of oxygen."""
    actions = np.asarray([DOWN] + [0] * 201)
    ends, boards = {}, {}
    for oxygen in ("1.0.11", "1.0.10"):
        env = make("seaquest", sticky=0.0, oxygen=oxygen)

        def run(key, env=env):
            state, _ = env.reset(key)
            out = jax.lax.scan(lambda s, x: _stepped(env, s, x), state, (actions, jax.random.split(key, 202)))[1]
            return jnp.argmax(out.terminated), out.obs

        ends[oxygen], boards[oxygen] = map(np.asarray, jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 60)))
    drowned = ends["1.0.11"] == 200  # the others met an enemy before
    assert drowned.any()
    np.testing.assert_array_equal(ends["1.0.10"][drowned], 201)
    np.testing.assert_array_equal(boards["1.0.11"][drowned, :200], boards["1.0.10"][drowned, :200])
    assert not boards["1.0.11"][drowned, 200, 9, :, 7].any()
    np.testing.assert_array_equal(boards["1.0.10"][drowned, 200, 9, :, 7], [[True] * 9 + [False]] * drowned.sum())


def _stepped(env, state, x):
    out = env.step(state, *x)
    return out.state, out


@pytest.mark.full
def test_a_crowded_sea_is_the_original_in_full():
    print(dict(_crowded(500)))


@pytest.mark.full
@pytest.mark.parametrize("game", MUST_SEE)
def test_random_play_is_the_original_in_full(game):
    _check(game, [random_policy(seed) for seed in range(RANDOM)])


@pytest.mark.full
@pytest.mark.parametrize("game", MUST_SEE)
def test_competent_play_is_the_original_in_full(game):
    events = _check(game, [SCRIPTED[game](seed) for seed in range(COMPETENT)], sticky=(0.0, 0.1))
    print(game, dict(sorted(events.items())))
    for name in MUST_SEE[game]:
        assert events[name] > 0, f"the scripted policy never met: {name}"
