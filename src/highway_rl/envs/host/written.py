"""Gymnasium's spaces as JSON and back, so that a saved agent knows what it saw and did."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def write(observation: gymnasium.Space, action: gymnasium.Space) -> str:
    """Both spaces as one text."""
    return json.dumps({"observation": to_json(observation), "action": to_json(action)}, sort_keys=True)


def read(text: str) -> tuple[gymnasium.Space, gymnasium.Space]:
    """The observations and the actions that `write` wrote."""
    found = json.loads(text)
    return from_json(found["observation"]), from_json(found["action"])


def to_json(space: gymnasium.Space) -> dict[str, Any]:
    """
    >>> to_json(spaces.Discrete(3))
    {'Discrete': {'n': 3, 'start': 0}}
    """
    about: dict[str, Any]
    if isinstance(space, spaces.Dict):
        about = {"parts": {key: to_json(part) for key, part in space.items()}}
    elif isinstance(space, spaces.Tuple):
        about = {"parts": [to_json(part) for part in space.spaces]}
    elif isinstance(space, spaces.Discrete):
        about = {"n": int(space.n), "start": int(space.start)}
    elif isinstance(space, spaces.MultiDiscrete):
        about = {"nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
    elif isinstance(space, spaces.MultiBinary):
        about = {"shape": list(space.shape)}
    elif isinstance(space, spaces.Box):
        about = {"low": _bound(space.low), "high": _bound(space.high), "shape": list(space.shape)}
        about |= {"dtype": space.dtype.name}
    else:
        about = {}
    return {type(space).__name__: about}


def from_json(found: dict[str, Any]) -> gymnasium.Space:
    """The space that `to_json` wrote; what was no numbers is a text."""
    ((kind, about),) = found.items()
    if kind == "Dict":
        return spaces.Dict({key: from_json(part) for key, part in about["parts"].items()})
    if kind == "Tuple":
        return spaces.Tuple([from_json(part) for part in about["parts"]])
    if kind == "Discrete":
        return spaces.Discrete(about["n"], start=about["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(about["nvec"], start=about["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(about["shape"])
    if kind == "Box":
        dtype, shape = np.dtype(about["dtype"]), tuple(about["shape"])
        low, high = (np.broadcast_to(np.array(about[name], float), shape) for name in ("low", "high"))
        return spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype)
    return spaces.Text(1)


def _bound(bound: np.ndarray) -> Any:
    """One number where all are the same, else all of them; the infinite as words."""
    words = [str(float(x)) for x in np.asarray(bound).reshape(-1)]
    if len(set(words)) <= 1:
        return words[0] if words else "0.0"
    return np.array(words).reshape(bound.shape).tolist()
