"""The exchange that tells whether MPI takes the buffers of a device."""

import pytest
import torch

from mosaicdd.parallel.halo import buffers_arrive

CPU = torch.device("cpu")


@pytest.mark.ranks(1, 2, 3, 4)
def test_buffers_of_the_processor_always_arrive(comm):
    assert buffers_arrive(comm, CPU)


@pytest.mark.ranks(2, 3)
def test_a_buffer_that_is_not_received_is_noticed(comm):
    class Deaf:
        """A communicator whose last rank receives into something else."""

        rank, size = comm.rank, comm.size

        def Sendrecv(self, sent, dest, recvbuf, source):  # noqa: N802 - MPI's name
            elsewhere = recvbuf.clone() if self.rank == self.size - 1 else recvbuf
            comm.Sendrecv(sent, dest=dest, recvbuf=elsewhere, source=source)

    assert buffers_arrive(Deaf(), CPU) == (comm.rank < comm.size - 1)
