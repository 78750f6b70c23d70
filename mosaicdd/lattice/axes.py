"""Pairs: one of each per axis, (y, x), made in loops over the axes."""

from collections.abc import Iterable
from typing import TypeVar

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
