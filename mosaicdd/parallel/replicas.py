"""Groups of ranks that work side by side, each on its own share of many problems."""

from mpi4py import MPI

from mosaicdd.parallel.ranks import Dims


class Replicas:
    """The ranks, split into groups of equal size: ``world = count x dims``.

    Six ranks in three groups, with five problems:

    ```
       group 0: ranks 0, 1, problems 0, 1
       group 1: ranks 2, 3, problems 2, 3
       group 2: ranks 4, 5, problem 4
    ```

    Parameters
    ----------
    world
        Communicator over all ranks.
    count
        Number of groups.
    dims
        Ranks per axis of a group, (y, x), if they are given.

    Raises
    ------
    ValueError
        If the ranks do not split into groups of equal size, or of these dims.
    """

    def __init__(self, world: MPI.Intracomm, count: int, dims: Dims | None = None):
        if world.size % count:
            raise ValueError(
                f"--replicas {count} must divide the number of ranks, {world.size} were started"
            )
        if count > 1 and dims is not None and count * dims[0] * dims[1] != world.size:
            raise ValueError(
                f"--replicas {count} with --dims {dims[1]}x{dims[0]} needs "
                f"{count * dims[0] * dims[1]} ranks, {world.size} were started"
            )
        self.world = world
        self.count = count
        self.index = world.rank // (world.size // count)
        self.comm = world if count == 1 else world.Split(self.index, world.rank)

    def share(self, items: int, index: int | None = None) -> range:
        """Return the items of a group, by default of this one; the first groups get one more."""
        index = self.index if index is None else index
        base, more = divmod(items, self.count)
        start = index * base + min(index, more)
        return range(start, start + base + (index < more))

    def any(self, here: bool) -> bool:
        """Say whether something is so on any rank of any group; all ranks ask together."""
        return bool(self.world.allreduce(here, op=MPI.LOR))
