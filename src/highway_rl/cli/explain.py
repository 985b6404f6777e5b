"""The command that explains an episode."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explain:
    """Play a greedy episode with a trained agent and show, step by step, what each return promised, which won the gate,
    and what really followed.

    highway-rl explain runs/key-door --plot episode.png

    highway-rl explain agent.safetensors --seed 3
    """

    agent: Annotated[Positional[Path], arg(metavar="FOLDER_OR_FILE")]
    """The folder `highway-rl train` wrote, or a file that agent.save wrote."""
    run: str | None = None
    """Which run of a folder, by its text such as dqn:k=2 (the best seed of it); by default the best of all."""
    seed: int = 0
    """Seed of the episode."""
    max_steps: int = 1_000
    """Cut the episode off after so many steps."""
    plot: Path | None = None
    """Also draw it into this PNG."""
    film: Path | None = None
    """Also film it into this .gif or .mp4, as its Gymnasium environment draws it."""
    imports: Annotated[tuple[str, ...], arg(metavar="MODULE", name="import"), UseAppendAction] = ()
    """A module of yours that the file may import, where its network or algorithm is not ours."""
    json: bool = False
    """Print the rows as JSON."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl import runs
        from highway_rl.runs.evaluate import as_json

        if self.plot is not None and self.plot.suffix != ".png":
            raise ValueError(f"--plot {self.plot}: give a name that ends in .png")
        agent = runs.load(self.agent, self.run, self.imports)
        film = None if self.film is None else agent.film(self.film, seed=self.seed, max_steps=self.max_steps)
        explained = agent.explain(agent.episode(seed=self.seed, max_steps=self.max_steps))
        print(as_json(explained.rows) if self.json else explained)
        if film is not None and not self.json:
            print(f"film: {film}")
        if self.plot is not None:
            figure = explained.plot(self.plot)
            if not self.json:
                print(f"figure: {figure}")
