"""The commands that show the games: play, watch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg


@dataclasses.dataclass(frozen=True, kw_only=True)
class Play:
    """Play a MinAtar game with the keyboard: arrows or WASD move, space fires, Q leaves."""

    game: Annotated[Positional[str], arg(metavar="GAME")]
    """asterix, breakout, freeway, seaquest or space_invaders."""
    view: Literal["terminal", "window"] = "terminal"
    """Where to draw it; a window needs pygame and a screen."""
    fps: float = 8.0
    """Steps per second."""
    sticky: float = 0.0
    """Probability that the last action is repeated instead of yours (agents face 0.1)."""
    seed: int = 0
    """Seed of the game."""

    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.envs.minatar.viewer import play

        score = play(self.game, view=self.view, fps=self.fps, seed=self.seed, sticky=self.sticky)
        print(f"score: {score:g}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """Film an agent, or a random policy, on a MinAtar game: what it sees, step by step."""

    game: Annotated[Positional[str], arg(metavar="GAME")]
    """asterix, breakout, freeway, seaquest or space_invaders."""
    out: Path = Path("game.gif")
    """The film: .gif (needs pillow), or .mp4 where ffmpeg is installed."""
    agent: Annotated[str | None, arg(metavar="MODULE:FUNCTION")] = None
    """The agent: an importable function of an observation and a key that returns an action. Random if left out."""
    sticky: float = 0.1
    """Probability that the last action is repeated instead of the agent's."""
    steps: int = 300
    """Length of the film in steps."""
    seed: int = 0
    """Seed of game and policy."""

    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.envs.minatar.viewer import imported, watch

        act = None if self.agent is None else imported(self.agent)
        found = watch(self.game, self.out, act=act, steps=self.steps, seed=self.seed, sticky=self.sticky)
        mean = f", mean score {found['mean score']:.2g}" if found["episodes"] else ""
        print(f"film: {self.out} ({found['episodes']:g} finished episodes{mean})")
