"""Pictures of solutions, after Fig. 1 of the paper.

A picture never hides an error. Panels have fewer pixels than a large field has nodes: of a block of
nodes, differences show the largest value, fields the mean. Differences have logarithmic colours, so
that small ones are seen beside large ones, and every panel's title says its largest value.

Of a box planes through it are drawn, in the same colours, a column for each.
`figure` draws what a `StoredSolution` is, or anything with the same members.

Moving pictures of a series in time: a GIF, or a picture for each of its times.
"""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from mosaicdd.report.pictures import SMALL, draw_history, in_blocks, limits_of, save_figure
from mosaicdd.report.sections import Plane, Section, heading, sections_of
from mosaicdd.report.stored import StoredSolution, read
from mosaicdd.storage.atomic import MARK, atomic_file

_DPI = 200
_BLOCKS = 0.6  # per pixel and axis: each is seen
_DECADES = 5  # of differences below the largest, at most
_LONG = 2.2  # domains with a side this much longer than the other are stacked
_TO_SCALE = 12  # beyond, the shorter side would be a line
_SQUARE, _LENGTH, _TALL = 2.8, 8.5, 5.6  # inches of a panel's longer side
_TITLE, _BAR = 0.9, 1.25  # inches around a panel: title and labels, colour bar and labels
_NARROW, _TICKS, _DIGIT = (
    2.2,
    0.4,
    0.09,
)  # inches that a title needs, between ticks, and of a digit there
# Inches of the shorter side of a plane through a box, and of the history below these.
_LEAST, _HISTORY = 0.8, 2.4
_OUTLINE = 1000  # nodes along an axis by which an outline is drawn, at most


def figure(
    solution: StoredSolution,
    reference: np.ndarray | None = None,
    reference_name: str = "reference",
    *,
    planes: Sequence[Plane] = (),
    dpi: int = _DPI,
) -> Figure:
    """Draw a solution, its estimated error and its history; and a reference and the difference.

    Parameters
    ----------
    reference
        Of the same problem, at the nodes of the solution's field, ``(ny + 1, nx + 1)``; without one
        its panels are left out.
    planes
        What is drawn of a box; by default the planes in its middle.
    dpi
        Pixels per inch; pictures of fewer than that would lose what a single node has.
    """
    sections = sections_of(solution, planes)
    difference = None
    if reference is not None:
        difference = np.abs(np.asarray(solution.field) - reference)
    panels = _panels(solution, sections, reference, reference_name, difference)
    drawing, maps, history = _layout(panels, sections, dpi)
    for (axes, inches), panel in zip(maps, panels, strict=True):
        _draw(drawing, axes, panel, inches)
        _draw_outline(axes, solution, panel.section)
        axes.axis(panel.section.extent)
    _mark_outside(maps[-1][0], solution)
    draw_history(history, solution, difference)
    title = heading(solution)
    if solution.time is not None:
        title += f", t = {solution.time:g}"
    # It may be in no plane that is drawn.
    if difference is not None and sections[0].axis is not None:
        index = _largest(difference, solution.inside)
        at = [solution.coordinates(axis)[i] for axis, i in enumerate(index)]
        place = ", ".join(f"{x:.7g}" for x in reversed(at))
        title += f"\nlargest difference {_number(difference[index])} at ({place})"
    drawing.suptitle(title, fontsize=11)
    return drawing


@dataclass(frozen=True)
class _Panel:
    """One picture of values over the domain."""

    title: str
    section: Section  # that it shows
    values: np.ndarray  # ``(rows, columns)``
    extent: tuple[float, float, float, float]  # left, right, bottom and top end of the picture
    label: str  # of its colours
    # Of linear colours, else of logarithmic ones of values that are not negative; of these None where all are zero
    limits: tuple[float, float] | None
    linear: bool = False
    # Where the largest value is, (x, y), if that is to be seen
    peak: tuple[float, float] | None = None


def _panels(
    solution: StoredSolution,
    sections: list[Section],
    reference: np.ndarray | None,
    reference_name: str,
    difference: np.ndarray | None,
) -> list[_Panel]:
    """Return the panels: the field in all sections, then the reference, and so on."""
    fields = {
        f"mosaicdd ({solution.attributes.get('local_solver', 'solution')})": [
            section.field() for section in sections
        ]
    }
    if reference is not None:
        fields[reference_name] = [section.of(reference) for section in sections]
    scale = list(fields.values())[-1]
    ends = [limits_of(values) for values in scale]
    limits = min(low for low, _ in ends), max(high for _, high in ends)
    panels = []
    for name, shown in fields.items():
        for section, values in zip(sections, shown, strict=True):
            low, high = limits_of(values)
            title = f"{_titled(name, section.title)}\n{low:.4g} to {high:.4g}"
            panels.append(_Panel(title, section, values, section.extent, "u", limits, linear=True))
    if difference is not None:
        panels += _in_one_scale(
            _difference_panel(solution, section, difference, reference_name) for section in sections
        )
    if solution.error_map is not None:
        panels += _in_one_scale(_estimate_panel(solution, section) for section in sections)
    return panels


def _in_one_scale(panels: Iterable[_Panel]) -> list[_Panel]:
    """Return panels with the same logarithmic colours."""
    panels = list(panels)
    limits = _logarithmic(np.concatenate([panel.values.ravel() for panel in panels]))
    return [dataclasses.replace(panel, limits=limits) for panel in panels]


def _titled(name: str, where: str) -> str:
    return f"{name}, {where}" if where else name


def _difference_panel(
    solution: StoredSolution, section: Section, difference: np.ndarray, reference_name: str
) -> _Panel:
    inside, values = section.has_values(), section.of(difference)
    known, numbers, peak = values[inside], "no values", None
    if known.size:
        numbers = f"largest {_number(np.max(known))}, mean {_number(np.mean(known))}"
        index = _largest(values, inside)
        at = (solution.coordinates(axis)[i] for axis, i in zip(section.along, index, strict=True))
        row, column = map(float, at)
        peak = column, row
    title = f"{_titled('absolute difference', section.title)}\n{numbers}"
    label = f"|u - {reference_name}|" if len(reference_name) < 20 else "|difference|"
    # Of a block NaN is the largest, and what is outside none.
    shown = np.where(inside & np.isnan(values), np.inf, values)
    return _Panel(title, section, shown, section.extent, label, None, peak=peak)


def _largest(difference: np.ndarray, inside: np.ndarray | None) -> tuple[int, ...]:
    """Return the node of the largest difference: NaN is the largest, unless it stands for what is outside."""
    places = difference if inside is None else np.where(inside, difference, -1.0)
    return tuple(map(int, np.unravel_index(np.argmax(places), places.shape)))


def _estimate_panel(solution: StoredSolution, section: Section) -> _Panel:
    """Return the panel of the estimated error, which has a value for each lattice node."""
    every = np.asarray(solution.error_map)
    nodes, where = section.nearest(every)
    ends = [solution.map_extent(every.shape)[axis] for axis in section.along]
    around = [solution.periodic[axis] for axis in section.along]
    extent: list[float] = []
    for axis, ((low, high), count, wraps) in enumerate(zip(ends, nodes.shape, around, strict=True)):
        step = (high - low) / (count - 1) if count > 1 else solution.lattice_step or 1
        half = step / 2
        on_edges = np.take(nodes, [0, -1], axis)
        if not wraps and count > 2 and not on_edges.any():  # where values are given
            nodes, half = np.delete(nodes, [0, -1], axis), -half
        extent = [low - half, high + half, *extent]  # those along columns come first
    numbers = f"largest {_number(np.max(nodes))}, rms {_number(solution.error_estimate)}"
    name = "estimated error, lattice nodes" if section.axis is None else "estimated error"
    title = f"{_titled(name, where)}\n{numbers}"
    left, right, bottom, top = extent
    return _Panel(title, section, nodes, (left, right, bottom, top), "estimated error", None)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}" if value == 0 else f"{value:.1e}"


Inches = tuple[float, ...]
"""Of a panel, (rows, columns)."""


def _layout(
    panels: list[_Panel], sections: list[Section], dpi: int
) -> tuple[Figure, list[tuple[Axes, Inches]], Axes]:
    """Place the panels and the history; return the figure, the axes of the panels and their inches, and those of the history.

    Panels of several sections have a column for each, the history is below.
    """
    if len(sections) == 1:
        return _one_section(len(panels), sections[0], dpi)
    sizes = [tuple(high - low for low, high in section.ends()) for section in sections]
    scale = _SQUARE / max(map(max, sizes))
    inches = [tuple(max(scale * side, _LEAST) for side in size) for size in sizes]
    rows = len(panels) // len(sections)
    height = max(high for high, _ in inches) + _TITLE
    widths, heights = [width + _BAR for _, width in inches], [height] * rows + [_HISTORY]
    drawing = Figure((sum(widths), sum(heights) + 0.5), dpi=dpi, layout="constrained")
    cells = drawing.add_gridspec(
        rows + 1, len(sections), width_ratios=widths, height_ratios=heights
    )
    maps = []
    for number in range(len(panels)):
        row, column = divmod(number, len(sections))
        axes = drawing.add_subplot(cells[row, column])
        stretched = scale * min(sizes[column]) < _LEAST
        axes.set_aspect("auto" if stretched else "equal")
        maps.append((axes, inches[column]))
    return drawing, maps, drawing.add_subplot(cells[rows, :])


def _one_section(
    panels: int, section: Section, dpi: int
) -> tuple[Figure, list[tuple[Axes, Inches]], Axes]:
    """Place the panels of one section: squares in rows, long domains stacked, tall ones side by side."""
    height, width = (high - low for low, high in section.ends())
    inches: Inches
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
    return drawing, [(axes, inches) for axes in drawn], drawing.add_subplot(history)


def _draw(drawing: Figure, axes: Axes, panel: _Panel, inches: Inches) -> None:
    blocks = tuple(int(_BLOCKS * drawing.dpi * length) for length in inches)
    style: dict[str, Any] = {"origin": "lower", "extent": panel.extent}
    style["aspect"] = axes.get_aspect()
    beside = axes.inset_axes((1 + 0.1 / inches[1], 0.0, 0.12 / inches[1], 1.0))
    limits = panel.limits
    if panel.linear:
        low, high = limits or (None, None)
        shown = in_blocks(panel.values, blocks)
        image = axes.imshow(shown, vmin=low, vmax=high, cmap="viridis", **style)
        bar = drawing.colorbar(image, cax=beside)
    else:
        shown = in_blocks(panel.values, blocks, np.fmax.reduceat)
        if limits is not None:
            shown = np.maximum(shown, limits[0])
            style["norm"] = LogNorm(*limits)
        image = axes.imshow(shown, interpolation="nearest", cmap="magma", **style)
        bar = drawing.colorbar(image, cax=beside, extend="min" if limits else "neither")
    axes.set_facecolor("0.85")  # where there is no value
    bar.set_label(panel.label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=8)
    if panel.peak is not None and limits_of(panel.values)[1] > 0:
        axes.plot(*panel.peak, "o", mfc="none", mec="lime", mew=1.0, ms=8, clip_on=False)
    narrow = inches[1] < _NARROW
    axes.set_title(panel.title.replace(", ", ",\n") if narrow else panel.title, fontsize=SMALL)
    up, across = panel.section.letters
    axes.set_xlabel(across, fontsize=SMALL)
    axes.set_ylabel(up, fontsize=SMALL)
    axes.tick_params(labelsize=8)
    for axis, length in zip((axes.yaxis, axes.xaxis), inches, strict=True):
        digits = max(len(f"{abs(end):.0f}") for end in axis.get_view_interval())
        room = max(_TICKS, _DIGIT * digits) if axis is axes.xaxis else _TICKS
        count = max(1, min(6, int(length / room)))
        axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 4, 5, 10], min_n_ticks=2))
        # In full, however far from the origin: an offset beside the axis is in the title's way.
        plain = ScalarFormatter(useOffset=False)
        plain.set_powerlimits((-4, 9))
        axis.set_major_formatter(plain)


def _logarithmic(values: np.ndarray) -> tuple[float, float] | None:
    """Return limits, some decades below the largest value and that; None if there is nothing."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not positive.size:
        return None
    high = float(positive.max())
    low = max(float(positive.min()), high * 10.0**-_DECADES)
    return min(low, high / 10), high


def _draw_outline(axes: Axes, solution: StoredSolution, section: Section) -> None:
    """Draw the outline of a domain that is no rectangle, or no box."""
    if solution.shape is None:
        return
    level = section.level(solution.shape)
    step = max(1, max(level.shape) // _OUTLINE)
    level = level[::step, ::step]
    at = -0.5 if solution.shape.staircase else 0.0  # a mask's level is -1 and 0
    if min(level.shape) > 1 and (level < at).any() and (level > at).any():
        y, x = (solution.coordinates(axis)[::step] for axis in section.along)
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


_DOTS_PER_INCH = 100
_LONGEST = 5.0  # inches, of the side of the field
_ROOM = 1.6, 1.0  # inches around it, (x, y): colour bar and labels, title
_SECONDS = 8.0  # that a GIF takes from begin to end, in pictures of at most
_FASTEST = 20  # per second


class Moving:
    """The picture of a series: one figure, whose values change from time to time.

    Colours are the same at all times: from the least to the largest value of all.
    ``planes``: of a box, of which the first is drawn; by default the one in the middle along z.
    """

    def __init__(self, series: StoredSolution, planes: Sequence[Plane] = ()):
        if series.times is None:
            raise ValueError(f"{series.path} is of one time; a series is needed")
        self._path, self._problem, self.times = series.path, series.number, series.times
        self._section = sections_of(series, planes)[0]
        left, right, bottom, top = self._section.extent
        scale = _LONGEST / max(top - bottom, right - left)
        width, height = scale * (right - left), scale * (top - bottom)
        self._blocks = int(height * _DOTS_PER_INCH) + 1, int(width * _DOTS_PER_INCH) + 1
        size = max(width, 1.0) + _ROOM[0], max(height, 1.0) + _ROOM[1]
        self.figure = Figure(size, dpi=_DOTS_PER_INCH, layout="constrained")
        FigureCanvasAgg(self.figure)
        axes = self.figure.add_subplot()
        low, high = self._limits()
        self._image = axes.imshow(
            np.zeros((1, 1)),
            origin="lower",
            extent=self._section.extent,
            vmin=low,
            vmax=high,
            cmap="viridis",
        )
        self.figure.colorbar(self._image, label="u")
        row, column = self._section.letters
        axes.set(xlabel=column, ylabel=row)
        where = self._section.title
        self._heading = f"{heading(series)}, {where}" if where else heading(series)
        self._title = axes.set_title("")

    def show(self, number: int) -> None:
        """Draw the field of a time."""
        self._image.set_data(in_blocks(self._field(number), self._blocks))
        self._title.set_text(f"{self._heading}\nt = {self.times[number]:.4g}")

    def save_gif(self, path: Path) -> None:
        """Write a GIF, whole or not at all."""
        rate = max(1, min(_FASTEST, round(len(self.times) / _SECONDS)))
        writer = PillowWriter(fps=rate)
        with atomic_file(path) as temporary:
            named = temporary.with_suffix(".gif")  # Pillow goes by the name
            try:
                writer.setup(self.figure, str(named), dpi=_DOTS_PER_INCH)
                for number in range(len(self.times)):
                    self.show(number)
                    writer.grab_frame()
                writer.finish()
                # A comment, before the last byte, which ends the file.
                with named.open("r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    file.write(b"\x21\xfe" + bytes([len(MARK)]) + MARK.encode() + b"\x00;")
                named.replace(temporary)
            finally:
                named.unlink(missing_ok=True)

    def save_frames(self, pattern: str) -> list[Path]:
        """Write a picture for each time, to a name with its number in the place of ``%d``."""
        paths = self.paths(pattern)
        for number, path in enumerate(paths):
            self.show(number)
            save_figure(self.figure, path)
        return paths

    def paths(self, pattern: str) -> list[Path]:
        """Return the name of the picture for each time."""
        return [Path(pattern % number) for number in range(len(self.times))]

    def _field(self, number: int) -> np.ndarray:
        """Return what is drawn of the field of a time."""
        solution = read(self._path, self._problem, frame=number)
        return replace(self._section, solution=solution).field()

    def _limits(self) -> tuple[float, float]:
        ranges = [limits_of(self._field(number)) for number in range(len(self.times))]
        return min(low for low, _ in ranges), max(high for _, high in ranges)
