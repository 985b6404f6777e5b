"""The command of the search for settings."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from highway_rl.cli.console import table

Words = tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tune:
    """Search for good settings of a task, write them as a preset, and compare it with the default on fresh seeds.

    Interrupted, the same command goes on with the same search. Needs Optuna: pip install 'highway-rl[tune]'.

    highway-rl tune CartPole-v1 --delay end --steps 20000 --trials 30 --out runs/tune

    highway-rl train CartPole-v1 --delay end --preset runs/tune/preset.json
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """As `highway-rl train` takes it."""
    trials: int = 30
    """Settings to try, in all."""
    seeds: int = 3
    """Runs of each, in one program."""
    fresh: int = 10
    """Runs of the best and of the default at the end, with seeds that the search has not seen."""
    steps: float | None = None
    """Environment steps of each run; by default the preset's."""
    preset: str | None = None
    """The preset to begin with; by default that of the task."""
    delay: str | None = None
    """Pay rewards late: "end" of the episode, a number of steps, or a range of them such as 1-20."""
    set: Annotated[Words, arg(metavar="NAME=VALUE"), UseAppendAction] = ()
    """An option of the environment; may be given several times."""
    imports: Annotated[Words, arg(metavar="MODULE", name="import"), UseAppendAction] = ()
    """A module to import first, which registers names of yours; may be given several times."""
    episodes: int = 100
    """Test episodes of each run."""
    out: Path = Path("runs/tune")
    """Folder of the study, the rows of the comparison and the preset."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl.cli.train import whole_steps
        from highway_rl.envs.wrappers import as_delay
        from highway_rl.runs.text import settings
        from highway_rl.runs.tune import tune

        env = ({} if self.delay is None else {"delay": as_delay(self.delay)}) | settings(self.set)
        options: dict[str, Any] = {"trials": self.trials, "seeds": self.seeds, "fresh": self.fresh}
        options |= {"steps": whole_steps(self.steps), "preset": self.preset, "env": env, "imports": self.imports}
        say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
        found = tune(self.task, out=self.out, report=say, episodes=self.episodes, **options)
        rows = [(algo, f"{sum(x) / len(x):.4g}", str(len(x))) for algo, x in found.scores.items()]
        table(("fresh seeds", "mean greedy score", "seeds"), rows)
        chance = found.improvement
        print(f"a run of it scores more with probability {chance.value:.2f} ({chance.low:.2f} to {chance.high:.2f})")
        print(f"{found.text} is {found.verdict}")
        print(f"preset: {found.preset}")
