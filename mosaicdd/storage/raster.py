"""Rasters as geographers have them: values on an even grid, and where they lie.

ESRI's ASCII grids (``.asc``), tables of numbers or of ``x,y,value`` (``.csv``), netCDF (``.nc``, by xarray), and TIFF, whose
tags may say where it lies (GeoTIFF; ``.tif``, by Pillow). Rows are put in the order of arrays, from the bottom to the top; places without data are NaN.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.problems.fields.given import axes_of, real_array, usable

# Of texts that people give: UTF-8, before which Excel and others write a mark of the byte order.
TEXT = "utf-8-sig"
_LACKING, _FEW = (
    100,
    2**22,
)  # places for each row of a table that has one, and those that any table may have


@dataclass(frozen=True)
class Raster:
    """Values ``(.., rows, columns)``, and the coordinates of their places, ``{"y": (rows,), "x": (columns,)}``, if there are any."""

    values: np.ndarray
    coords: Mapping[str, np.ndarray]


@functools.lru_cache(maxsize=8)
def read_raster(path: Path, variable: str | None, version: object) -> Raster:
    """Read a raster whole, once.

    `ValueError` if it is none, or its places are not evenly spaced.

    Parameters
    ----------
    variable
        Of a netCDF file that has several.
    version
        Of the file: one that has changed is read again.
    """
    raster = _READERS[path.suffix.lower()](path, variable)
    axes_of(raster, str(path))
    raster.values.flags.writeable = False
    return raster


def _ascii_grid(path: Path, variable: str | None) -> Raster:
    """Read an ESRI ASCII grid, whose first row is the uppermost."""
    form = "an ESRI ASCII grid begins with ncols, nrows, xllcorner, yllcorner and cellsize, each with a number"
    header: dict[str, float] = {}
    try:
        words, first = path.read_text(encoding=TEXT).split(), 0
        while first < len(words) and words[first][:1].isalpha():
            header[words[first].lower()] = float(words[first + 1])
            first += 2
        numbers = np.array(words[first:], float)
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {form} ({error})") from None
    wrong = [f"{name} {header[name]:g}" for name in header if not _is_sound(name, header[name])]
    if wrong:
        raise ValueError(f"{path}: {form}, whole ones of rows and columns, got {', '.join(wrong)}")
    counts = int(header.get("nrows", 0)), int(header.get("ncols", 0))
    steps = header.get("dy", header.get("cellsize")), header.get("dx", header.get("cellsize"))
    begin: dict[str, tuple[float, float, float]] = {}
    for letter, count, step in zip("yx", counts, steps, strict=True):
        begins = {f"{letter}llcorner", f"{letter}llcenter"} & {*header}
        if count < 1 or step is None or not step > 0 or not begins:
            raise ValueError(f"{path}: {form}, got {', '.join(header) or 'none of these'}")
        half = 0.5 if max(begins).endswith("corner") else 0.0
        begin[letter] = header[max(begins)], step, half
    if numbers.size != counts[0] * counts[1]:
        raise ValueError(
            f"{path}: {counts[0]} rows of {counts[1]} numbers are {counts[0] * counts[1]}, there are {numbers.size}"
        )
    coords = {
        letter: first + step * (np.arange(count) + half)
        for count, (letter, (first, step, half)) in zip(counts, begin.items(), strict=True)
    }
    values = numbers.reshape(counts)[::-1].copy()
    values[values == header.get("nodata_value", -9999.0)] = np.nan
    return Raster(values, coords)


def _is_sound(name: str, value: float) -> bool:
    """Say whether a number of a header can be one of its name."""
    return name == "nodata_value" or (
        math.isfinite(value) and (name not in ("nrows", "ncols") or value == int(value))
    )


def _table(path: Path, variable: str | None) -> Raster:
    """Read rows of numbers, the lowest first, or below a line ``x,y,value`` places and what is there."""
    try:
        if not path.stat().st_size:
            raise ValueError("it is empty")
        with path.open(encoding=TEXT) as file:
            names = [name.strip().strip('"').lower() for name in file.readline().split(",")]
        titled = not all(map(_is_number, names))
        rows = np.genfromtxt(
            path,
            delimiter=",",
            skip_header=int(titled),
            ndmin=2,
            missing_values="",
            dtype=float,
            encoding=TEXT,
        )
    except (ValueError, UnicodeDecodeError) as error:
        why = str(error).split("\n")[0]
        raise ValueError(f"{path}: not rows of numbers with commas between ({why})") from None
    if not titled:
        return Raster(rows, {})
    if len(names) != 3 or names[:2] != ["x", "y"] or rows.shape[1] != 3:
        raise ValueError(
            f"{path}: a table is rows of numbers alone, or has the columns x,y,value, got {','.join(names)}"
        )
    coords, places = {}, []
    for letter, column in (("y", 1), ("x", 0)):
        if not np.isfinite(rows[:, column]).all():
            raise ValueError(f"{path}: a place has no {letter}")
        coords[letter], at = np.unique(rows[:, column], return_inverse=True)
        places.append(at)
    raster = Raster(rows, coords)
    axes_of(raster, str(path))
    counts = [len(along) for along in coords.values()]
    if math.prod(counts) > max(_LACKING * len(rows), _FEW):
        raise ValueError(
            f"{path}: its {len(rows)} rows are of a raster of {counts[0]} x {counts[1]} places, of which next to none have a "
            "value: give a row for each"
        )
    values = np.full(counts, np.nan)
    values[tuple(places)] = rows[:, 2]
    if len(rows) > len(np.unique(np.stack(places), axis=1).T):
        raise ValueError(f"{path}: {len(rows)} rows are of fewer places: one stands twice")
    return Raster(values, coords)


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


def _netcdf(path: Path, variable: str | None) -> Raster:
    """Read a variable of a netCDF file."""
    try:
        import xarray
    except ModuleNotFoundError:
        raise ValueError(
            f"{path}: netCDF needs xarray: pip install xarray netCDF4, or give the values as FILE.npy"
        ) from None
    with _read_by_xarray(path):
        opened = xarray.open_dataset(path)
    with opened as dataset:
        names = [str(name) for name, array in dataset.data_vars.items() if array.ndim >= 2]
        if variable is None and len(names) == 1:
            (variable,) = names
        if variable not in names:
            raise ValueError(
                f"{path} holds {', '.join(names) or 'no array'}: name one, as {path}:/{names[0] if names else 'NAME'}"
            )
        with _read_by_xarray(path):
            loaded = dataset[variable].load()
        array = usable(loaded, f"{path}:/{variable}")
    coords = {
        str(name): np.asarray(array.coords[name], float)
        for name in array.dims
        if name in array.coords and name in ("z", "y", "x")
    }
    return Raster(real_array(array, str(path)).copy(), coords)


@contextmanager
def _read_by_xarray(path: Path) -> Iterator[None]:
    """Raise errors of xarray's readers as one line: damaged files raise exceptions of any kind."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - of whatever kind it is
        why = str(error).split("\n")[0]
        raise ValueError(
            f"{path}: not netCDF that xarray reads here ({why}); what is HDF5 inside needs pip install netCDF4"
        ) from None


# Tags of GeoTIFF and of GDAL
_SCALE, _TIEPOINT, _MATRIX, _KEYS, _NODATA = 33550, 33922, 34264, 34735, 42113
PLACED = frozenset((_SCALE, _MATRIX))
"""Tags of which a TIFF file that says where it lies has one."""
_RASTER_TYPE, _IS_POINT = (
    1025,
    2,
)  # the key that says whether places are those of pixels' corners or middles
_GREYS = ("F", "I", "L", "I;16", "I;16B", "I;16S", "I;16BS")


def _tiff(path: Path, variable: str | None) -> Raster:
    """Read the numbers of a TIFF file, picture after picture along z, each from the bottom up."""
    try:
        from PIL import Image, ImageSequence
    except ModuleNotFoundError:
        raise ValueError(
            f"{path}: TIFF needs Pillow: pip install pillow, or give the values as FILE.npy"
        ) from None
    try:
        with Image.open(path) as image:
            tags = dict(getattr(image, "tag_v2", {}))
            modes = {each.mode for each in ImageSequence.Iterator(image)}
            if not modes <= {*_GREYS}:
                raise ValueError(
                    f"{path}: a field is one number a pixel, these are colours, or bits ({', '.join(sorted(modes))}): save "
                    "one band, in 8 to 32 bits"
                )
            pages = [np.array(each, float) for each in ImageSequence.Iterator(image)]
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path}: {error}; give the values as FILE.npy") from None
    except OSError as error:
        raise ValueError(
            f"{path}: not a TIFF file that Pillow reads, of at most 32 bits a pixel ({error})"
        ) from None
    if len({page.shape for page in pages}) > 1:
        raise ValueError(f"{path}: its pictures are not of one size")
    values = np.stack(pages)[:, ::-1].copy()
    if _NODATA in tags:
        lacking = float(str(tags[_NODATA]).strip(" \0"))
        values[values == (float(np.float32(lacking)) if "F" in modes else lacking)] = np.nan
    return Raster(values if len(values) > 1 else values[0], _places(path, tags, values.shape[1:]))


def _places(path: Path, tags: Mapping[int, Any], counts: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return the coordinates of the middles of pixels, from the bottom up; none where no tags say them."""
    if _MATRIX in tags:
        raise ValueError(
            f"{path}: its places are told by a matrix, they may be turned: resample it to rows along x (gdalwarp)"
        )
    if _SCALE not in tags or _TIEPOINT not in tags:
        return {}
    (dx, dy), (column, row, _, x, y) = tags[_SCALE][:2], tags[_TIEPOINT][:5]
    keys = np.reshape(tags.get(_KEYS, ()), (-1, 4))[1:].tolist()
    half = 0.0 if any(k[0] == _RASTER_TYPE and k[3] == _IS_POINT for k in keys) else 0.5
    rows, columns = (np.arange(count) + half for count in counts)
    return {"y": (y - dy * (rows - row))[::-1], "x": x + dx * (columns - column)}


_READERS = {".asc": _ascii_grid, ".csv": _table, ".nc": _netcdf, ".tif": _tiff, ".tiff": _tiff}
RASTERS = tuple(_READERS)
"""How the names of their files end."""
