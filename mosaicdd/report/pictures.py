"""Fields reduced to the blocks of a picture; and the pictures of a page, in 256 colours, and charts of curves as SVG.

Curves over iterations and steps: of solutions, and of trainings, after Fig. 6 of the paper.
"""

import html
import io
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from PIL import Image

from mosaicdd.report.stored import StoredSolution
from mosaicdd.storage.atomic import MARK, atomic_file

_LEVELS = 255  # colours; the last entry of a palette stands for where there is no value


def reduced(portions: Iterable[np.ndarray], columns: int, step: int) -> np.ndarray:
    """Return means over squares of nodes, NaN where there is no value.

    Parameters
    ----------
    portions
        Rows of a field from the first on, ``(k step, columns)``; the last may have fewer.
    step
        Nodes of a square along each axis; those at the end may have fewer.
    """
    means, across = [], np.arange(0, columns, step)
    for portion in portions:
        down = np.arange(0, len(portion), step)

        def total(values: np.ndarray, down: np.ndarray = down) -> np.ndarray:
            along_rows = np.add.reduceat(values, across, axis=1, dtype=float)
            return np.add.reduceat(along_rows, down, axis=0)

        sums = total(portion)
        counts = np.outer(np.diff(down, append=len(portion)), np.diff(across, append=columns))
        if not np.isfinite(sums).all():
            known = np.isfinite(portion)
            sums, counts = total(np.where(known, portion, 0.0)), total(known)
        means.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    return np.concatenate(means)


def limits_of(values: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest value, ``(0, 0)`` if there is none."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def in_blocks(
    values: np.ndarray, blocks: tuple[int, ...], reduce: Callable | None = None
) -> np.ndarray:
    """Reduce values to at most as many blocks per axis, by default to their means."""
    reduce = reduce or _mean
    for axis, count in enumerate(blocks):
        if values.shape[axis] > count:
            starts = np.linspace(0, values.shape[axis], count, endpoint=False).astype(int)
            values = reduce(values, starts, axis=axis)
    return values


def _mean(values: np.ndarray, starts: np.ndarray, axis: int) -> np.ndarray:
    counts = np.diff(starts, append=values.shape[axis])
    return np.add.reduceat(values, starts, axis=axis) / (counts if axis else counts[:, None])


def png(values: np.ndarray, limits: tuple[float, float], colours: str) -> bytes:
    """Return a picture, the first row at the bottom; what is NaN is transparent.

    Parameters
    ----------
    limits
        Values of the first and the last colour.
    colours
        Name of matplotlib's map.
    """
    low, high = limits
    share = (values - low) / (high - low or 1.0)
    index = np.full(values.shape, _LEVELS, np.uint8)
    known = np.isfinite(share)
    index[known] = np.clip(share[known] * _LEVELS, 0, _LEVELS - 1)
    image = Image.fromarray(np.ascontiguousarray(index[::-1]))
    shades = colormaps[colours](np.linspace(0, 1, _LEVELS), bytes=True)[:, :3]
    image.putpalette(shades.tobytes() + bytes(3))
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True, transparency=_LEVELS)
    return stream.getvalue()


def gradient(colours: str, stops: int = 9) -> str:
    """Return the same colours for a bar, as CSS says them."""
    shades = colormaps[colours](np.linspace(0, 1, stops), bytes=True)[:, :3]
    return ", ".join(f"rgb({red} {green} {blue})" for red, green, blue in shades)


Curve = tuple[ArrayLike, ArrayLike]
"""Where, and the values there; only those above zero are drawn."""

_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 22, 14, 48  # around the curves, for what is written there
_DOTS = 60  # points of a curve up to which each has a dot
_TICKS = 8  # along either axis, at most


def chart(curves: Mapping[str, Curve], along: str) -> str:
    """Return the picture and its legend; nothing where no value is above zero.

    ``along``: what stands below the horizontal axis.
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
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{at:g}</text>'
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


SMALL = 9  # points
_MARKED = 40  # iterations whose values are marked one by one
_ERRORS = {
    "validation_mse": "validation MSE",
    "window_mse": "windows MSE",
    "error": "relative error",
    "plain": "without the network",
}
_LOSSES = {"data_loss": "data loss", "pde_loss": "PDE loss"}


def learning_curve(rows: list[dict], title: str, path: Path) -> None:
    """Draw the metrics of a training, as `read_metrics` gives them, to a PNG file."""
    figure = Figure(figsize=(9, 3.6), dpi=120, layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, curves in zip(axes, (_ERRORS, _LOSSES), strict=True):
        for name, label in curves.items():
            # The mean logarithm of an error is no loss for an axis of logarithms.
            points = [(row["step"], row[name]) for row in rows if (row.get(name) or 0.0) > 0]
            if points:
                ax.semilogy(*zip(*points, strict=True), ".-", label=label)
        if ax.lines:
            ax.legend()
        ax.set(xlabel="step")
        ax.grid(alpha=0.3)
    figure.suptitle(title)
    save_figure(figure, path)


def save_figure(drawing: Figure, path: Path) -> None:
    """Write a figure to a file of the kind that its name ends in, whole or not at all."""
    kind = path.suffix[1:]
    with atomic_file(path) as temporary:
        drawing.savefig(
            temporary, format=kind, metadata={"Software" if kind == "png" else "Creator": MARK}
        )


def draw_history(axes: Axes, solution: StoredSolution, difference: np.ndarray | None) -> None:
    """Draw what each iteration said of itself, and beside it what the result is worth."""
    if solution.times is not None:
        _draw_steps(axes, solution)
        return
    count = len(solution.history["update"])
    for name, style in (("update", "o-"), ("residual", "s--"), ("mae", "^:")):
        values = np.asarray(solution.history.get(name, []), float)
        shown = np.isfinite(values) & (values > 0)
        if shown.any():
            style = style if count <= _MARKED else style[1:]
            steps = np.arange(1, len(values) + 1)
            axes.semilogy(steps[shown], values[shown], style, label=name, ms=4, lw=1)
    lines = {"error estimate": solution.error_estimate}
    if difference is not None:
        inside = solution.inside
        known = difference if inside is None else difference[inside]
        lines["difference, rms"] = float(np.sqrt(np.mean(np.square(known, dtype=float))))
    for (name, value), colour in zip(lines.items(), ("crimson", "black"), strict=False):
        if value is not None and np.isfinite(value) and value > 0:
            axes.axhline(value, color=colour, lw=1.2, label=f"{name} {value:.1e}")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _finish(axes, "iteration", f"{count} iterations\n{solution.status}")


def _draw_steps(axes: Axes, solution: StoredSolution) -> None:
    """Draw what each step in time is estimated to add to the error."""
    times = solution.history["time"]
    for name, style in (("time_error", "o-"), ("solver_error", "s--")):
        values = solution.history[name]
        shown = np.isfinite(values) & (values > 0)
        if shown.any():
            style = style if len(times) <= _MARKED else style[1:]
            label = f"{name.replace('_', ' ')} of a step"
            axes.semilogy(times[shown], values[shown], style, label=label, ms=4, lw=1)
    _finish(axes, "time", f"{len(times)} steps\n{solution.status}")


def _finish(axes: Axes, along: str, title: str) -> None:
    if axes.lines:
        axes.set_yscale("log")
        axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize=8)
    axes.set_title(title, fontsize=SMALL)
    axes.set_xlabel(along, fontsize=SMALL)
    axes.set_ylabel("root mean square", fontsize=SMALL)
