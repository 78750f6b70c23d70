"""Boundary data in HDF5: ``/boundary/{bottom,top,left,right}``; solution files hold them, too."""

from os import PathLike

import h5py
import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.storage.hdf5 import open_any


def write_boundary(file: h5py.File, boundary: Boundary) -> None:
    """Write the edges to an open file."""
    for name in Boundary.EDGES:
        file[f"boundary/{name}"] = getattr(boundary, name)


def read_boundary(path: str | PathLike, grid: Grid) -> Boundary:
    """Read boundary data for a grid.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not an HDF5 file with the four edges, or they are not finite, do not agree in the
        corners or do not fit the grid.
    """
    with open_any(path, "boundary") as file:
        return boundary_of_file(file, grid)


def boundary_of_file(file: h5py.File, grid: Grid) -> Boundary:
    """Read boundary data from an open file, as `read_boundary`."""
    missing = [name for name in Boundary.EDGES if f"boundary/{name}" not in file]
    if missing:
        raise ValueError(
            f"{file.filename} holds no boundary data: /boundary/{missing[0]} is missing"
        )
    edges = {name: np.asarray(file[f"boundary/{name}"]) for name in Boundary.EDGES}
    try:
        boundary = Boundary(**{name: _real(name, edge) for name, edge in edges.items()})
        boundary.require_shape(grid)
    except ValueError as error:
        raise ValueError(f"{file.filename}: {error}") from None
    return boundary


def _real(name: str, edge: np.ndarray) -> np.ndarray:
    if not (np.issubdtype(edge.dtype, np.floating) or np.issubdtype(edge.dtype, np.integer)):
        raise ValueError(f"boundary edge {name} must hold real numbers, got {edge.dtype}")
    return edge.astype(float)
