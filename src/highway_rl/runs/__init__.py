"""Training runs: as data (config, texts, presets), as programs, as folders, as trained agents. Imports types, checks,
registry, core, data, deep, envs, records, machines."""

from highway_rl.runs.agents import best, load, load_all, train
from highway_rl.runs.callbacks import Callback, Pruning, TargetScore, WeightsAndBiases
from highway_rl.runs.config import Config, Setup, setup
from highway_rl.runs.evaluate import evaluate
from highway_rl.runs.explain import Explained
from highway_rl.runs.fit import fit
from highway_rl.runs.folder import read_config, write_config
from highway_rl.runs.outcome import sentence
from highway_rl.runs.presets import PRESETS
from highway_rl.runs.standing import Trained
from highway_rl.runs.status import Status, status
from highway_rl.runs.sweep import Sweep, sweep
from highway_rl.runs.trained import TrainedAgent
from highway_rl.runs.tune import Tuned, tune

__all__ = [
    "PRESETS",
    "Callback",
    "Config",
    "Explained",
    "Pruning",
    "Setup",
    "Status",
    "Sweep",
    "TargetScore",
    "Trained",
    "TrainedAgent",
    "Tuned",
    "WeightsAndBiases",
    "best",
    "evaluate",
    "fit",
    "load",
    "load_all",
    "read_config",
    "sentence",
    "setup",
    "status",
    "sweep",
    "train",
    "tune",
    "write_config",
]
