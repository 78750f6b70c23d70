"""Files of squares: small problems of a nonlinear equation with sources, and their solutions.

``/boundary (n, 4m)``, ``/source (n, m + 1, m + 1)``, ``/parameters (n, q)``, and ``/solution (n, m + 1, m + 1)``: of all,
or of those alone that are held out, which are the last.
"""

import os
from dataclasses import dataclass, replace
from typing import Self

import h5py
import numpy as np

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.hdf5 import new_file
from mosaicdd.storage.rows import Samples


@dataclass(frozen=True)
class SquareDataset(Samples):
    """Problems on one square, with their solutions; the last ``validation`` of them are held out.

    Raises
    ------
    ValueError
        If the arrays do not fit each other, or hold what is not finite.
    """

    kind_of_file = "squares"
    arrays = ("parameters", "boundary", "source", "solution")

    pde: str
    subdomain: Subdomain
    parameter_names: tuple[str, ...]
    parameters: np.ndarray
    boundary: np.ndarray
    source: np.ndarray
    solution: np.ndarray
    validation: float
    seed: int

    def __post_init__(self) -> None:
        count, m = len(self.boundary), self.subdomain.cells
        shapes = {
            "parameters": (count, len(self.parameter_names)),
            "boundary": (count, 4 * m),
            "source": (count, m + 1, m + 1),
            "solution": (self.held_out if self.unsolved else count, m + 1, m + 1),
        }
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(
                    f"the {name} of {count} squares must have the shape {shape}, got {array.shape}"
                )
            if isinstance(array, np.ndarray) and not np.isfinite(array).all():
                raise ValueError(f"the {name} of squares must be finite, found NaN or infinity")

    @property
    def unsolved(self) -> int:
        """Number of squares, the first ones, that have no solution."""
        return max(len(self.boundary) - len(self.solution), 0)

    def rows(self, rows: slice) -> Self:
        """Return some of the squares, in memory; all of them solved, or none."""
        first, last, _ = rows.indices(len(self.boundary))
        solved = slice(max(first - self.unsolved, 0), max(last - self.unsolved, 0))
        arrays = {name: getattr(self, name)[rows] for name in self.arrays[:-1]}
        # Which of them are held out is said of the whole alone.
        return replace(self, validation=0.0, solution=self.solution[solved], **arrays)


def write_squares(path: str | os.PathLike, squares: SquareDataset) -> None:
    """Write a file of squares, whole or not at all."""
    with new_file(path) as file:
        squares.describe(file)
        file.attrs["cells"] = squares.subdomain.cells
        file.attrs["size"] = squares.subdomain.size
        file.attrs["parameter_names"] = list(squares.parameter_names)
        for name in squares.arrays:
            file[name] = getattr(squares, name)


def read_squares(path: str | os.PathLike, *, whole: bool = True) -> SquareDataset:
    """Read a file of squares; see `Samples.of_file`."""

    def more(file: h5py.File) -> dict:
        return {
            "subdomain": Subdomain(int(file.attrs["cells"]), float(file.attrs["size"])),
            "parameter_names": tuple(str(name) for name in file.attrs["parameter_names"]),
        }

    return SquareDataset.of_file(path, more, whole=whole)
