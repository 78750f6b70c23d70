"""Pictures of solutions, after Fig. 1 of the paper.

A picture never hides an error. Panels have fewer pixels than a large field has nodes: of a block of
nodes, differences show the largest value, fields the mean. Differences have logarithmic colours, so
that small ones are seen beside large ones, and every panel's title says its largest value.

`figure` draws what a `StoredSolution` is, or anything with the same members.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mosaicdd.report.curves import SMALL, draw_history
from mosaicdd.storage.atomic import MARK, atomic_file
from mosaicdd.storage.solution_file import StoredSolution

_DPI = 200
_BLOCKS = 0.6  # per pixel and axis: each is seen
_DECADES = 5  # of differences below the largest, at most
_LONG = 2.2  # domains with a side this much longer than the other are stacked
_TO_SCALE = 12  # beyond, the shorter side would be a line
_SQUARE, _LENGTH, _TALL = 2.8, 8.5, 5.6  # inches of a panel's longer side
_TITLE, _BAR = 0.9, 1.25  # inches around a panel: title and labels, colour bar and labels
_NARROW, _TICKS = 2.2, 0.4  # inches that a title needs, and between ticks
_OUTLINE = 1000  # nodes along an axis by which an outline is drawn, at most


def figure(
    solution: StoredSolution,
    reference: np.ndarray | None = None,
    reference_name: str = "reference",
    *,
    dpi: int = _DPI,
) -> Figure:
    """Draw a solution, its estimated error and its history; and a reference and the difference.

    Parameters
    ----------
    reference
        Of the same problem, at the nodes of the solution's field, ``(ny + 1, nx + 1)``; without one
        its panels are left out.
    dpi
        Pixels per inch; pictures of fewer than that would lose what a single node has.
    """
    panels = _panels(solution, reference, reference_name)
    (bottom, top), (left, right) = solution.window.extent(solution.grid)
    drawing, maps, history, inches = _layout(len(panels), top - bottom, right - left, dpi)
    for axes, panel in zip(maps, panels, strict=True):
        _draw(drawing, axes, panel, inches)
        _draw_outline(axes, solution)
        axes.set_xlim(left, right)
        axes.set_ylim(bottom, top)
    _mark_outside(maps[-1], solution)
    difference = None if reference is None else panels[2].values
    draw_history(history, solution, difference)
    time = "" if solution.time is None else f", t = {solution.time:g}"
    drawing.suptitle(heading(solution) + time, fontsize=11)
    return drawing


def save_figure(drawing: Figure, path: Path) -> None:
    """Write a figure to a file of the kind that its name ends in, whole or not at all."""
    kind = path.suffix[1:]
    with atomic_file(path) as temporary:
        drawing.savefig(
            temporary, format=kind, metadata={"Software" if kind == "png" else "Creator": MARK}
        )


@dataclass(frozen=True)
class _Panel:
    """One picture of values over the domain."""

    title: str
    values: np.ndarray  # ``(rows, columns)``
    extent: tuple[float, float, float, float]  # left, right, bottom and top end of the picture
    label: str  # of its colours
    # Of linear colours; None for logarithmic ones of values that are not negative
    limits: tuple[float, float] | None = None
    # Where the largest value is, (x, y), if that is to be seen
    peak: tuple[float, float] | None = None


def _panels(
    solution: StoredSolution, reference: np.ndarray | None, reference_name: str
) -> list[_Panel]:
    field = np.asarray(solution.field)
    (bottom, top), (left, right) = solution.window.extent(solution.grid)
    extent = left, right, bottom, top
    fields = {f"mosaicdd ({solution.attributes.get('local_solver', 'solution')})": field}
    if reference is not None:
        fields[reference_name] = reference
    ranges = {name: field_range(values) for name, values in fields.items()}
    limits = ranges[reference_name] if reference is not None else field_range(field)
    panels = [
        _Panel(f"{name}\n{low:.4g} to {high:.4g}", fields[name], extent, "u", limits)
        for name, (low, high) in ranges.items()
    ]
    if reference is not None:
        values = np.abs(field - reference)
        known = values if solution.inside is None else values[solution.inside]
        numbers = f"largest {_number(np.max(known))}, mean {_number(np.mean(known))}"
        # NaN is the largest, unless it stands for what is outside the domain.
        places = values if solution.inside is None else np.where(solution.inside, values, -1.0)
        row, column = np.unravel_index(np.argmax(places), values.shape)
        peak = float(solution.x[column]), float(solution.y[row])
        title = f"absolute difference\n{numbers}"
        label = f"|u - {reference_name}|" if len(reference_name) < 20 else "|difference|"
        panels.append(_Panel(title, values, extent, label, peak=peak))
    if solution.error_map is not None:
        panels.append(_estimate_panel(solution))
    return panels


def _estimate_panel(solution: StoredSolution) -> _Panel:
    """Return the panel of the estimated error, which has a value for each lattice node."""
    nodes = np.asarray(solution.error_map)
    extent: list[float] = []
    ends = zip(solution.map_extent(nodes.shape), nodes.shape, solution.periodic, strict=True)
    for axis, ((low, high), count, around) in enumerate(ends):
        half = (high - low) / (count - 1) / 2
        if not around:  # on the edge of the lattice there is none
            nodes, half = np.delete(nodes, [0, -1], axis), -half
        extent = [low - half, high + half, *extent]  # those along x come first
    values = nodes
    numbers = f"largest {_number(np.max(values))}, rms {_number(solution.error_estimate)}"
    title = f"estimated error, lattice nodes\n{numbers}"
    return _Panel(title, values, (extent[0], extent[1], extent[2], extent[3]), "estimated error")


def field_range(values: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest finite value, (0, 0) if there is none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}" if value == 0 else f"{value:.1e}"


def heading(solution: StoredSolution) -> str:
    """Say what was solved."""
    ny, nx = solution.grid.shape
    numbers = {name: value for name, value in solution.fields.items() if np.ndim(value) == 0}
    known = "".join(f", {name} = {value:g}" for name, value in numbers.items())
    parts = [f"{solution.attributes.get('pde', 'solution')}{known}, {nx} x {ny} cells"]
    if solution.window.shape != solution.grid.nodes:
        rows, columns = solution.window.shape
        parts.append(f"window of {columns} x {rows} nodes")
    if solution.problems > 1:
        parts.append(f"problem {solution.number} (0 to {solution.problems - 1})")
    return ", ".join(parts)


def _layout(
    panels: int, height: float, width: float, dpi: int
) -> tuple[Figure, list[Axes], Axes, tuple[float, ...]]:
    """Place the panels and the history: squares in rows, long domains stacked, tall ones side by side.

    Returns
    -------
    tuple
        The figure, the axes of the panels, those of the history, and the inches of a panel, (y, x).
    """
    inches: tuple[float, ...]
    long, tall = width > _LONG * height, height > _LONG * width
    if long:
        inches = _LENGTH * max(height / width, 1 / _TO_SCALE), _LENGTH
        heights = [inches[0] + _TITLE] * panels + [2.6]
        drawing = Figure((_LENGTH + _BAR, sum(heights) + 0.3), dpi=dpi, layout="constrained")
        cells = drawing.add_gridspec(panels + 1, 1, height_ratios=heights)
        maps, history = [cells[row, 0] for row in range(panels)], cells[panels, 0]
    elif tall:
        inches = _TALL, _TALL * max(width / height, 1 / _TO_SCALE)
        widths = [inches[1] + _BAR] * panels + [4.0]
        drawing = Figure((sum(widths), _TALL + _TITLE + 0.5), dpi=dpi, layout="constrained")
        cells = drawing.add_gridspec(1, panels + 1, width_ratios=widths)
        maps, history = [cells[0, column] for column in range(panels)], cells[0, panels]
    else:
        inches = tuple(_SQUARE * side / max(height, width) for side in (height, width))
        columns = panels + 1 if panels < 4 else 3
        rows = -(-(panels + 1) // columns)
        size = columns * (inches[1] + _BAR), rows * (inches[0] + _TITLE) + 0.4
        drawing = Figure(size, dpi=dpi, layout="constrained")
        cells = drawing.add_gridspec(rows, columns)
        maps = [cells[divmod(number, columns)] for number in range(panels)]
        history = cells[-1, panels % columns :]
    drawn = [drawing.add_subplot(cell) for cell in maps]
    for axes in drawn:
        stretched = max(height, width) > _TO_SCALE * min(height, width)
        axes.set_aspect("auto" if stretched else "equal")
    return drawing, drawn, drawing.add_subplot(history), inches


def _draw(drawing: Figure, axes: Axes, panel: _Panel, inches: tuple[float, ...]) -> None:
    blocks = tuple(int(_BLOCKS * drawing.dpi * length) for length in inches)
    style: dict[str, Any] = {"origin": "lower", "extent": panel.extent}
    style["aspect"] = axes.get_aspect()
    beside = axes.inset_axes((1 + 0.1 / inches[1], 0.0, 0.12 / inches[1], 1.0))
    if panel.limits is not None:
        low, high = panel.limits
        shown = in_blocks(panel.values, blocks, _mean)
        image = axes.imshow(shown, vmin=low, vmax=high, cmap="viridis", **style)
        bar = drawing.colorbar(image, cax=beside)
    else:
        limits = _logarithmic(panel.values)
        shown = in_blocks(panel.values, blocks, np.maximum.reduceat)
        if limits is not None:
            shown = np.maximum(shown, limits[0])
            style["norm"] = LogNorm(*limits)
        image = axes.imshow(shown, interpolation="nearest", cmap="magma", **style)
        bar = drawing.colorbar(image, cax=beside, extend="min" if limits else "neither")
    axes.set_facecolor("0.85")  # where there is no value
    bar.set_label(panel.label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=8)
    if panel.peak is not None and field_range(panel.values)[1] > 0:
        axes.plot(*panel.peak, "o", mfc="none", mec="lime", mew=1.0, ms=8, clip_on=False)
    narrow = inches[1] < _NARROW
    axes.set_title(panel.title.replace(", ", ",\n") if narrow else panel.title, fontsize=SMALL)
    axes.set_xlabel("x", fontsize=SMALL)
    axes.set_ylabel("y", fontsize=SMALL)
    axes.tick_params(labelsize=8)
    for axis, length in zip((axes.yaxis, axes.xaxis), inches, strict=True):
        count = max(1, min(6, int(length / _TICKS)))
        axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 4, 5, 10], min_n_ticks=2))


def _logarithmic(values: np.ndarray) -> tuple[float, float] | None:
    """Return limits, some decades below the largest value and that; None if there is nothing."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not positive.size:
        return None
    high = float(positive.max())
    low = max(float(positive.min()), high * 10.0**-_DECADES)
    return min(low, high / 10), high


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


def _draw_outline(axes: Axes, solution: StoredSolution) -> None:
    """Draw the outline of a domain that is no rectangle."""
    if solution.shape is None:
        return
    step = max(1, max(solution.window.shape) // _OUTLINE)
    level = solution.shape.level(solution.grid, solution.window.place)[::step, ::step]
    at = -0.5 if solution.shape.staircase else 0.0  # a mask's level is -1 and 0
    if min(level.shape) > 1 and (level < at).any() and (level > at).any():
        x, y = solution.x[::step], solution.y[::step]
        axes.contour(x, y, level, levels=[at], colors="black", linewidths=0.7)


def _mark_outside(axes: Axes, solution: StoredSolution) -> None:
    """Mark the centres of subdomains whose data were outside of the training range."""
    if solution.outside is None or not solution.outside.any():
        return
    y, x = (
        low + index * (high - low) / (count - 1)
        for index, (low, high), count in zip(
            np.nonzero(solution.outside),
            solution.map_extent(solution.outside.shape),
            solution.outside.shape,
            strict=True,
        )
    )
    limits = axes.axis()  # those of the field, which may be a window
    axes.plot(x, y, "c.", markersize=2)
    axes.axis(limits)
    axes.set_xlabel(f"x ({len(x)} subdomains out of range: dots)", fontsize=SMALL)
