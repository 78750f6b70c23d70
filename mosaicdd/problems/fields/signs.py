"""Which signs the values of coefficients must have."""

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part, cells_of

DIFFUSION = "a", "axx", "ayy", "azz"


def sample_signed(field: Field, grid: Grid, part: Part, *, positive: bool) -> np.ndarray:
    """Return a coefficient at the nodes of a part of a rectangle, ``(rows, columns)``.

    `ValueError` if a value is not finite, or has the wrong sign, as `require_sign`.
    """
    values = field.sample(grid, part)[0]
    if not field.per_cell(grid):
        return require_sign(values, field, grid, part, positive=positive)
    cells = cells_of(part, grid)
    require_sign(field.sample_cells(cells), field, grid, cells, positive=positive)
    return values


def require_sign(
    values: np.ndarray, field: Field, grid: Grid, part: Part, *, positive: bool
) -> np.ndarray:
    """Check the sign of a coefficient's values in a part of a grid, and return them.

    `ValueError` if one is not positive, or negative: with its place, how many there are in the array that was given,
    and what to do where nothing conducts.
    """
    bad = values <= 0 if positive else values < 0
    if not bad.any():
        return values
    first = np.argwhere(bad)[0]
    place = tuple(int(i) + p.start for i, p in zip(first, part, strict=True))
    count, size = field.count(lambda held: held <= 0 if positive else held < 0)
    what = f"{count} of the {size} values given are not, the first is" if size else "it is"
    way_out = ": leave what does not conduct out of the domain, by --domain or Domain.from_mask"
    raise ValueError(
        f"the field {field.name} must be {'positive' if positive else 'not negative'} everywhere; "
        f"{what} {values[tuple(first)]:g} at {'cell' if field.per_cell(grid) else 'node'} {place}"
        f"{way_out if field.name in DIFFUSION else ''}"
    )
