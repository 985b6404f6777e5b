"""Training runs as data and as folders: config, fit, checkpoints, metrics. Imports deep, envs, records."""

from highway_rl.runs.config import Config, Setup, read_config, setup, write_config
from highway_rl.runs.fit import Loaded, Trained, fit, load, sentence

__all__ = ["Config", "Loaded", "Setup", "Trained", "fit", "load", "read_config", "sentence", "setup", "write_config"]
