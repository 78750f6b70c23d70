"""Problems for the command line to solve."""

import h5py
import pytest

from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage.inputs import write_boundaries


@pytest.fixture
def write_edges(comm):
    """Return a function that writes the edges of a field to a boundary file, once for all ranks."""

    def write(path, field):
        if comm.rank == 0:
            with h5py.File(path, "w") as file:
                write_boundaries(file, [Boundary.of_field(field)])
        comm.Barrier()
        return path

    return write
