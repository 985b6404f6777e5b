"""Guesses at the value of a policy. Any function from (policy, x) to x is one; the gate makes each of them safe.

    sweeps      (𝓑^π)ᵐ x                                                modified policy iteration
    krylov      BiCGSTAB on (I − γP^π) x = r                             inexact policy iteration
    anderson    the mix of the last sweeps whose changes cancel best     Anderson acceleration

They stop when the spread (max − min) of a sweep's change, or of the residual, is down to `goal` times what it was at
first: a constant in it is the gate's to remove. `limit` counts sweeps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from highway_rl.solvers.rows import PolicyRows, Value

Proposal = Callable[[PolicyRows, Value], Value]


def sweeps(limit: int, goal: float = 0.0) -> Proposal:
    """(𝓑^π)ᵐ x, m ≤ limit."""

    def propose(policy: PolicyRows, x: Value) -> Value:
        spare, first = (np.empty_like(x), np.empty_like(x)), np.inf
        for count in range(limit):
            width = policy.sweep(x, spare[count % 2]).width
            x, first = spare[count % 2], width if count == 0 else first
            if width <= goal * first:
                break
        return x

    return propose


def krylov(limit: int, goal: float = 0.1, least: float | None = None) -> Proposal:
    """x with (I − γP^π) x ≈ r by BiCGSTAB, two sweeps a step.

    With `least`, the smallest drift, it also goes on until the gate's shift, min(residual)/least, takes back at most
    half of what x has gained on average: before that the gate would let next to nothing through. Where the recurrence
    breaks down, x is handed on as it stands.
    """

    def propose(policy: PolicyRows, x: Value) -> Value:
        image, second, started = np.empty_like(x), np.empty_like(x), float(x.mean())
        policy.sweep(x, image)
        residual = image - x
        target = goal * float(np.ptp(residual))
        shadow, direction, x = residual.copy(), residual.copy(), x.copy()
        rho = _dot(shadow, residual)
        for _ in range(max(1, limit // 2)):
            policy.follow(direction, image)
            np.subtract(direction, image, out=image)
            across = _dot(shadow, image)
            if rho == 0 or across == 0:
                break
            alpha = rho / across
            x += alpha * direction
            residual -= alpha * image
            policy.follow(residual, second)
            np.subtract(residual, second, out=second)
            square = _dot(second, second)
            if square == 0:
                break
            omega = _dot(second, residual) / square
            x += omega * residual
            residual -= omega * second
            low = float(residual.min())
            useful = least is None or -low / least <= (float(x.mean()) - started) / 2
            if omega == 0 or (useful and float(residual.max()) - low <= target):
                break
            rho, before = _dot(shadow, residual), rho
            direction -= omega * image
            direction *= rho / before * (alpha / omega)
            direction += residual
        return x

    return propose


def _dot(a: Value, b: Value) -> float:
    """a·b on this thread: BLAS wakes its own for vectors of this size, and waits for them."""
    return float(np.einsum("i,i->", a, b))


def anderson(limit: int, goal: float = 0.1, memory: int = 5) -> Proposal:
    """Σ αᵢ 𝓑^π xᵢ over the last sweeps, Σ αᵢ = 1, where ‖Σ αᵢ(𝓑^π xᵢ − xᵢ)‖ is least."""

    def propose(policy: PolicyRows, x: Value) -> Value:
        images: list[Value] = []
        changes: list[Value] = []
        first = np.inf
        for count in range(limit):
            image = np.empty_like(x)
            width = policy.sweep(x, image).width
            first = width if count == 0 else first
            images, changes = [*images, image][-memory:], [*changes, image - x][-memory:]
            x = image
            if width <= goal * first:
                break
            if len(changes) > 1:
                steps = np.stack([c - changes[-1] for c in changes[:-1]], axis=1)
                mix, *_ = np.linalg.lstsq(steps, -changes[-1], rcond=1e-12)
                x = image + np.stack([i - image for i in images[:-1]], axis=1) @ mix
        return x

    return propose
