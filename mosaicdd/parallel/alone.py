"""One rank without an MPI library: serial is the one-rank case of the same code."""

import numpy as np


class Alone:
    """The communicator of a single rank: what `Ranks` asks of one.

    Messages between ranks are not among it: a rank that is alone has nobody to send to.
    """

    rank, size = 0, 1

    def Allreduce(self, values: np.ndarray, total: np.ndarray) -> None:  # noqa: N802 - MPI's name
        """Fill ``total`` with the sum over all ranks."""
        total[...] = values

    def Barrier(self) -> None:  # noqa: N802 - MPI's name
        """Wait for nobody."""

    def bcast(self, value):
        """Return what rank 0 has."""
        return value

    def gather(self, value) -> list:
        """Return what all ranks have."""
        return [value]

    allgather = gather
