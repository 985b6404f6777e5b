"""What made a number: code, device, versions, date."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from highway_rl.version import VERSION


def provenance(**facts: Any) -> dict[str, Any]:
    """What made these rows: code, configuration, seed, device, versions, date."""
    import jax
    import numpy as np

    return {
        **facts,
        "version": VERSION,
        "commit": _commit(),
        "code": fingerprint(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": f"{jax.devices()[0].device_kind} ({platform.machine()})",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
    }


def fingerprint() -> str:
    """A hash of the package's source, which tells two states of the code apart where there is no history."""
    here = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for file in sorted(here.rglob("*.py")):
        whole.update(str(file.relative_to(here)).encode() + file.read_bytes())
    return whole.hexdigest()[:12]


def _commit() -> str:
    """What HIGHWAY_RL_COMMIT says, for code that was copied without its history; else the commit of the package."""
    if told := os.environ.get("HIGHWAY_RL_COMMIT"):
        return told
    here = Path(__file__).parents[1]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+changes" if git("status", "--porcelain", "-uno", ".") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
