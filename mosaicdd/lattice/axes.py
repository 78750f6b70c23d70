"""One of each per axis, in the order of the axes of arrays, (y, x) in the plane; made in loops over the axes."""

import itertools

import numpy as np

Slices = tuple[slice, ...]
"""A part of an array: a slice per axis."""


def strips(shape: tuple[int, int], most: int) -> list[tuple[slice, list[slice]]]:
    """Cut rows and columns into pieces of at most so many: whole rows, or parts of one row.

    Returns
    -------
    list
        Strips of rows from the bottom, and for each the columns of its pieces.
    """
    rows, columns = shape
    return [(down, even(columns, most)) for down in even(rows, max(1, most // columns))]


def even(count: int, most: int) -> list[slice]:
    """Cut a range into nearly even parts of at most so many."""
    ends = np.linspace(0, count, -(-count // most) + 1).astype(int).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(ends)]
