"""Solution files of several problems on one grid: written by all groups of ranks, in any order.

Arrays are those of a single problem's file with a leading axis: ``/solution`` ``(n, ny + 1, nx +
1)``, edges ``(n, nodes)``, maps ``(n, K_y + 1, K_x + 1)``, histories ``(n, iterations)``, NaN after
a problem's last one. ``/problems`` holds what differs between problems, ``(n,)`` each: status,
iterations, update, residual and so on. The attributes are those of a single problem's file, of all
problems together. ParaView sees a stack of planes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike

import h5py
import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.storage.boundary_file import write_boundaries
from mosaicdd.storage.hdf5 import mark, new_file
from mosaicdd.storage.solution_file import FORMAT_VERSION, SolutionWriter
from mosaicdd.storage.vtk import present_to_vtk


class ManySolutionsWriter(SolutionWriter):
    """Fills an open file of several problems."""

    def problems(self, results: dict[str, list]) -> None:
        """Write results of each problem: texts or numbers by name; None becomes NaN."""
        for name, values in results.items():
            texts = all(isinstance(value, str) for value in values)
            dtype = h5py.string_dtype() if texts else np.asarray(_numbers(values)).dtype
            data = values if texts else _numbers(values)
            self._file.create_dataset(f"problems/{name}", data=data, dtype=dtype)

    def histories(self, histories: Sequence[dict[str, list[float]]]) -> None:
        """Write the histories, one row per problem."""
        longest = max(len(history["update"]) for history in histories)
        for name in histories[0]:
            rows = np.full((len(histories), longest), np.nan)
            for row, history in zip(rows, histories, strict=True):
                row[: len(history[name])] = history[name]
            self._file[f"history/{name}"] = rows

    def leave_empty(self, name: str, problem: int) -> None:
        """Fill the array of a problem that was not solved with NaN."""
        self._file[name][problem] = np.nan


def _numbers(values: list) -> list:
    return [np.nan if value is None else value for value in values]


@contextmanager
def writing_solutions(
    path: str | PathLike, grid: Grid, boundaries: Sequence[Boundary], dtype: str
) -> Iterator[ManySolutionsWriter]:
    """Open a solution file of several problems; it appears under its name when all is written."""
    with new_file(path) as file:
        mark(file, "solution", FORMAT_VERSION)
        file.attrs["spacing"] = grid.spacing
        write_boundaries(file, boundaries)
        writer = ManySolutionsWriter(file)
        writer.create("solution", (len(boundaries), *grid.nodes), dtype)
        present_to_vtk(file, (len(boundaries), *grid.nodes), grid.spacing)
        yield writer
