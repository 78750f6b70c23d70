"""Curves over iterations and steps: of solutions, and of trainings, after Fig. 6 of the paper."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mosaicdd.report.stored import StoredSolution
from mosaicdd.storage.atomic import MARK, atomic_file

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
