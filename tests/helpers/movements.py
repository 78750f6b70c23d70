"""What a redistribution asks of MPI."""

from mpi4py import MPI


class CountedMovements(MPI.Intracomm):
    """A communicator that counts calls, and ranks that are sent something."""

    calls = messages = 0

    def Alltoallw(self, sent, received):  # noqa: N802 - MPI's name
        CountedMovements.calls += 1
        CountedMovements.messages += sum(map(bool, sent[1]))
        super().Alltoallw(sent, received)
