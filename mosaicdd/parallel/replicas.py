"""Groups of ranks that work side by side, each on its own share of many problems."""

import math

from mosaicdd.lattice.axes import times
from mosaicdd.parallel.partition import Dims, share
from mosaicdd.parallel.ranks import Ranks


class Replicas:
    """The ranks, split into groups of equal size: ``world = count x dims``.

    Six ranks in three groups, with five problems:

    ```
       group 0: ranks 0, 1, problems 0, 1
       group 1: ranks 2, 3, problems 2, 3
       group 2: ranks 4, 5, problem 4
    ```

    `ValueError` if the ranks do not split into groups of equal size, or of these dims.

    Parameters
    ----------
    world
        All ranks; what is made here closes with them.
    count
        Number of groups.
    dims
        Ranks per axis of a group, if they are given.

    Attributes
    ----------
    ranks
        Those of this rank's group.
    index
        Its number.
    """

    def __init__(self, world: Ranks, count: int, dims: Dims | None = None):
        if count < 1 or world.size % count:
            raise ValueError(
                f"replicas={count} must divide the number of ranks, there are {world.size}"
            )
        needed = count * math.prod(dims or ())
        if count > 1 and dims is not None and needed != world.size:
            raise ValueError(
                f"replicas={count} with dims {times(dims)} need {needed} ranks, there are {world.size}"
            )
        self.world = world
        self.count = count
        self.index = world.rank // (world.size // count)
        self.ranks = Ranks.of(world if count == 1 else world.split(self.index), dims)

    def share(self, items: int, index: int | None = None) -> range:
        """Return the items of a group, by default of this one; the first groups get one more."""
        return range(*share(items, self.count, self.index if index is None else index))
