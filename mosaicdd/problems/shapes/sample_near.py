"""Values of a field around the outline of a domain, where equations at nodes inside ask for them."""

import itertools
from typing import Any

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Field, LocalPart, Part, Periods, overlaps
from mosaicdd.problems.shapes.apertures import Cover
from mosaicdd.problems.shapes.in_volumes import means_in_volumes


def sample_near(
    field: Field,
    grid: Grid,
    part: Part,
    inside: np.ndarray | None,
    *,
    fill: float,
    counts: np.ndarray | None = None,
    periods: Periods | None = None,
    cover: Cover | None = None,
) -> np.ndarray:
    """Return the values at the nodes of a part that may reach beyond a domain, ``(n, rows, columns)``.

    At the nodes beside those inside they are what is given, and where that is not finite the means of
    the nodes inside around; further out, and beyond the grid, they are ``fill``. Of values per cell they are the means
    over volumes, as `means_in_volumes`.

    `ValueError` if a value inside is not finite.

    Parameters
    ----------
    inside
        Which nodes are inside the domain, with one more all around; None for all of the grid.
    counts
        At which others what is given counts, ``(rows, columns)``, by default at all: elsewhere they
        are the means, whatever is given there.
    periods
        Of the grid, by default none. The values of the last node are those of the first where there is one.
    cover
        What the domain has of the cells around the nodes; of values per cell, but on a rectangle it must be known.
    """
    ring = tuple(slice(p.start - 1, p.stop + 1) for p in part)
    shape, own_shape = ([p.stop - p.start for p in place] for place in (ring, part))
    periods = periods or (None,) * len(part)
    if cover is not None and field.per_cell(grid):
        return means_in_volumes(field, grid, part, cover, fill=fill, periods=periods)
    if field.number is not None:
        return np.full((1, *own_shape), field.number)
    if inside is None or isinstance(field.values, LocalPart):  # which has values beside the domain
        if all(p.start >= 0 and p.stop <= n for p, n in zip(part, grid.nodes, strict=True)):
            return field.sample(grid, part).copy()
        values = np.full((field.problems, *own_shape), fill)
        for there, where in overlaps(part, grid.nodes, periods):
            values[:, *where] = field.sample(grid, there)
        return values
    known = np.zeros(shape, bool)
    values = np.full((field.problems, *shape), np.nan)
    for there, where in overlaps(ring, grid.nodes, periods):
        known[where] = inside[where]
        values[:, *where] = field.sample(grid, there, known[where])
    steps = list(itertools.product((-1, 0, 1), repeat=len(part)))
    neighbours = [
        tuple(slice(1 + d, n - 1 + d) for n, d in zip(shape, step, strict=True)) for step in steps
    ]
    near = np.logical_or.reduce([known[place] for place in neighbours])
    inner = (slice(1, -1),) * len(part)
    own = values[:, *inner]
    lacking = ~np.isfinite(own)
    if counts is not None:
        lacking |= ~counts
    lacking &= near & ~known[inner]
    nodes = np.argwhere(lacking.any(axis=0))
    places: list[Any] = [tuple((nodes + 1 + step).T) for step in steps]
    here: Any = (slice(None), *nodes.T)
    total = sum(np.where(known[place], values[:, *place], 0.0) for place in places)
    means = total / sum(known[place].astype(int) for place in places)
    own[here] = np.where(lacking[here], means, own[here])
    own[:, ~near] = fill
    return own
