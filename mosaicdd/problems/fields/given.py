"""Conversion of users' numbers and arrays of any library to numpy.

What would lose something on the way is refused with the way out: gradients, zeros that are not stored,
labels. A masked value is NaN, so that the rules for values that are not finite hold for it. Rows lie along
y, from the bottom to the top: of arrays that name their axes and have coordinates, as xarray's, those say so.
"""

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from mosaicdd.axes import coordinates, letters
from mosaicdd.grid.grid import Grid

_ROWS = 64  # of a mask that are looked at at a time
_PICTURE = 8  # pixels along each side, from which on a box of three voxels looks like a picture
_FEW = 16  # levels of 255, up to which what is no bytes may be a medium
_UNEVEN = 1e-3  # of a step: coordinates in float32, far from the origin, are rounded by as much


def real_array(values: Any, what: str) -> np.ndarray:
    """Return numbers, an array or a tensor as a contiguous array of float64.

    `ValueError` if they are complex. `TypeError` if they are no numbers, or of a kind that `usable` refuses.
    """
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.carray:
        return values  # as most are, at every step
    array = _of_numpy(usable(values, what))
    if np.iscomplexobj(array):
        raise ValueError(f"{what} must be real, got complex values")
    try:
        if array.dtype.kind in "mM":
            raise TypeError
        if np.ma.isMaskedArray(array):
            array = np.ma.filled(array.astype(float), np.nan)
        array = np.asarray(array, float)
    except (TypeError, ValueError):
        kind = f"{type(values).__name__} of {array.dtype}" if array.ndim else type(values).__name__
        raise TypeError(f"{what} must be numbers, got {kind}") from None
    # torch takes no negative strides
    return array if array.flags.carray else np.require(array, requirements=("C", "W"))


def as_mask(values: Any, what: str) -> np.ndarray:
    """Return truth values, or ones and zeros, as an array of booleans; see `usable`.

    `ValueError` if other numbers are in it, or some are masked. `TypeError` if it is none.
    """
    array = _of_numpy(usable(values, what))
    if np.ma.is_masked(array):
        raise ValueError(
            f"{what} is masked at {np.count_nonzero(array.mask)} of {array.size} places: give its filled(False), or "
            "filled(True)"
        )
    array = np.asarray(array)
    if array.dtype == bool:
        return array
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{what} must be true or false, got {array.dtype}")
    mask = np.empty(array.shape, bool)
    for rows in range(0, len(mask) if mask.ndim else 0, _ROWS):
        part = np.asarray(array[rows : rows + _ROWS])
        if not ((part == 0) | (part == 1)).all():
            raise ValueError(
                f"{what} is true or false, got values from {np.fmin.reduce(array, axis=None):g} to "
                f"{np.fmax.reduce(array, axis=None):g}: give mask=values > threshold, or np.isfinite(values)"
                f"{of_colours(array)}"
            )
        mask[rows : rows + _ROWS] = part == 1
    return mask


def _of_numpy(values: Any) -> Any:
    """Return usable values as an array of numpy's, possibly masked; files are read whole."""
    if hasattr(values, "detach"):
        values = values.cpu()
        # numpy has no bfloat16; float32 holds all of it
        return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    read_later = hasattr(values, "shape") and not hasattr(values, "__array__")
    return np.asanyarray(values[...] if read_later else values)


def of_colours(values: Any) -> str:
    """Return a hint for a picture in colours, ``(rows, columns, 3 or 4)``, else nothing."""
    shape = shape_of(values)
    if len(shape) != 3 or shape[-1] not in (3, 4) or min(shape[:2]) < _PICTURE:
        return ""
    kind, coloured = str(getattr(values, "dtype", "")), False
    if kind == "uint8":
        coloured = bool(values.max() > 1)
    elif kind in ("float32", "float64"):  # as matplotlib and scikit-image read pictures
        levels = 255.0 * np.asarray(values)
        whole = np.rint(levels)
        within = whole.min() >= 0 and whole.max() <= 255 and not np.isin(whole, (0, 255)).all()
        coloured = bool(within and (abs(levels - whole) < 1e-3).all())
        if kind == "float64":  # a medium may have a few such numbers
            coloured = coloured and len(np.unique(whole)) > _FEW
    if not coloured:
        return ""
    return (
        f"; the shape {shape} looks like a picture in colours: give one number a pixel, as "
        f"picture[..., :3].mean(axis=-1), or a box of voxels with its {shape[-1]} along another axis"
    )


def is_read_later(values: Any) -> bool:
    """Say whether a field holds the given object itself, or an immutable one, and no copy."""
    held = callable(values) or (type(values) is np.ndarray and values.ndim > 0)
    return held or is_immutable(values)


def is_immutable(values: Any) -> bool:
    """Say whether values are a number or a text of Python."""
    return isinstance(values, (float, int, str))


def is_number(values: Any) -> bool:
    """Say whether values are one real number, possibly an array without axes."""
    if isinstance(values, numbers.Real | np.generic):  # of numpy's scalars texts are none
        return isinstance(values, numbers.Real)
    dtype = str(getattr(values, "dtype", ""))
    return getattr(values, "shape", None) == () and "complex" not in dtype


def is_one_each(values: Any) -> bool:
    """Say whether values are a list of functions or texts, one for each problem."""
    listed = isinstance(values, (list, tuple))
    return listed and any(isinstance(v, str) or callable(v) for v in values)


def shape_of(values: Any) -> tuple[int, ...]:
    """Return the shape of an array or of lists of numbers, else ``()``."""
    listed = isinstance(values, (list, tuple)) and not is_one_each(values)
    return np.shape(values) if listed else tuple(getattr(values, "shape", ()))


def usable(values: Any, what: str) -> Any:
    """Return values that can be sliced by rows and columns; refuse other kinds.

    A DTensor is gathered: all ranks of its mesh together.

    `TypeError` if it is a tensor that requires gradients, sparse, a table, a dataset, or rows of different lengths; or its axes are not named y and x.
    `ValueError` if its coordinates are not evenly spaced, or this process is not in the mesh of a DTensor.
    """
    if type(values) in (np.ndarray, float, int, str):
        return values
    for mark, convert in _KINDS.items():
        if getattr(values, mark, False) is not False:
            values = convert(values, what)
    if isinstance(values, (list, tuple)):
        try:
            np.shape(values)
        except ValueError:
            raise TypeError(
                f"{what} has rows of different lengths: give as many values in each"
            ) from None
    return values


def _whole(values: Any, what: str) -> Any:
    """Gather a DTensor; all ranks of its mesh together."""
    if values.device_mesh.get_coordinate() is None:
        raise ValueError(
            f"{what} is a DTensor over the processes {values.device_mesh.mesh.tolist()}, and this is none of "
            "them: lay it over all that solve"
        )
    return values.full_tensor()


def _dense(values: Any, what: str) -> Any:
    if "sparse" in str(values.layout):
        raise TypeError(f"{what} is a sparse tensor: give values.to_dense()")
    return values


def _ordered(values: Any, what: str) -> Any:
    """Transpose and flip an array of xarray's to axes (y, x) with growing coordinates."""
    if all(name == f"dim_{i}" for i, name in enumerate(values.dims)):
        return values  # without names of its own
    named = [name for name in letters(3) if name in values.dims]
    others = [name for name in values.dims if name not in named]
    if len(named) < min(2, values.ndim) or len(others) > 1:
        raise TypeError(
            f"{what} has the axes ({', '.join(map(str, values.dims))}), which must be named y and x: rename "
            "them, or give values.to_numpy(), whose rows go from the bottom to the top"
        )
    values = values.transpose(*others, *named)
    falling = [name for name, (_, step) in axes_of(values, what).items() if step < 0]
    return values.isel(dict.fromkeys(falling, slice(None, None, -1)))


def _refused(text: str) -> Callable[[Any, str], NoReturn]:
    """Return a converter that refuses values, with the way out."""

    def refuse(values: Any, what: str) -> NoReturn:
        names = ", ".join(map(str, getattr(values, "data_vars", ())))
        raise TypeError(f"{what} {text.format(kind=type(values).__name__, names=names)}")

    return refuse


_KINDS: dict[str, Callable[[Any, str], Any]] = {
    "requires_grad": _refused(
        "requires gradients, and a solve does not propagate them: give values.detach(), or see differentiable"
    ),
    "full_tensor": _whole,
    "layout": _dense,
    "tocsr": _refused("is a sparse matrix: give values.toarray()"),
    "data_vars": _refused("is a dataset of several arrays: give one of them, {names}"),
    "iloc": _refused(
        "is a table ({kind}): give values.to_numpy(), whose rows go from the bottom to the top"
    ),
    "isel": _ordered,
}
"""Attributes by which arrays of other libraries are known, and what converts, or refuses, them."""

Axis = tuple[np.ndarray, float]
"""Coordinates along an axis, at least two, and their step."""


def axes_of(values: Any, what: str) -> dict[str, Axis]:
    """Return the axes with coordinates by their letters, in the order of arrays.

    `ValueError` if coordinates are not evenly spaced.
    """
    coords, axes = getattr(values, "coords", {}), {}
    for name in filter(coords.__contains__, letters(3)):
        along = np.asarray(coords[name])
        if along.size < 2:
            continue
        steps, rounding = np.diff(along.astype(float)), np.spacing(abs(along).max())
        step = float(steps.mean())
        if np.ptp(steps) > _UNEVEN * abs(step) + 2 * float(rounding) or step == 0.0:
            raise ValueError(
                f"{what} has coordinates along {name} that are not evenly spaced, with steps from "
                f"{steps.min():g} to {steps.max():g}: resample it to the nodes of a grid"
            )
        axes[name] = along, step
    return axes


def spacing_of(values: Any, axes: int, what: str) -> tuple[float, ...] | None:
    """Return the spacing of coordinates along each axis; None without coordinates.

    `ValueError` if they are not evenly spaced, or some axes have none.
    """
    steps = {name: abs(step) for name, (_, step) in axes_of(values, what).items()}
    lacking = [name for name in letters(axes) if name not in steps]
    if steps and lacking:
        raise ValueError(
            f"{what} has no two coordinates along {' and '.join(lacking)}, and along the other axes it has: give the "
            "spacing"
        )
    return tuple(steps.values()) or None


def require_place(values: Any, grid: Grid, what: str) -> None:
    """Raise `ValueError` where values have other coordinates than a grid's nodes or cells."""
    require_spacing(values, grid, what)
    for name, (places, _) in axes_of(values, what).items():
        axis = letters(len(grid.shape)).index(name)
        step, count, begin = grid.steps[axis], grid.shape[axis], grid.ends[axis][0]
        if len(places) not in (count, count + 1):
            continue  # which is refused as such
        first = float(places.min()) - (step / 2 if len(places) == count else 0.0)
        rounding = np.spacing(abs(places)).max() if places.dtype.kind == "f" else 0.0
        if abs(first - begin) > 2 * _UNEVEN * step + 4 * float(rounding):
            raise ValueError(
                f"{what} begins at {name} = {first:.10g} by its coordinates, the domain at {begin:.10g}: cut it to the "
                "same place, or give its values alone"
            )


def require_spacing(values: Any, grid: Grid, what: str) -> None:
    """Raise `ValueError` where values have coordinates with another spacing than a grid."""
    steps = {name: step for name, (_, step) in axes_of(values, what).items()}
    for name, spacing in zip(letters(len(grid.shape)), grid.steps, strict=True):
        step = steps.get(name, spacing)
        if math.isclose(step, spacing, rel_tol=1e-3):
            continue
        sides = [f"{along:g}" for along in reversed(steps.values())]
        way_out = f"give spacing={step:g}"
        if len({*sides}) > 1:
            way_out = f"give a spacing of {'x'.join(sides)} along {coordinates(len(sides))}"
        raise ValueError(
            f"{what} has coordinates {step:g} apart along {name}, the grid has a spacing of {spacing:g}: {way_out}"
        )


def one_corner(
    fields: Mapping[str, Any], cells: tuple[int, ...], origin: Sequence[float] | None
) -> tuple[float, ...] | None:
    """Return the origin of a domain by the coordinates of its fields, x first.

    `ValueError` unless it is the same by all, and the origin where one is given.
    """
    names = letters(len(cells))
    known_origin = () if origin is None else origin
    first = {name: ("its origin", x) for name, x in zip(names[::-1], known_origin, strict=False)}
    for name, field in fields.items():
        values = getattr(field, "beside", field)  # of wells and foils
        shape = shape_of(values)[-len(cells) :]
        if shape not in (cells, tuple(count + 1 for count in cells)):
            continue  # which is refused as such
        for letter, (places, step) in axes_of(values, f"the field {name}").items():
            # Of values per cell the middle of the first cell has the first coordinate.
            corner = float(places[0]) - (step / 2 if shape == cells else 0.0)
            before, earlier = first.setdefault(letter, (f"the raster of {name}", corner))
            if not math.isclose(corner, earlier, rel_tol=1e-12, abs_tol=1e-3 * step):
                by, way_out = "that", "cut them to the same rectangle"
                if origin is not None:
                    by, way_out = "the raster", "leave the origin out"
                raise ValueError(
                    f"the domain begins at {letter} = {earlier:.10g} by {before}, at {corner:.10g} by {by} of {name}: "
                    f"{way_out}"
                )
    return tuple(first.get(letter, ("", 0.0))[1] for letter in names[::-1]) if first else None


def same_values(first: Any, second: Any) -> bool:
    """Say whether two given values are equal: arrays by content, functions by identity."""
    both = first, second
    if first is second:
        return True
    if all(isinstance(values, Mapping) for values in both):
        keys = [*first]
        alike = first.keys() == second.keys()
        return alike and same_values([first[k] for k in keys], [second[k] for k in keys])
    if all(isinstance(values, (list, tuple)) for values in both):
        return len(first) == len(second) and all(map(same_values, first, second))
    held = [hasattr(values, "detach") or isinstance(values, np.ndarray) for values in both]
    if any(held):
        arrays: list[Any] = [real_array(values, "values") for values in both if all(held)]
        return all(held) and np.array_equal(arrays[0], arrays[1], equal_nan=True)
    return bool(first == second)
