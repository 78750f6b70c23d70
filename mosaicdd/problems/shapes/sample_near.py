"""Values of a field around the outline of a domain, where equations at nodes inside ask for them."""

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Field, LocalPart, Part, Periods, overlaps


def sample_near(
    field: Field,
    grid: Grid,
    part: Part,
    inside: np.ndarray | None,
    *,
    fill: float,
    counts: np.ndarray | None = None,
    periods: Periods = (None, None),
) -> np.ndarray:
    """Return the values at the nodes of a part that may reach beyond a domain, ``(n, rows, columns)``.

    At the nodes beside those inside they are what is given, and where that is not finite the means of
    the nodes inside around; further out, and beyond the grid, they are ``fill``.

    Parameters
    ----------
    inside
        Which nodes are inside the domain, with one more all around; None for all of the grid.
    counts
        At which others what is given counts, ``(rows, columns)``, by default at all: elsewhere they
        are the means, whatever is given there.
    periods
        Of the grid. The values of the last node are then those of the first.

    Raises
    ------
    ValueError
        If a value inside is not finite.
    """
    ring = tuple(slice(p.start - 1, p.stop + 1) for p in part)
    shape = [p.stop - p.start for p in ring]
    if field.number is not None:
        return np.full((1, shape[0] - 2, shape[1] - 2), field.number)
    if inside is None or isinstance(field.values, LocalPart):  # which has values beside the domain
        values = np.full((field.problems, shape[0] - 2, shape[1] - 2), fill)
        for there, where in overlaps(part, grid.nodes, periods):
            values[:, *where] = field.sample(grid, there)
        return values
    known = np.zeros(shape, bool)
    values = np.full((field.problems, *shape), np.nan)
    for there, where in overlaps(ring, grid.nodes, periods):
        known[where] = inside[where]
        values[:, *where] = field.sample(grid, there, known[where])
    around = [slice(1 + d, n - 1 + d) for n in shape for d in (-1, 0, 1)]
    neighbours = [(y, x) for y in around[:3] for x in around[3:]]
    near = np.logical_or.reduce([known[place] for place in neighbours])
    own = values[:, 1:-1, 1:-1]
    lacking = ~np.isfinite(own)
    if counts is not None:
        lacking |= ~counts
    lacking &= near & ~known[1:-1, 1:-1]
    y, x = np.nonzero(lacking.any(axis=0))
    places = [(y + 1 + dy, x + 1 + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    total = sum(np.where(known[place], values[:, *place], 0.0) for place in places)
    means = total / sum(known[place].astype(int) for place in places)
    own[:, y, x] = np.where(lacking[:, y, x], means, own[:, y, x])
    own[:, ~near] = fill
    return own
