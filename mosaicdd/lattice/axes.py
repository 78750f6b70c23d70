"""Pairs: one of each per axis, (y, x), made in loops over the axes."""

import itertools
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")

Slices = tuple[slice, slice]
"""A part of an array with the axes (y, x)."""


def pair(items: Iterable[Item]) -> tuple[Item, Item]:
    """Return what comes for y and for x as a pair.

    Raises
    ------
    ValueError
        If there are not two items.
    """
    y, x = items
    return y, x


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
