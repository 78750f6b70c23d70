"""The field of a solution file as initial values, at the last of its times or at another one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import letters
from mosaicdd.lattice.window import Window
from mosaicdd.storage.atomic import version_of
from mosaicdd.storage.hdf5 import open_to_read
from mosaicdd.storage.solution_file import read_solution

_SPEC = re.compile(r"(?P<path>.+\.h5)(?::(?P<frame>\d+))?")


class StoredField:
    """Node values ``(ny + 1, nx + 1)``, of several problems ``(n, ny + 1, nx + 1)``, read when they are sliced.

    ``spec``: ``FILE.h5``, of a series its last field, or ``FILE.h5:K``, that at its time number K.

    `FileNotFoundError`, `PermissionError`, `ValueError` as `read_solution`; `ValueError` if the file holds a window.
    """

    def __init__(self, spec: str):
        known = _SPEC.fullmatch(spec)
        if known is None:
            raise ValueError(
                f"{spec}: a field of a solution file is FILE.h5, or FILE.h5:K at a time"
            )
        self.name, self.path = spec, Path(known["path"])
        frame = None if known["frame"] is None else int(known["frame"])
        first = read_solution(self.path)
        if first.times is None and frame is not None:
            raise ValueError(
                f"{self.path} is no series, it has no time number {frame}: give {self.path}"
            )
        stored = first if first.times is None else read_solution(self.path, None, frame)
        if stored.window != Window.whole(stored.grid):
            raise ValueError(
                f"{self.path} holds a window of {stored.window.shape} of {stored.grid.nodes} nodes, initial values are of "
                "all: solve again without a window"
            )
        several = (stored.problems,) if stored.problems > 1 else ()
        self.shape: tuple[int, ...] = (*several, *stored.grid.nodes)
        self._frame, self._version = () if stored.times is None else (stored.frame,), stored.version
        axes = letters(len(stored.grid.nodes))
        self._along = {letter: stored.coordinates(axis) for axis, letter in enumerate(axes)}

    @staticmethod
    def is_named(spec: str) -> bool:
        """Say whether a text names the field of a solution file."""
        return _SPEC.fullmatch(spec) is not None

    @property
    def as_value(self) -> tuple:
        """What tells it from others: a file that has changed is not read."""
        return self.name, self._version

    @property
    def coords(self) -> Mapping[str, np.ndarray]:
        """The coordinates along its axes, by their letters."""
        return self._along

    def __getitem__(self, place: Any) -> np.ndarray:
        """Read a part; `ValueError` if the file has changed since it was looked at first."""
        if version_of(self.path) != self._version:
            raise ValueError(f"{self.path} has changed since it was opened; open it again")
        with open_to_read(self.path, "solution") as file:
            place = place if isinstance(place, tuple) else (place,)
            return np.asarray(file["solution"][(*self._frame, *place)])
