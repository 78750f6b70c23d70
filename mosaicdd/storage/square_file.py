"""Files of squares: small problems of a nonlinear equation with sources, and their solutions.

``/boundary (n, 4m)``, ``/source (n, m + 1, m + 1)``, ``/parameters (n, q)``, and ``/solution (n, m + 1, m + 1)``: of all,
or of those alone that are held out, which are the last.
"""

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.hdf5 import SEALED, mark, new_file, open_to_read

FORMAT_VERSION = SEALED


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
            if not np.isfinite(array).all():
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
        digest = hashlib.sha256()
        for array in (self.parameters, self.boundary, self.source, self.solution):
            digest.update(np.ascontiguousarray(array, dtype="<f4").data)
        return digest.hexdigest()


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
        for name in ("parameters", "boundary", "source", "solution"):
            file[name] = getattr(squares, name)


def read_squares(path: str | os.PathLike) -> SquareDataset:
    """Read a file of squares.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is foreign, truncated or inconsistent; the message names it.
    """
    with open_to_read(path, "squares", FORMAT_VERSION) as file:
        arrays = ("parameters", "boundary", "source", "solution")
        content: dict[str, Any] = {
            "pde": str(file.attrs["pde"]),
            "subdomain": Subdomain(int(file.attrs["cells"]), float(file.attrs["size"])),
            "parameter_names": tuple(str(name) for name in file.attrs["parameter_names"]),
            "validation": float(file.attrs["validation"]),
            "seed": int(file.attrs["seed"]),
        } | {name: file[name][()] for name in arrays}
    try:
        return SquareDataset(**content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
