"""Inputs in files: boundary data, and points at which values are wanted.

Boundary data are HDF5, ``/boundary/{bottom,top,left,right}``: each edge is one row of values, or, of
several problems, has a row for each. Of a box there are ``back`` and ``front``, too, and each of the six
is rows of values, as arrays of the field lie. Solution files hold them, too; those with natural sides hold
conditions instead. Points are rows ``x y``, in space ``x y z``, in domain coordinates, as text or as an
array of numpy's.
"""

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mosaicdd.axes import coordinates, letters
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.given import as_mask
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.outline import name_of_side, sides
from mosaicdd.problems.sides.boundary import Boundary, EdgeData
from mosaicdd.problems.sides.conditions import Scattered
from mosaicdd.problems.sides.side_values import KINDS, EvaluatedPart
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.storage.field_file import npy_array
from mosaicdd.storage.hdf5 import open_any
from mosaicdd.storage.raster import TEXT


def write_boundaries(file: h5py.File, boundaries: Sequence[Boundary]) -> None:
    """Write the edges to an open file: ``(nodes,)`` of one problem, ``(n, nodes)`` of several."""
    for name in boundaries[0].named:
        edges = [boundary.named[name] for boundary in boundaries]
        file[f"boundary/{name}"] = np.stack(edges) if len(edges) > 1 else edges[0]


_DIVIDED = "\u2215"  # what stands for the / of a formula, which would be a group in a name


def write_sides(file: h5py.File, sides: Sequence[EvaluatedPart], grid: Grid) -> None:
    """Write conditions to an open file: ``/sides/NAME``, with their kind and their values, in their order."""
    group = file.create_group(
        "sides", track_order=True
    )  # of parts of outlines the first one that holds counts
    group.attrs["cells"] = grid.shape
    for part in sides:
        values = part.values
        if isinstance(values, np.ndarray) and len(values) == 1:
            values = values[0]
        name = part.name.replace("/", _DIVIDED)
        group[name] = values
        group[name].attrs["condition"] = part.kind
        if isinstance(part.alpha, np.ndarray):
            file[f"alphas_of_sides/{name}"] = part.alpha
        else:
            group[name].attrs["alpha"] = part.alpha
        if part.points is not None:
            file[f"points_of_sides/{name}"] = part.points


def sides_of_file(file: h5py.File, grid: Grid, problem: int = 0) -> Sides:
    """Read the conditions of one problem from an open file; `ValueError` if one is unknown."""
    conditions, points = {}, file.get("points_of_sides", {})
    alphas = file.get("alphas_of_sides", {})
    for stored, values in file["sides"].items():
        name, where = stored.replace(_DIVIDED, "/"), points.get(stored)
        kind, alpha = str(values.attrs.get("condition")), values.attrs.get("alpha", 0.0)
        alpha = alphas[stored][()] if stored in alphas else alpha
        if kind not in KINDS:
            raise ValueError(f"{file.filename}: /sides/{name} has no condition that is known")
        held: np.ndarray | float | str
        if values.shape == ():
            text = h5py.check_string_dtype(values.dtype) is not None
            held = values.asstr()[()] if text else float(values[()])
        else:
            array = values[()]
            held = (
                array[None]
                if array.ndim == (1 if where is not None else len(grid.shape) - 1)
                else array
            )
        places = None if where is None else where[()]
        conditions[name] = EvaluatedPart(name, kind, alpha, held, places).condition(problem)
    edges = boundary_of_file(file, grid, problem) if "boundary/bottom" in file else None
    return Sides(conditions, edges, axes=len(grid.shape))


def inputs_of(problem: Problem, *others: Any) -> list[str | PathLike]:
    """Return the files that a problem and other arguments are read from: names, and arrays that lie in one."""
    conditions = problem.conditions
    sides = [values for part in conditions.parts for values in (part.values, part.alpha)]
    files = []
    fields = [getattr(values, "beside", values) for values in problem.fields.values()]  # of wells
    for value in (*fields, *sides, conditions.data, *others):
        names = (
            value,
            getattr(value, "path", None),
            getattr(value, "filename", None),  # of an array that numpy maps
            getattr(getattr(value, "file", None), "filename", None),  # of a dataset of h5py
        )
        files += [name for name in names if isinstance(name, (str, PathLike))]
    return files


def read_boundaries(path: str | PathLike, grid: Grid) -> list[Boundary]:
    """Read boundary data for a grid, of one problem or of several.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not an HDF5 file with all edges, they are not finite, do not agree in the
        corners or do not fit the grid, or the file's ``spacing`` or ``origin`` is another one.
    """
    with open_any(path, "boundary") as file:
        edges = _edges(file)
        count = _count(file.filename, edges)
        edges = {name: np.asarray(edge) for name, edge in edges.items()}
        each = [None] if count is None else range(count)
        boundaries = [_boundary(file.filename, edges, grid, problem) for problem in each]
        _require_place(file, grid)
        return boundaries


def _require_place(file: h5py.File, grid: Grid) -> None:
    """Raise `ValueError` unless nodes lie where those of a grid do, if the file says where that is."""
    asked, ways_out = (grid.steps, grid.origin), ("spacing", "origin")
    apart = min(grid.steps) * 1e-3
    for name, ours in zip(ways_out, asked, strict=True):
        if name not in file.attrs:
            continue
        theirs = np.broadcast_to(np.asarray(file.attrs[name], float), len(ours))
        if not np.allclose(theirs, ours, rtol=1e-9, atol=apart * (name == "origin")):
            first, second = (
                ", ".join(f"{number:.10g}" for number in numbers[::-1])
                for numbers in (theirs, ours)
            )
            way_out = ("x" if name == "spacing" else ",").join(f"{n:.10g}" for n in theirs[::-1])
            raise ValueError(
                f"{file.filename} is of a domain of {name} {first} along {coordinates(len(ours))}, this one has "
                f"{second}: give {name} {way_out}, or values by a formula"
            )


class BoundaryFile(EdgeData):
    """Boundary data in a file, of one problem or of several, which every rank reads for itself.

    `FileNotFoundError`, `ValueError` as `read_boundaries`.
    """

    made = True

    def __init__(self, path: str | PathLike):
        self.path = path
        with open_any(path, "boundary") as file:
            self._which = range(_count(file.filename, _edges(file)) or 1)

    def _on(self, grid: Grid) -> list[Boundary]:
        return read_boundaries(self.path, grid)


def boundary_of_file(file: h5py.File, grid: Grid, problem: int = 0) -> Boundary:
    """Read the boundary data of one problem from an open file, as `read_boundaries`."""
    edges = _edges(file, of_sides=True)
    several = _count(file.filename, edges) is not None
    return _boundary(file.filename, edges, grid, problem if several else None)


def _edges(file: h5py.File, *, of_sides: bool = False) -> dict[str, h5py.Dataset | np.ndarray]:
    if "sides" in file and not of_sides:
        raise ValueError(
            f"{file.filename} holds the conditions of a problem with natural sides, not values on all edges"
        )
    in_space = any(f"boundary/{name}" in file for name in ("back", "front"))
    axes = 3 if in_space else 2
    names = [name_of_side(side, axes) for side in sides(axes)]
    missing = [name for name in names if f"boundary/{name}" not in file]
    if missing:
        raise ValueError(
            f"{file.filename} holds no boundary data: /boundary/{missing[0]} is missing"
        )
    edges = {name: file[f"boundary/{name}"] for name in names}
    for name, edge in edges.items():
        if not hasattr(edge, "ndim"):  # a group
            raise ValueError(f"{file.filename}: boundary edge {name} must hold real numbers")
    return edges


def _count(filename: str, edges: dict[str, h5py.Dataset]) -> int | None:
    """Return the number of problems; None where the edges are of one problem, or unsound."""
    if any(edge.ndim != len(edges) // 2 for edge in edges.values()):
        return None
    counts = {name: len(edge) for name, edge in edges.items()}
    if min(counts.values()) < max(counts.values()) or not max(counts.values()):
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(f"{filename}: all edges need a row per problem, their rows are {listed}")
    return counts["bottom"]


def _boundary(
    filename: str, edges: dict[str, h5py.Dataset], grid: Grid, problem: int | None = None
) -> Boundary:
    """Check the edges of one problem of a file, or of the only one."""
    row = () if problem is None else problem
    try:
        values = {name: np.asarray(edge[row]) for name, edge in edges.items()}
        for name, edge in values.items():
            if edge.dtype.kind not in "fiu":
                raise ValueError(f"boundary edge {name} must hold real numbers, got {edge.dtype}")
        boundary = Boundary.of_names(**{name: edge.astype(float) for name, edge in values.items()})
        boundary.require_shape(grid)
    except ValueError as error:
        which = "" if problem is None else f"problem {problem}: "
        raise ValueError(f"{filename}: {which}{error}") from None
    return boundary


def read_points(path: str | PathLike, axes: int = 2) -> np.ndarray:
    """Read points, ``(q, axes)``; lines of a text that begin with # are comments. All else is an error."""
    return _rows(path, axes, f"'{' '.join(reversed(letters(axes)))}'")


def read_place(path: str | PathLike, axes: int = 2) -> np.ndarray:
    """Read where values are held: a mask of nodes, true or false, or points of a line; errors as of `read_points`."""
    if Path(path).suffix == ".npy" and Path(path).is_file():
        array = npy_array(Path(path))
        if array.dtype == bool or array.ndim == 3 or (array.ndim == 2 and array.shape[1] > 3):
            return as_mask(array, str(path))
    return read_points(path, axes)


def read_values_at_points(path: str | PathLike) -> Scattered:
    """Read values at points on an outline, rows ``x y value``; errors as of `read_points`."""
    rows = _rows(path, 3, "'x y value'")
    if not np.isfinite(rows).all():
        raise ValueError(f"{path}: {int((~np.isfinite(rows)).sum())} numbers are not finite")
    return Scattered(rows[:, :2], rows[:, 2], str(path))


def _rows(path: str | PathLike, count: int, form: str) -> np.ndarray:
    """Read rows of so many numbers from a text, or an array of numpy's."""
    path, numbers = Path(path), {2: "two", 3: "three"}[count]
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file of points is missing")
    try:
        if path.suffix == ".npy":
            points = npy_array(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is nothing in it: said below
                points = np.loadtxt(
                    path,
                    ndmin=2,
                    delimiter="," if path.suffix == ".csv" else None,
                    encoding=TEXT,
                )
    except (ValueError, EOFError) as error:
        why = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not rows of {numbers} numbers, {form} ({why})") from error
    if points.ndim != 2 or points.shape[1] != count or points.dtype.kind not in "fiu":
        if not points.size:
            raise ValueError(f"{path} holds no points; rows {form} are needed")
        raise ValueError(
            f"{path}: rows of {numbers} numbers, {form}, are needed, got {points.dtype} of shape "
            f"{points.shape}"
        )
    return points.astype(float)
