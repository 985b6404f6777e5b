"""Each game against the original package, with the original's random draws replayed into ours."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("minatar")

from minatar_oracle import play, replayer
from minatar_policies import SCRIPTED, random_policy

MUST_SEE = {
    "asterix": ("gold", "top spawn rate", "top speed", "all rows taken"),
    "breakout": ("new rows", "passes a second brick"),
    "freeway": ("crossing", "hit by a car", "last step"),
    "space_invaders": ("wave cleared", "fastest wave", "one alien left", "aliens at the bottom"),
}
RANDOM, COMPETENT, BATCH = 200, 50, 25
STEPS = 2600


def _check(game, policies, *, sticky=(0.1,), ramping=True, steps=STEPS):
    check = replayer(game, ramping=ramping)
    events = Counter()
    for first in range(0, len(policies), BATCH):
        batch = policies[first : first + BATCH]
        episodes = [
            play(game, policy, 1000 + i, sticky=sticky[i % len(sticky)], ramping=ramping, steps=steps, last_action=i % 6)
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


@pytest.mark.parametrize("game", MUST_SEE)
def test_competent_play_is_the_original(game):
    events = _check(game, [SCRIPTED[game](seed) for seed in range(3)], sticky=(0.0, 0.1))
    print(game, dict(events))
    for name in MUST_SEE[game]:
        assert events[name] > 0, f"the scripted policy never met: {name}"


@pytest.mark.full
@pytest.mark.parametrize("game", MUST_SEE)
def test_random_play_is_the_original_in_full(game):
    _check(game, [random_policy(seed) for seed in range(RANDOM)])


@pytest.mark.full
@pytest.mark.parametrize("game", MUST_SEE)
def test_competent_play_is_the_original_in_full(game):
    events = _check(game, [SCRIPTED[game](seed) for seed in range(COMPETENT)], sticky=(0.0, 0.1))
    print(game, dict(events))
    for name in MUST_SEE[game]:
        assert events[name] > 0, f"the scripted policy never met: {name}"
