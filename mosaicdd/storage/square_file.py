"""Files of squares: small problems of a nonlinear equation with sources, and their solutions.

``/boundary (n, 4m)``, ``/source (n, m + 1, m + 1)``, ``/parameters (n, q)``, and ``/solution (n, m + 1, m + 1)``: of all,
or of those alone that are held out, which are the last.
"""

import os
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.hdf5 import SEALED, mark, new_file, open_to_read
from mosaicdd.storage.rows import FileArray, hash_of

FORMAT_VERSION = SEALED
_ARRAYS = ("parameters", "boundary", "source", "solution")


@dataclass(frozen=True)
class SquareDataset:
    """Problems on one square, with their solutions; the last ``validation`` of them are held out.

    Raises
    ------
    ValueError
        If the arrays do not fit each other, or hold what is not finite.
    """

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

    @property
    def held_out(self) -> int:
        """Number of squares that training does not see."""
        return round(self.validation * len(self.boundary))

    @property
    def content_hash(self) -> str:
        """SHA-256 of problems and solutions, independent of the file that holds them."""
        return hash_of([getattr(self, name) for name in _ARRAYS], "<f4")

    def __len__(self) -> int:
        """Return the number of squares."""
        return len(self.boundary)

    def rows(self, rows: slice) -> Self:
        """Return some of the squares, in memory; all of them solved, or none."""
        first, last, _ = rows.indices(len(self.boundary))
        solved = slice(max(first - self.unsolved, 0), max(last - self.unsolved, 0))
        arrays = {name: getattr(self, name)[rows] for name in _ARRAYS[:-1]}
        # Which of them are held out is said of the whole alone.
        return replace(self, validation=0.0, solution=self.solution[solved], **arrays)


def write_squares(path: str | os.PathLike, squares: SquareDataset) -> None:
    """Write a file of squares, whole or not at all."""
    with new_file(path) as file:
        mark(file, "squares", FORMAT_VERSION)
        file.attrs["pde"] = squares.pde
        file.attrs["cells"] = squares.subdomain.cells
        file.attrs["size"] = squares.subdomain.size
        file.attrs["seed"] = squares.seed
        file.attrs["validation"] = squares.validation
        file.attrs["parameter_names"] = list(squares.parameter_names)
        for name in _ARRAYS:
            file[name] = getattr(squares, name)


def read_squares(path: str | os.PathLike, *, whole: bool = True) -> SquareDataset:
    """Read a file of squares.

    Parameters
    ----------
    whole
        Whether the arrays are read, or stay in the file until `SquareDataset.rows` reads some.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is foreign, truncated or inconsistent; the message names it.
    """
    with open_to_read(path, "squares", FORMAT_VERSION) as file:
        content: dict[str, Any] = {
            "pde": str(file.attrs["pde"]),
            "subdomain": Subdomain(int(file.attrs["cells"]), float(file.attrs["size"])),
            "parameter_names": tuple(str(name) for name in file.attrs["parameter_names"]),
            "validation": float(file.attrs["validation"]),
            "seed": int(file.attrs["seed"]),
        } | {name: file[name][()] if whole else FileArray(path, file[name]) for name in _ARRAYS}
    try:
        return SquareDataset(**content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
