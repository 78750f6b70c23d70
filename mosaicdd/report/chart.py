"""A chart of curves with logarithmic values, drawn as SVG that takes the page's colours."""

import html
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

Curve = tuple[ArrayLike, ArrayLike]
"""Where, and the values there; only those above zero are drawn."""

_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 40  # around the curves, for what is written there
_DOTS = 60  # points of a curve up to which each has a dot
_TICKS = 8  # along either axis, at most


def chart(curves: Mapping[str, Curve], along: str) -> str:
    """Return the picture and its legend; nothing where no value is above zero.

    Parameters
    ----------
    along
        What stands below the horizontal axis.
    """
    points = {name: _positive(*curve) for name, curve in curves.items()}
    points = {name: curve for name, curve in points.items() if len(curve)}
    if not points:
        return ""
    every = np.concatenate(list(points.values()))
    first, last = every[:, 0].min(), every[:, 0].max()
    low, high = math.floor(every[:, 1].min()), math.ceil(every[:, 1].max())
    high = max(high, low + 1)

    def place(curve: np.ndarray) -> np.ndarray:
        x = (curve[:, 0] - first) / (last - first or 1.0)
        y = (high - curve[:, 1]) / (high - low)
        wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return np.column_stack([_LEFT + x * wide, _TOP + y * tall])

    parts = [
        f'<div class="wide"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="convergence">'
    ]
    for power in range(low, high + 1, -(-(high - low) // _TICKS)):
        ((_, y),) = place(np.array([[first, power]]))
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{power:+03d}</text>'
        )
    for at in _ticks(first, last):
        ((x, _),) = place(np.array([[at, low]]))
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{at:g}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{html.escape(along)}</text>'
    )
    for number, curve in enumerate(points.values()):
        placed = place(curve)
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        parts.append(f'<path class="curve c{number % 6}" d="M{path}"/>')
        if len(placed) <= _DOTS:
            parts += [
                f'<circle class="dot c{number % 6}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
                for x, y in placed
            ]
    keys = "".join(
        f'<span class="key c{number % 6}">{html.escape(name)}</span>'
        for number, name in enumerate(points)
    )
    return "".join([*parts, "</svg></div>", f'<p class="keys">{keys}</p>'])


def _positive(at: ArrayLike, values: ArrayLike) -> np.ndarray:
    """Return where values are above zero, and their logarithms, ``(n, 2)``."""
    places, numbers = np.asarray(at, float), np.asarray(values, float)
    shown = np.isfinite(numbers) & (numbers > 0)
    return np.column_stack([places[shown], np.log10(numbers[shown])])


def _ticks(first: float, last: float) -> np.ndarray:
    """Return round numbers between two."""
    if last <= first:
        return np.array([first])
    least = (last - first) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))
    return np.arange(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1) * step
