"""Boundary data in HDF5: ``/boundary/{bottom,top,left,right}``; solution files hold them, too.

Each edge is one row of values, or, of several problems, has a row for each.
"""

from collections.abc import Sequence
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


def write_boundaries(file: h5py.File, boundaries: Sequence[Boundary]) -> None:
    """Write the edges of several problems to an open file, ``(n, nodes)``."""
    for name in Boundary.EDGES:
        file[f"boundary/{name}"] = np.stack([getattr(boundary, name) for boundary in boundaries])


def read_boundaries(path: str | PathLike, grid: Grid) -> list[Boundary]:
    """Read boundary data for a grid, of one problem or of several.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not an HDF5 file with the four edges, or they are not finite, do not agree in the
        corners or do not fit the grid.
    """
    with open_any(path, "boundary") as file:
        edges = _edges(file)
        count = _count(file.filename, edges)
        if count is None:
            return [_boundary(file.filename, edges, grid)]
        return [_boundary(file.filename, edges, grid, problem) for problem in range(count)]


def boundary_of_file(file: h5py.File, grid: Grid, problem: int = 0) -> Boundary:
    """Read the boundary data of one problem from an open file, as `read_boundaries`."""
    edges = _edges(file)
    several = _count(file.filename, edges) is not None
    return _boundary(file.filename, edges, grid, problem if several else None)


def _edges(file: h5py.File) -> dict[str, np.ndarray]:
    missing = [name for name in Boundary.EDGES if f"boundary/{name}" not in file]
    if missing:
        raise ValueError(
            f"{file.filename} holds no boundary data: /boundary/{missing[0]} is missing"
        )
    return {name: np.asarray(file[f"boundary/{name}"]) for name in Boundary.EDGES}


def _count(filename: str, edges: dict[str, np.ndarray]) -> int | None:
    """Return the number of problems; None where the edges are of one problem, or unsound."""
    if any(edge.ndim != 2 for edge in edges.values()):
        return None
    counts = {name: len(edge) for name, edge in edges.items()}
    if min(counts.values()) < max(counts.values()) or not max(counts.values()):
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(f"{filename}: all edges need a row per problem, their rows are {listed}")
    return counts["bottom"]


def _boundary(
    filename: str, edges: dict[str, np.ndarray], grid: Grid, problem: int | None = None
) -> Boundary:
    """Check the edges of one problem of a file, or of the only one."""
    try:
        if problem is not None:
            edges = {name: edge[problem] for name, edge in edges.items()}
        boundary = Boundary(**{name: _real(name, edge) for name, edge in edges.items()})
        boundary.require_shape(grid)
    except ValueError as error:
        which = "" if problem is None else f"problem {problem}: "
        raise ValueError(f"{filename}: {which}{error}") from None
    return boundary


def _real(name: str, edge: np.ndarray) -> np.ndarray:
    if not (np.issubdtype(edge.dtype, np.floating) or np.issubdtype(edge.dtype, np.integer)):
        raise ValueError(f"boundary edge {name} must hold real numbers, got {edge.dtype}")
    return edge.astype(float)
