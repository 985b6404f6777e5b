"""Spaces written down, and an agent's observations and actions in the environment's own form."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from highway_rl.envs.host import Own, written
from highway_rl.envs.host.spaces import seeing

SPACES = [
    Discrete(4),
    Discrete(3, start=-1),
    MultiDiscrete([2, 3], start=[0, 7]),
    MultiBinary([2, 2]),
    Box(-1, 1, (3,)),
    Box(np.array([-np.inf, 0]), np.array([1.5, np.inf]), dtype=np.float64),
    Box(0, 255, (4, 4, 1), np.uint8),
    Box(0, 1, (), np.float16),
    Dict({"b": Discrete(2), "a": Tuple([Box(-2, 2, (2,)), MultiBinary(3)]), "words": Text(9)}),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_a_space_comes_back(space):
    again, _ = written.read(written.write(space, Discrete(2)))
    if not isinstance(space, Dict):  # a text comes back as any text
        assert again == space
    assert str(seeing(again).like) == str(seeing(space).like)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_one_observation_and_many_are_seen_alike(space):
    own, seen = Own(written.write(space, Discrete(2))), seeing(space)
    space.seed(1)
    several = [space.sample() for _ in range(5)]
    one, single = own.arrays(several[0])
    assert single
    for found, expected in zip(one, seen.leaves(several[0]), strict=True):
        np.testing.assert_array_equal(found, expected[None])
    if isinstance(space, Dict):
        batch = {
            "b": np.array([x["b"] for x in several]),
            "a": tuple(np.stack([x["a"][i] for x in several]) for i in (0, 1)),
        }
    else:
        batch = np.stack(several)
    many, single = own.arrays(batch)
    assert not single
    for found, expected in zip(many, zip(*map(seen.leaves, several), strict=True), strict=True):
        np.testing.assert_array_equal(found, np.stack(expected))


@pytest.mark.parametrize("space", SPACES[:4], ids=lambda space: type(space).__name__)
def test_actions_are_the_environments_own(space):
    own = Own(written.write(Discrete(2), space))
    for number in range(own.acting.number):
        chosen = own.actions(number)
        assert space.contains(np.asarray(chosen, space.dtype) if space.shape else space.dtype.type(chosen))
    assert len(own.actions(np.arange(own.acting.number))) == own.acting.number


def test_what_is_no_observation_says_what_to_give():
    own = Own(written.write(Discrete(4), Discrete(2)))
    with pytest.raises(ValueError, match=r"obs is 9, not below \[4\] from \[0\]: give an observation of Discrete\(4\)"):
        own.arrays(9)
