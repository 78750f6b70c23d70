"""The ranks of a job: the one object that knows about them.

Everything else receives it and is written as if serial; with one rank it is the same code.
"""

import numpy as np
from mpi4py import MPI

from mosaicdd.parallel.partition import Dims, fitting_dims, require_fitting, share


def choose_dims(size: int, counts: Dims) -> Dims:
    """Choose the dims with the shortest block edges among those that fit (`fitting_dims`)."""
    return fitting_dims(size, counts)[0]


class Ranks:
    """The ranks of a communicator as a Cartesian grid, not periodic, rows first.

    On four ranks with dims (2, 2) and counts (3, 5), `partition` gives

    ```
       rank 2: (2..3, 0..3)   rank 3: (2..3, 3..5)
       rank 0: (0..2, 0..3)   rank 1: (0..2, 3..5)
    ```

    Parameters
    ----------
    comm
        Communicator over all ranks.
    dims
        Ranks per axis, (y, x).

    Raises
    ------
    ValueError
        If the dims do not multiply to the number of ranks.
    """

    def __init__(self, comm: MPI.Intracomm, dims: Dims):
        if min(dims) < 1 or dims[0] * dims[1] != comm.size:
            raise ValueError(
                f"dims {dims[1]}x{dims[0]} need {dims[0] * dims[1]} ranks, {comm.size} were started"
            )
        self.comm = comm.Create_cart(dims, periods=(False, False), reorder=False)
        self.dims = tuple(dims)
        self.size = self.comm.size
        self.rank = self.comm.rank
        self.coords = tuple(self.comm.Get_coords(self.rank))
        self.is_root = self.rank == 0

    def partition(self, counts: Dims, rank: int | None = None) -> tuple[Dims, Dims]:
        """Return start and stop per axis of a rank's share, by default of this one.

        The first ranks of an axis get one item more where it does not divide.

        Raises
        ------
        ValueError
            If an axis has fewer items than ranks.
        """
        require_fitting(self.dims, counts)
        coords = self.coords if rank is None else self.comm.Get_coords(rank)
        shares = map(share, counts, self.dims, coords)
        return tuple(zip(*shares, strict=True))

    def neighbour(self, direction: Dims) -> int | None:
        """Return the rank in a direction ``(dy, dx)``, or None beyond the edge."""
        coords = [c + d for c, d in zip(self.coords, direction, strict=True)]
        if any(not 0 <= c < n for c, n in zip(coords, self.dims, strict=True)):
            return None
        return self.comm.Get_cart_rank(coords)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Add up a small float64 array over all ranks; NaN anywhere is NaN everywhere."""
        total = np.empty_like(values)
        self.comm.Allreduce(values, total, op=MPI.SUM)
        return total
