"""By which powers of two the data of a linear problem are multiplied, see `safe_norms`; by their largest numbers."""

from collections.abc import Sequence

import numpy as np

from mosaicdd.axes import Slices, in_rows
from mosaicdd.discretisation.system import GridSource
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.safe_norms import safe_power
from mosaicdd.problems.fields.evaluated import STRIP
from mosaicdd.problems.sides.boundary import Boundary


def powers_of(
    ranks: Ranks,
    boundaries: Sequence[Boundary],
    source: GridSource | None,
    owned: Slices,
    scale: float,
    dtype: str,
) -> np.ndarray:
    """Return what multiplies each problem's data, ``(n,)``, in numbers of a type; all ranks together.

    ``owned``: the nodes whose source this rank looks at; ``scale``: of the equations' numbers, times the squared spacing.
    """
    largest = [max(abs(edge).max() for edge in each.edges.values()) for each in boundaries]
    if source is not None:
        sources = source.grid.spacing**2 / scale * _largest(ranks, source, owned)
        largest = np.maximum(largest, sources).tolist()
    return np.array([safe_power(size, dtype) for size in largest])


def _largest(ranks: Ranks, source: GridSource, owned: Slices) -> np.ndarray:
    """Return the largest absolute value of each problem's source, ``(n or 1,)``."""
    field, grid = source.problem.source, source.grid
    if field is None or field.number is not None:
        return np.array([0.0 if field is None else abs(field.number or 0.0)])

    def here() -> np.ndarray:
        parts = [np.abs(field.sample(grid, strip)) for strip in in_rows(owned, STRIP)]
        each = [part.reshape(len(part), -1).max(axis=1, initial=0.0) for part in parts]
        return np.max(each, axis=0)

    return np.max(ranks.allgather(ranks.run_on_all(here)), axis=0)
