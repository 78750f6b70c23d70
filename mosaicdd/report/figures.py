"""Figures of a solution, after Fig. 1 of the paper: prediction, reference, absolute difference."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mosaicdd.storage.atomic import atomic_file
from mosaicdd.storage.solution_file import StoredSolution

_PIXELS = 1024  # a field is thinned to about this many nodes per axis


def solution_figure(
    solution: StoredSolution, reference: np.ndarray, reference_name: str, path: Path
) -> None:
    """Draw the fields, their difference and the history to a picture file.

    Parameters
    ----------
    reference
        Of the same problem, at the nodes of the solution's field.
    """
    difference = np.abs(solution.field - reference)
    figure = Figure(figsize=(15, 3.9), layout="constrained")
    axes = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.1))
    limits = {"vmin": float(reference.min()), "vmax": float(reference.max())}
    solver = solution.attributes.get("local_solver", "solution")
    _draw_field(figure, axes[0], solution, solution.field, f"mosaicdd ({solver})", **limits)
    _draw_field(figure, axes[1], solution, reference, reference_name, **limits)
    title = f"absolute difference, MAE {difference.mean():.1e}"
    _draw_field(figure, axes[2], solution, difference, title, cmap="magma")
    _mark_outside(axes[2], solution)
    _draw_history(axes[3], solution)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)


def _draw_field(
    figure: Figure, axes: Axes, solution: StoredSolution, field: np.ndarray, title: str, **style
) -> None:
    step = max(1, max(field.shape) // _PIXELS)
    (bottom, top), (left, right) = solution.window.extent(solution.grid)
    image = axes.imshow(
        field[::step, ::step], origin="lower", extent=(left, right, bottom, top), **style
    )
    figure.colorbar(image, ax=axes, shrink=0.8)
    axes.set(title=title, xlabel="x", ylabel="y")


def _mark_outside(axes: Axes, solution: StoredSolution) -> None:
    """Mark the centres of subdomains whose data were outside of the training range."""
    if solution.outside is None or not solution.outside.any():
        return
    distance = [
        s / (n - 1) for s, n in zip(solution.grid.size, solution.outside.shape, strict=True)
    ]
    y, x = (index * d for index, d in zip(np.nonzero(solution.outside), distance, strict=True))
    limits = axes.axis()  # those of the field, which may be a window
    axes.plot(x, y, "c.", markersize=2)
    axes.axis(limits)
    axes.set_xlabel(f"x ({len(x)} subdomains out of range: dots)")


def _draw_history(axes: Axes, solution: StoredSolution) -> None:
    for name, style in (("update", "o-"), ("residual", "s--"), ("mae", ":")):
        values = solution.history.get(name, np.array([]))
        shown = np.isfinite(values) & (values > 0)
        if shown.any():
            axes.semilogy(np.arange(1, len(values) + 1)[shown], values[shown], style, label=name)
    if axes.lines:
        axes.legend()
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    status = solution.attributes.get("status", "")
    axes.set(title=f"{len(solution.history['update'])} iterations, {status}", xlabel="iteration")
