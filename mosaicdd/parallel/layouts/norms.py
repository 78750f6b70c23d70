"""Sums over an array in a layout, which refuse one where a value would count twice or not at all."""

import numpy as np

from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.ranks import Ranks


def require_owned_once(layout: Layout) -> None:
    """Check that every value of an array belongs to exactly one rank.

    Raises
    ------
    ValueError
        If it does not, with the placements that are the reason.
    """
    if not layout.is_partition:
        raise ValueError(
            f"a sum over {layout} would not count every value once: redistribute to a layout "
            "without Replicate and PartialSum first"
        )


def norm(array: np.ndarray, layout: Layout, ranks: Ranks) -> float:
    """Return the Euclidean norm of the whole array; copies in halos do not count.

    Raises
    ------
    ValueError
        If a value is not owned exactly once.
    """
    require_owned_once(layout)
    squares = sum(np.vdot(part, part).real for part in owned_parts(array, layout, ranks.rank))
    return float(np.sqrt(ranks.sum(np.array(squares, float))))


def owned_parts(array: np.ndarray, layout: Layout, rank: int) -> list[np.ndarray]:
    """List views of the parts of a rank's array that it owns."""
    return [array[box.local] for box in layout.owned(rank)]
