"""Moving pictures of a series in time: a GIF, or a picture for each of its times."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mosaicdd.report.curves import save_figure
from mosaicdd.report.pictures import in_blocks, limits_of
from mosaicdd.report.sections import Plane, heading, sections_of
from mosaicdd.report.stored import StoredSolution, read
from mosaicdd.storage.atomic import MARK, atomic_file

_DPI = 100
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
        self._blocks = int(height * _DPI) + 1, int(width * _DPI) + 1
        size = max(width, 1.0) + _ROOM[0], max(height, 1.0) + _ROOM[1]
        self.figure = Figure(size, dpi=_DPI, layout="constrained")
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
                writer.setup(self.figure, str(named), dpi=_DPI)
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
