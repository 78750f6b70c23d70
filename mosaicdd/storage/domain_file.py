"""Domains in files: what people give as ``--domain``, and what a solution file holds of one.

A mask is an array of numpy's or a picture, a domain by its polygons a JSON file. Solution files hold
the level at the nodes, ``/domain/level``, of polygons these, too.
"""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mosaicdd.axes import times
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.given import require_spacing
from mosaicdd.problems.shapes.polygons import Polygons
from mosaicdd.problems.shapes.shape import Level, Shape
from mosaicdd.problems.shapes.voxels import VoxelMask
from mosaicdd.storage.field_file import FieldFile, npy_array
from mosaicdd.storage.raster import PLACED, RASTERS, TEXT

LEVEL = "domain/level"
POLYGONS = "domain/polygons"
VOXELS = "domain/voxels"
ACTIVE = "active"


def read_domain(
    spec: str,
    cells: tuple[int, ...],
    spacing: float | tuple[float, ...] | None,
    origin: tuple[float, ...] | None = None,
) -> Domain:
    """Return the domain that a text describes.

    Parameters
    ----------
    spec
        ``expr:...``, a signed distance; ``FILE.npy``, ``FILE.png`` or ``FILE.tif``, a mask of nodes or of cells, in
        space of voxels, true or light inside, dark or clear outside; an array with NaN, or a raster, ``FILE.asc``, ``FILE.csv``, ``FILE.nc`` or a GeoTIFF: where it has data;
        ``FILE.json``, polygons.
    cells
        Of the rectangle around it, ``(ny, nx)``, or of the box.
    origin
        Where its lower-left corner lies, (x, y).

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is none of these, or does not fit the cells.
    """
    if spec.startswith("expr:"):
        return Domain.from_distance(spec, cells, spacing, origin)
    path = Path(spec)
    if path.suffix.lower() == ".json":
        shape = _polygons(path)
        return Domain(cells, spacing, shape, origin)
    readers = {".npy": _array, ".png": _picture, **dict.fromkeys(RASTERS, _with_data)}
    readers |= {".tif": _stack, ".tiff": _stack}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"a domain is 'expr:...', a signed distance, or a file .json, {', '.join(readers)}, got {spec!r}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file of the domain is missing")
    mask = readers[path.suffix.lower()](path)
    nodes = Grid(cells, 1.0).nodes
    per_cell = mask.shape == cells
    if not per_cell and (mask.shape != nodes or len(cells) == 3):
        of_nodes = "" if len(cells) == 3 else f"{nodes} nodes or "
        hint = ""
        if len(cells) == 3 and mask.shape == cells[::-1]:
            hint = ": its axes are in the order (x, y, z), give its transpose"
        elif mask.ndim == len(cells):
            hint = f": give --cells {times(mask.shape)}, or a file of as many rows and columns as {times(cells)}"
        raise ValueError(
            f"{path} has the shape {mask.shape}, a mask of the domain has {of_nodes}{cells} cells{hint}"
        )
    domain, raster = Domain.from_mask(mask, spacing, per_cell=per_cell, origin=origin), placed(spec)
    if raster is not None:
        require_spacing(raster, domain.grid(), str(path))
    return domain


def placed(spec: str) -> FieldFile | None:
    """Return the raster that describes a domain, which may say where it lies; None if it is something else."""
    path = Path(spec)
    if spec.startswith("expr:") or path.suffix.lower() not in RASTERS or not path.is_file():
        return None
    if path.suffix.lower() in (".tif", ".tiff") and not _is_raster(path):
        return None
    return FieldFile(path)


def _polygons(path: Path) -> Polygons:
    """Read ``{"outer": [[x, y], ..], "holes": [[[x, y], ..], ..]}``."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file of the domain is missing")
    form = "polygons are {'outer': [[x, y], ..], 'holes': [[[x, y], ..], ..]}"
    try:
        parsed = json.loads(path.read_text(encoding=TEXT))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); {form}") from None
    if not isinstance(parsed, dict) or "outer" not in parsed or set(parsed) - {"outer", "holes"}:
        raise ValueError(f"{path}: {form}")
    try:
        return Polygons(parsed["outer"], parsed.get("holes", []))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _array(path: Path) -> np.ndarray:
    """Return a mask of numpy's, or where an array has data if it has none somewhere."""
    array = npy_array(path)
    known = np.isfinite(array) if array.dtype.kind == "f" else np.True_
    return array if known.all() else np.asarray(known)


def _with_data(path: Path) -> np.ndarray:
    """Return the mask of the places where a raster has data."""
    return np.isfinite(FieldFile(path)[()])


def _is_raster(path: Path) -> bool:
    """Say whether a TIFF file has places, or numbers that are no greys; a picture that cannot be read has not."""
    try:
        from PIL import Image

    except ModuleNotFoundError:
        return False
    try:
        with Image.open(path) as image:
            return image.mode == "F" or bool(PLACED & {*getattr(image, "tag_v2", ())})
    except (Image.DecompressionBombError, OSError):
        return False


def _picture(path: Path) -> np.ndarray:
    """Return the mask of light pixels of a picture, from the bottom up."""
    (grey,) = _pictures(path)[:1]
    return (grey > 127)[::-1]


def _stack(path: Path) -> np.ndarray:
    """Return the mask of light pixels of a TIFF file, picture after picture along z, each from the bottom up.

    Of one whose tags say where it lies, where it has data.
    """
    if _is_raster(path):
        return _with_data(path)
    stack = np.stack(_pictures(path, deep=True))
    half = 0 if stack.max(initial=0) <= 1 else np.iinfo(stack.dtype).max // 2  # or it holds 0 and 1
    light = stack[:, ::-1] > half
    return light[0] if len(light) == 1 else light


def _pictures(path: Path, *, deep: bool = False) -> list[np.ndarray]:
    """Return the greys of the pictures in a file, the upper row first, in 8 bits; if ``deep`` in 16 where it has them."""
    try:
        from PIL import Image, ImageSequence
    except ModuleNotFoundError:
        raise ValueError(
            f"{path}: pictures need Pillow: pip install pillow, or give the mask as FILE.npy"
        ) from None
    try:
        with Image.open(path) as image:
            greys = [_grey(each, deep=deep) for each in ImageSequence.Iterator(image)]
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path}: {error}; give the mask as FILE.npy") from None
    except OSError as error:
        raise ValueError(f"{path}: not a picture ({error})") from error
    if len({grey.shape for grey in greys}) > 1:
        raise ValueError(f"{path}: its pictures are not of one size")
    return greys


def _grey(image: Any, *, deep: bool) -> np.ndarray:
    """Return the greys of one of Pillow's pictures as it is seen on black: what is clear is dark."""
    if deep and image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.uint16)
    if image.mode.startswith("I"):  # more than 8 bits, which Pillow would cut off at 255
        values = np.asarray(image).astype(np.int64).clip(min=0)
        most = next((bits for bits in (8, 16) if values.max(initial=0) < 2**bits), 31)
        return np.asarray(values * 255 // (2**most - 1)).astype(np.uint8)
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        alpha = np.asarray(clear.getchannel("A")).astype(np.uint16)
        return np.asarray(np.asarray(clear.convert("L")) * alpha // 255).astype(np.uint8)
    return np.asarray(image.convert("L"))


def shape_of_file(file: h5py.File) -> Shape | None:
    """Return the part of the rectangle, or of the box, that an open solution file's domain is; None for all."""
    if VOXELS in file:
        return VoxelMask(file[VOXELS][()].view(bool))
    if LEVEL not in file:
        return None
    if POLYGONS in file:
        outer, *holes = json.loads(file[POLYGONS].asstr()[()])
        return Polygons(outer, holes)
    staircase, of_cells = (bool(file[LEVEL].attrs.get(n, False)) for n in ("staircase", "of_cells"))
    return Level(FieldFile(f"{file.filename}:/{LEVEL}"), staircase, of_cells)
