"""Files of points: rows ``x y`` in domain coordinates, as text or as an array of numpy's."""

import warnings
from os import PathLike
from pathlib import Path

import numpy as np


def read_points(path: str | PathLike) -> np.ndarray:
    """Read points, ``(q, 2)``; lines of a text that begin with # are comments.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If it does not hold rows of two numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file of points is missing")
    try:
        if path.suffix == ".npy":
            points = np.load(path, allow_pickle=False)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is nothing in it: said below
                points = np.loadtxt(path, ndmin=2)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not rows of two numbers, 'x y' ({error})") from error
    if points.ndim != 2 or points.shape[1] != 2 or points.dtype.kind not in "fiu":
        if not points.size:
            raise ValueError(f"{path} holds no points; rows 'x y' are needed")
        raise ValueError(
            f"{path}: rows of two numbers, 'x y', are needed, got {points.dtype} of shape "
            f"{points.shape}"
        )
    return points.astype(float)
