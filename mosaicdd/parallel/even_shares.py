"""Work of which some ranks have more than others, done by all of them."""

from collections.abc import Callable

import numpy as np

from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Shard
from mosaicdd.parallel.layouts.redistribution import redistribute
from mosaicdd.parallel.ranks import Ranks

_UNEVEN = 1.2  # the largest share in means from which on moving pays


def evenly(rows: np.ndarray, work: Callable[[np.ndarray], np.ndarray], ranks: Ranks) -> np.ndarray:
    """Return what work makes of this rank's rows, done by all ranks in even shares; called by all.

    Parameters
    ----------
    rows
        All that the work needs to know, float64 ``(count, width)``; a rank may have none, its width is the same.
    work
        Makes of ``(n, width)`` float64 ``(n, columns)``, of each row as if it were alone, on any rank.
    """
    counts = ranks.sum(np.eye(ranks.size)[ranks.rank] * len(rows)).astype(int)
    total = int(counts.sum())
    if ranks.size == 1 or counts.max() <= max(1, _UNEVEN * total / ranks.size):
        return work(rows)
    uneven, even = Shard(0, tuple(counts.tolist())), Shard(0)

    def moved(array: np.ndarray, source: Shard, target: Shard) -> np.ndarray:
        shape, mesh = (total, array.shape[1]), (ranks.size,)
        return redistribute(
            array, Layout(shape, mesh, (source,)), Layout(shape, mesh, (target,)), ranks
        )

    return moved(work(moved(rows, uneven, even)), even, uneven)
