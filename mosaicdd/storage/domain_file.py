"""Domains in files: what people give as ``--domain``, and what a solution file holds of one.

A mask is an array of numpy's or a picture, a domain by its polygons a JSON file. Solution files hold
the level at the nodes, ``/domain/level``, of polygons these, too.
"""

import json
from pathlib import Path

import h5py
import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.shapes.polygons import Polygons
from mosaicdd.problems.shapes.shape import Level, Shape
from mosaicdd.storage.field_file import FieldFile

LEVEL = "domain/level"
POLYGONS = "domain/polygons"
ACTIVE = "active"


def read_domain(
    spec: str, cells: tuple[int, ...], spacing: float | tuple[float, ...] | None
) -> Domain:
    """Return the domain that a text describes.

    Parameters
    ----------
    spec
        ``expr:...``, a signed distance; ``FILE.npy`` or ``FILE.png``, a mask of nodes or of cells, true
        or light inside; ``FILE.json``, polygons.
    cells
        Of the rectangle around it, ``(ny, nx)``, or of the box.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is none of these, or does not fit the cells.
    """
    if spec.startswith("expr:"):
        return Domain.from_distance(spec, cells, spacing)
    path = Path(spec)
    if path.suffix.lower() == ".json":
        shape = _polygons(path)
        return Domain(cells, spacing, shape)
    readers = {".npy": _array, ".png": _picture}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"a domain is 'expr:...', a signed distance, or a file .json, {', '.join(readers)}, got {spec!r}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file of the domain is missing")
    mask = readers[path.suffix.lower()](path)
    nodes = Grid(cells, 1.0).nodes
    per_cell = mask.shape == cells
    if not per_cell and mask.shape != nodes:
        raise ValueError(
            f"{path} has the shape {mask.shape}, a mask of the domain has {nodes} nodes or {cells} cells"
        )
    return Domain.from_mask(mask, spacing, per_cell=per_cell)


def _polygons(path: Path) -> Polygons:
    """Read ``{"outer": [[x, y], ..], "holes": [[[x, y], ..], ..]}``."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file of the domain is missing")
    form = "polygons are {'outer': [[x, y], ..], 'holes': [[[x, y], ..], ..]}"
    try:
        parsed = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); {form}") from None
    if not isinstance(parsed, dict) or "outer" not in parsed or set(parsed) - {"outer", "holes"}:
        raise ValueError(f"{path}: {form}")
    try:
        return Polygons(parsed["outer"], parsed.get("holes", []))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _array(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not an array of numpy's ({error})") from error


def _picture(path: Path) -> np.ndarray:
    """Return where a picture is light, from the bottom up."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ValueError(
            f"{path}: pictures need Pillow: pip install pillow, or give the mask as FILE.npy"
        ) from None
    try:
        with Image.open(path) as image:
            grey = np.asarray(image.convert("L"))
    except OSError as error:
        raise ValueError(f"{path}: not a picture ({error})") from error
    return (grey > 127)[::-1]


def shape_of_file(file: h5py.File) -> Shape | None:
    """Return the part of the rectangle that an open solution file's domain is; None for all."""
    if LEVEL not in file:
        return None
    if POLYGONS in file:
        outer, *holes = json.loads(file[POLYGONS].asstr()[()])
        return Polygons(outer, holes)
    staircase = bool(file[LEVEL].attrs.get("staircase", False))
    return Level(FieldFile(f"{file.filename}:/{LEVEL}"), staircase=staircase)
