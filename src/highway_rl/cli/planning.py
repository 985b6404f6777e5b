"""From the words of a command line to a solved model and a table that compares methods."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from highway_rl import checks, envs
from highway_rl.mdp.files import load_mdp
from highway_rl.mdp.model import MDP, SparseMDP
from highway_rl.solvers import METHODS, Solution, solve


def load(
    words: Sequence[str],
    discount: float | None = None,
    reward: Path | None = None,
    options: dict[str, Any] | None = None,
) -> MDP | SparseMDP:
    """The model a person means: an environment by name, a Gymnasium id, a file, or a file per action."""
    files = [Path(word).suffix in (".npz", ".npy") or Path(word).is_file() for word in words]
    if words and all(files):
        if options:
            raise ValueError(f"{words[0]} is a file and has no options: leave out --set")
        return load_mdp(words[0] if len(words) == 1 else words, reward=reward, discount=discount)
    if len(words) != 1:
        raise ValueError(f"{' '.join(words)} are {len(words)} models: give one environment, or one file per action")
    [model] = words
    if reward is not None:
        raise ValueError(f"{model!r} is no file of transitions: leave out --reward")
    chosen = dict(options or {})
    if discount is not None:
        chosen["discount"] = discount
    if model not in envs.names() and "-v" in model:
        return MDP.from_gymnasium(model, chosen.pop("discount", 0.99))
    made = envs.make(model, **chosen)
    if not isinstance(made, MDP):
        raise ValueError(
            f"{model} is an environment to learn, not a model to solve: give one that `highway-rl list` calls a model"
        )
    return made


def compare(
    mdp: MDP | SparseMDP,
    method: str | None,
    tol: float,
    progress: Callable[[int, float], None] | None = None,
    **options: Any,
) -> tuple[list[dict[str, Any]], Solution]:
    """One row per method (all of them for None), and the solution with the smallest certified error."""
    rows, solutions = [], []
    for name in [method] if method else METHODS:
        start = time.perf_counter()
        solution = solve(mdp, name, tol, progress=progress, **options)
        seconds = time.perf_counter() - start
        rows.append(
            {
                "method": solution.method,
                "iterations": solution.num_iters,
                **solution.num_queries._asdict(),
                "seconds": seconds,
                "bound": solution.bound,
                "note": "" if solution.converged else _why_not(solution),
            }
        )
        solutions.append(solution)
    return rows, min(solutions, key=lambda s: s.bound)


def _why_not(solution: Solution) -> str:
    if np.isinf(solution.bound):
        return "no certificate: with discount 1 some policy never ends"
    return "not converged"


def save(path: Path, solution: Solution) -> None:
    """Value and policy with their certified error, as an .npz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, value=solution.value, policy=solution.policy, bound=solution.bound, method=solution.method)


def saved_value(path: Path) -> np.ndarray:
    """The values that `save` wrote, to start another solve from."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return np.array(arrays["value"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"--start {path} holds no solution ({checks.one_line(error)}): give a file that --save wrote"
        ) from None
