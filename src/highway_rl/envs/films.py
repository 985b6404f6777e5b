"""Films: pictures one after the other, as a GIF (with pillow) or an MP4 (with the ffmpeg program)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np

from highway_rl import checks


def film_name(out: Path | str) -> Path:
    """Where a film may go; refuses what cannot be written, before anything was played."""
    path = Path(out)
    if path.suffix not in (".gif", ".mp4"):
        raise checks.refusal("out", path.name, "a file name that ends in .gif or .mp4")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise ValueError("writing an .mp4 needs the ffmpeg program: install it, or give a name that ends in .gif")
    return path


def write_film(out: Path | str, frames: list[np.ndarray], fps: float) -> Path:
    """Pictures [height, width, 3] of bytes, so many a second."""
    path = film_name(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    (_write_gif if path.suffix == ".gif" else _write_mp4)(path, frames, fps)
    return path


def _write_gif(path: Path, frames: list[np.ndarray], fps: float) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("writing a .gif needs the pillow package: install it") from None
    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=max(round(1000 / fps), 20), loop=0)


def _write_mp4(path: Path, frames: list[np.ndarray], fps: float) -> None:
    height, width, _ = frames[0].shape
    size = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps)]
    command = ["ffmpeg", "-y", "-loglevel", "error", *size, "-i", "-", "-pix_fmt", "yuv420p", str(path)]
    done = subprocess.run(command, input=b"".join(f.tobytes() for f in frames), capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"ffmpeg could not write {path.name} ({checks.one_line(done.stderr.decode())}): give a .gif")
