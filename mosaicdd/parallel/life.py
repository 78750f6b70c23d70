"""How long a communicator lives, and what stands for one where there is a single rank."""

import weakref
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI


class Closable(Protocol):
    """What is freed when the ranks are."""

    def close(self) -> None:
        """Free it; a second time nothing is done."""
        ...


class Life:
    """A communicator and what was made through it, until it is closed."""

    def __init__(self, comm: "MPI.Comm | Alone", *, owned: bool):
        self._comm: MPI.Comm | Alone | None = comm
        self._owned = owned
        self.made: weakref.WeakKeyDictionary[Closable, None] = (
            weakref.WeakKeyDictionary()  # in order: communicators are freed together
        )
        self.parts: list[Life] = []
        self.machine: Life | None = None  # one of the parts

    @property
    def comm(self) -> "MPI.Comm | Alone":
        """The communicator; `RuntimeError` if it has been closed."""
        if self._comm is None:
            raise RuntimeError("these ranks have been closed; make new ones by Ranks.of")
        return self._comm

    def close(self) -> None:
        """Free what was made, in order, and the communicator if it is owned; again, do nothing."""
        for made in list(self.made):
            made.close()
        for part in self.parts:
            part.close()
        if self._owned and self._comm is not None and not isinstance(self._comm, Alone):
            self._comm.Free()
        self._comm = None


class Alone:
    """The communicator of a single rank: what `Ranks` asks of one, without an MPI library."""

    rank, size = 0, 1

    def Allreduce(self, values: np.ndarray, total: np.ndarray) -> None:  # noqa: N802 - MPI's name
        """Fill ``total`` with the sum over all ranks."""
        total[...] = values

    def Barrier(self) -> None:  # noqa: N802 - MPI's name
        """Wait for nobody."""

    def bcast(self, value: Any) -> Any:
        """Return what rank 0 has."""
        return value

    def gather(self, value: Any) -> list:
        """Return what all ranks have."""
        return [value]

    allgather = gather
