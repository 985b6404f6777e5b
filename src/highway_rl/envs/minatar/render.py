"""Boards as pictures, in the colours of the original: a cube helix over the channels, black where there is nothing."""

from __future__ import annotations

import numpy as np

from highway_rl import checks

_START, _ROTATIONS = 0.5, -1.5


def palette(channels: int) -> np.ndarray:
    """Colours uint8[channels + 1, 3]: black, then one for each channel.

    Green, A colour scheme for the display of astronomical intensity images, 2011, on a grid of 256 shades.
    """
    shade = np.floor(np.linspace(0, 1, channels + 2)[1:-1] * 256) / 255
    angle = 2 * np.pi * (_START / 3 + _ROTATIONS * shade)
    swing = shade * (1 - shade) / 2
    tint = np.stack(
        [
            -0.14861 * np.cos(angle) + 1.78277 * np.sin(angle),
            -0.29227 * np.cos(angle) - 0.90649 * np.sin(angle),
            1.97294 * np.cos(angle),
        ],
        axis=-1,
    )
    colours = np.clip(shade[:, None] + swing[:, None] * tint, 0, 1)
    return np.concatenate([np.zeros((1, 3)), colours * 255]).round().astype(np.uint8)


def topmost(board: np.ndarray) -> np.ndarray:
    """For each cell the number of its highest channel plus one, 0 where the cell is empty."""
    board = np.asarray(board, bool)
    return np.max(board * np.arange(1, board.shape[-1] + 1), axis=-1)


def rgb(board: np.ndarray, scale: int = 1) -> np.ndarray:
    """The picture of a board as uint8[10·scale, 10·scale, 3]."""
    checks.whole("scale", scale, 1)
    frame = palette(np.shape(board)[-1])[topmost(board)]
    return frame.repeat(scale, axis=0).repeat(scale, axis=1)


def ansi(board: np.ndarray) -> str:
    """The picture of a board for a terminal of 24-bit colours, two columns a cell."""
    colours = palette(np.shape(board)[-1])
    lines = []
    for row in topmost(board):
        cells = ("\x1b[48;2;{};{};{}m  ".format(*colours[cell]) for cell in row)
        lines.append("".join(cells) + "\x1b[0m")
    return "\r\n".join(lines)
