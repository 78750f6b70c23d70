"""Fields as small pictures of 256 colours, reduced while they are read: no field need fit into memory."""

import io
from collections.abc import Iterable

import numpy as np
from matplotlib import colormaps
from PIL import Image

_LEVELS = 255  # colours; the last entry of a palette stands for where there is no value


def reduced(portions: Iterable[np.ndarray], columns: int, step: int) -> np.ndarray:
    """Return means over squares of nodes, NaN where there is no value.

    Parameters
    ----------
    portions
        Rows of a field from the first on, ``(k step, columns)``; the last may have fewer.
    step
        Nodes of a square along each axis; those at the end may have fewer.
    """
    means = []
    for portion in portions:
        rows = -(-len(portion) // step)
        padded = np.full((rows * step, -(-columns // step) * step), np.nan)
        padded[: len(portion), :columns] = portion
        squares = padded.reshape(rows, step, -1, step)
        known = np.isfinite(squares)
        sums = np.where(known, squares, 0.0).sum((1, 3))
        counts = known.sum((1, 3))
        means.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    return np.concatenate(means)


def limits_of(values: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest value, ``(0, 0)`` if there is none."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def png(values: np.ndarray, limits: tuple[float, float], colours: str) -> bytes:
    """Return a picture, the first row at the bottom; what is NaN is transparent.

    Parameters
    ----------
    limits
        Values of the first and the last colour.
    colours
        Name of matplotlib's map.
    """
    low, high = limits
    share = (values - low) / (high - low or 1.0)
    index = np.full(values.shape, _LEVELS, np.uint8)
    known = np.isfinite(share)
    index[known] = np.clip(share[known] * _LEVELS, 0, _LEVELS - 1)
    image = Image.fromarray(np.ascontiguousarray(index[::-1]))
    shades = colormaps[colours](np.linspace(0, 1, _LEVELS), bytes=True)[:, :3]
    image.putpalette(shades.tobytes() + bytes(3))
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True, transparency=_LEVELS)
    return stream.getvalue()


def gradient(colours: str, stops: int = 9) -> str:
    """Return the same colours for a bar, as CSS says them."""
    shades = colormaps[colours](np.linspace(0, 1, stops), bytes=True)[:, :3]
    return ", ".join(f"rgb({red} {green} {blue})" for red, green, blue in shades)
