"""Looking at the games: `watch` films a policy, `play` lets a person play in a terminal or a window."""

from __future__ import annotations

import importlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from highway_rl import checks
from highway_rl.envs.films import film_name, write_film
from highway_rl.envs.minatar import ACTION_NAMES, make
from highway_rl.envs.minatar.render import ansi, rgb
from highway_rl.types import Env

Act = Callable[[Array, PRNGKeyArray], Array | int]

QUIT = "quit"
KEYS = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left",
    "w": "up", "s": "down", "d": "right", "a": "left", " ": "fire", "q": QUIT, "\x1b": QUIT, "\x03": QUIT,
}  # fmt: skip


def imported(name: str) -> Act:
    """The function that MODULE:FUNCTION names; the working folder is searched first."""
    module, _, function = name.partition(":")
    if not (module and function):
        raise ValueError(f"agent {name!r} names no function: give MODULE:FUNCTION")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function, None)
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ValueError(f"{module} has no function {function!r}: give the name of one it defines")
    return found


def watch(
    game: str,
    out: str | Path,
    *,
    act: Act | None = None,
    steps: int = 300,
    seed: int = 0,
    scale: int = 24,
    fps: int = 15,
    **options: Any,
) -> dict[str, float]:
    """Films one policy (a random one if none is given) as a GIF, or as an MP4 if ffmpeg is installed.

    The film shows episode after episode. Returns the number of frames and finished episodes and their mean score.
    """
    path = film_name(out)
    steps, fps = checks.whole("steps", steps, 1), checks.whole("fps", fps, 1)
    env = make(game, **options)
    scores: list[float] = []
    frames = [rgb(board, scale) for board in _boards(env, act, steps, seed, scores)]
    write_film(path, frames, fps)
    mean = float(np.mean(scores)) if scores else float("nan")
    return {"frames": len(frames), "episodes": len(scores), "mean score": mean}


def _boards(env: Env, act: Act | None, steps: int, seed: int, scores: list[float]) -> Iterator[np.ndarray]:
    """The boards of so many steps; the scores of finished episodes are appended to the list."""
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    key = jax.random.key(seed)
    policy = act or (lambda obs, key: jax.random.randint(key, (), 0, env.spec.num_actions))
    state, obs = reset(jax.random.fold_in(key, 0))
    score = 0.0
    yield np.asarray(obs)
    for t in range(1, steps + 1):
        for_action, for_step, for_reset = jax.random.split(jax.random.fold_in(key, t), 3)
        action = int(checks.actions(policy(obs, for_action), env.spec.num_actions))
        out = step(state, action, for_step)
        state, obs = out.state, out.obs
        score += float(out.reward)
        yield np.asarray(obs)
        if bool(out.terminated | out.truncated):
            scores.append(score)
            score = 0.0
            state, obs = reset(for_reset)
            yield np.asarray(obs)


def play(
    game: str,
    *,
    view: Literal["terminal", "window"] = "terminal",
    fps: float = 8.0,
    seed: int = 0,
    steps: int | None = None,
    **options: Any,
) -> float:
    """Plays one game with the keyboard and returns its score.

    Arrows or WASD move, space fires, Q leaves. Without `steps` the game runs until it ends.
    """
    fps = checks.between("fps", fps, 0)
    checks.choice("view", view, ("terminal", "window"))
    env = make(game, **{"sticky": 0.0, **options})
    if view == "terminal" and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ValueError("playing needs a terminal: run it from one, or give view='window'")
    screen = _Terminal(game) if view == "terminal" else _Window(game)
    try:
        return _loop(env, screen, 1 / fps, seed, steps)
    except KeyboardInterrupt:
        return float("nan")
    finally:
        screen.close()


def _loop(env: Env, screen: _Terminal | _Window, wait: float, seed: int, steps: int | None) -> float:
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    key = jax.random.key(seed)
    state, obs = reset(jax.random.fold_in(key, 0))
    jax.block_until_ready(step(state, 0, key))  # compiled before the first key is pressed
    score, t = 0.0, 0
    while steps is None or t < steps:
        screen.show(np.asarray(obs), score)
        name = screen.read(wait)
        if name == QUIT:
            break
        t += 1
        out = step(state, ACTION_NAMES.index(name) if name else 0, jax.random.fold_in(key, t))
        state, obs, score = out.state, out.obs, score + float(out.reward)
        if bool(out.terminated):
            screen.show(np.asarray(obs), score)
            break
    return score


class _Terminal:
    """The terminal, reading single keys while open."""

    def __init__(self, game: str) -> None:
        try:
            import termios
            import tty
        except ImportError:
            raise ValueError("this system's terminal cannot be played in: give view='window'") from None
        self.game = game
        self.file = sys.stdin.fileno()
        self.saved = termios.tcgetattr(self.file)
        tty.setcbreak(self.file)
        self.write("\x1b[?25l\x1b[2J")

    def write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def show(self, board: np.ndarray, score: float) -> None:
        help_line = "arrows or WASD: move   space: fire   Q: leave"
        self.write(f"\x1b[H{self.game}   score {score:g}\x1b[K\r\n{ansi(board)}\r\n{help_line}\x1b[K\r\n")

    def read(self, wait: float) -> str | None:
        """The name of the last key pressed within the time, which passes in full."""
        name, until = None, time.monotonic() + wait
        while (left := until - time.monotonic()) > 0:
            if select.select([self.file], [], [], left)[0]:
                typed = os.read(self.file, 8).decode(errors="ignore")
                name = KEYS.get(typed, KEYS.get(typed[:1].lower(), name)) if typed else QUIT
                if name == QUIT:
                    break
        return name

    def close(self) -> None:
        import termios

        termios.tcsetattr(self.file, termios.TCSADRAIN, self.saved)
        self.write("\x1b[0m\x1b[?25h\r\n")


class _Window:
    """A pygame window."""

    def __init__(self, game: str, scale: int = 48) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError:
            raise ValueError("a window needs the pygame package: install it, or give view='terminal'") from None
        self.pygame, self.game, self.scale = pygame, game, scale
        try:
            pygame.display.init()
            self.surface = pygame.display.set_mode((10 * scale, 10 * scale))
        except pygame.error as error:
            raise ValueError(f"no window could be opened ({checks.one_line(error)}): give view='terminal'") from None
        names = {"up": "up", "w": "up", "down": "down", "s": "down", "left": "left", "a": "left"}
        names |= {"right": "right", "d": "right", "space": "fire"}
        self.codes = {pygame.key.key_code(key): name for key, name in names.items()}

    def show(self, board: np.ndarray, score: float) -> None:
        pixels = self.pygame.surfarray.make_surface(rgb(board, self.scale).swapaxes(0, 1))
        self.surface.blit(pixels, (0, 0))
        self.pygame.display.set_caption(f"{self.game}   score {score:g}")
        self.pygame.display.flip()

    def read(self, wait: float) -> str | None:
        """The name of a key pressed or still held when the time has passed."""
        self.pygame.time.wait(int(1000 * wait))
        name = None
        for event in self.pygame.event.get():
            leaves = event.type == self.pygame.KEYDOWN and event.key in (self.pygame.K_q, self.pygame.K_ESCAPE)
            if event.type == self.pygame.QUIT or leaves:
                return QUIT
            if event.type == self.pygame.KEYDOWN:
                name = self.codes.get(event.key, name)
        held = self.pygame.key.get_pressed()
        return name or next((n for code, n in self.codes.items() if held[code]), None)

    def close(self) -> None:
        self.pygame.quit()
