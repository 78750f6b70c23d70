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
    periods: Periods = (None, None),
) -> np.ndarray:
    """Return the values at the nodes of a part that may reach beyond a domain, ``(n, rows, columns)``.

    At the nodes beside the domain they are the means of those at the nodes inside around them, however
    the field goes on there; further out, and beyond the grid, they are ``fill``.

    Parameters
    ----------
    inside
        Which nodes are inside the domain, with one more all around; None for all of the grid.
    periods
        Of the grid. The values of the last node are then those of the first.
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
    counts = np.zeros(shape, bool)
    values = np.full((field.problems, *shape), fill)
    for there, where in overlaps(ring, grid.nodes, periods):
        counts[where] = inside[where]
        given = field.sample(grid, there, counts[where])
        values[:, *where] = np.where(counts[where], given, fill)
    around = [slice(1 + d, n - 1 + d) for n in shape for d in (-1, 0, 1)]
    neighbours = [(y, x) for y in around[:3] for x in around[3:]]
    near = np.logical_or.reduce([counts[place] for place in neighbours])
    y, x = np.nonzero(near & ~counts[1:-1, 1:-1])
    places = [(y + 1 + dy, x + 1 + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    total = sum(values[:, *place] * counts[place] for place in places)
    values = values[:, 1:-1, 1:-1]
    values[:, y, x] = total / sum(counts[place].astype(int) for place in places)
    return values
