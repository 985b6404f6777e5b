"""The demo: two agents on a Gymnasium task whose reward comes late."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from highway_rl.cli.train import go

TASK = "highway_rl.envs.host.crossroads:Crossroads"
STEPS = 8_000
"""Not enough for DQN: the news of the town travels one place a refresh, 42 places, 250 steps each."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """See two deep agents on a Gymnasium task that pays 42 steps after the choice that counts: two minutes."""

    out: Path = Path("demo")
    """Folder for the runs, their figure and a film."""
    steps: int = STEPS
    """Steps of training."""
    seeds: int = 3
    """Runs of each agent."""
    debug: bool = False
    """Show the full traceback of an error."""

    def __call__(self) -> None:
        from highway_rl import runs

        shutil.rmtree(self.out / "crossroads", ignore_errors=True)
        folder = self.out / "crossroads"
        print(
            "Two crossroads with four ways each, then 40 steps of road; one of sixteen leads to a town and pays 1.\n"
            "DQN hears of it one step a refresh. Highway takes the whole way at once, where that is more."
        )
        options: dict[str, Any] = {"report_every": max(250, self.steps // 32), "checkpoint_every": self.steps}
        algos = ("dqn", "soft-highway-dqn")
        go(runs.Config(TASK, algos, seeds=self.seeds, steps=self.steps, episodes=20, **options), folder)
        agent = runs.load(folder, "soft-highway-dqn")
        told = agent.explain(agent.episode())
        print("which return won the gate, step by step: " + ", ".join(f"{name} {n}" for name, n in told.won.items()))
        try:
            print(f"figure: {told.plot(folder / 'episode.png')}\nfilm: {agent.film(folder / 'episode.gif')}")
        except (ImportError, ValueError) as error:
            print(f"no pictures: {error}")
        print(
            "\nNext:\n"
            f"  highway-rl explain {folder} --run soft-highway-dqn   why it acts as it does, step by step\n"
            "  highway-rl train CartPole-v1 --delay end                 any Gymnasium task, its reward withheld\n"
            "  highway-rl run example-mdp                               the paper's first figure, live"
        )
