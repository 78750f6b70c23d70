"""The halo exchange: neighbouring ranks add up what they computed at the nodes they share.

Each rank sends only its own contributions, packed into one message per neighbour, and adds what
it receives; a node that two ranks share then has the same value on both, to the last bit. All
messages are persistent requests, planned once. Between `start` and `finish` they travel, and the
rank may compute what they do not touch. Along a periodic axis a rank may be its own neighbour: what it
sends itself stays in its buffer.

Tries out whether MPI takes the buffers of a device, in processes of their own.

They run ``python -m mosaicdd.parallel.halo DEVICE``.
"""

import itertools
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mosaicdd.parallel.launcher import communicator
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.tensors import Tensors

if TYPE_CHECKING:
    from mpi4py import MPI


_LENGTHS = (1, 1_000, 1_000_000)  # numbers; MPI sends short and long messages in different ways


def buffers_arrive(comm: "MPI.Intracomm", device: torch.device) -> bool:
    """Send a device's buffers round the ranks, and say whether this rank got what was sent to it.

    A single rank sends to itself. An MPI library that cannot takes a device pointer for one of the
    host's and kills the process: only processes whose death does no harm call this.
    """
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    arrived = True
    for length in _LENGTHS:
        sent = torch.full((length,), float(comm.rank + 1), dtype=torch.float64, device=device)
        received = torch.zeros_like(sent)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        comm.Sendrecv(sent, dest=after, recvbuf=received, source=before)
        arrived &= bool((received == before + 1).all())
    return arrived


_PATIENCE = 60  # seconds to import, and to end or hang
# Set by launchers for their own ranks: a new MPI job must not take itself for part of an old one.
_OF_LAUNCHERS = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "MPI_", "SLURM_")


def probe_device_buffers() -> str:
    """Return ``"works"``, ``"fails"`` or ``"no GPU"``."""
    return probe("cuda") if torch.cuda.is_available() else "no GPU"


def probe(device: str) -> str:
    """Return whether two ranks can exchange buffers on a device: ``"works"`` or ``"fails"``.

    Without an ``mpiexec`` it is one rank, which sends to itself.
    """
    command = [sys.executable, "-m", __spec__.name, device]
    beside = Path(sys.executable).parent
    mpiexec = shutil.which("mpiexec", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    return verdict(command if mpiexec is None else [mpiexec, "-n", "2", *command])


def verdict(command: list[str]) -> str:
    """Return how a command ended that succeeds where device buffers work."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)
    }
    try:
        ended = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "fails"
    return "fails" if ended.returncode else "works"


def main() -> None:
    """Exchange buffers on the device that is named; the exit code says whether they arrived."""
    from mosaicdd.parallel.halo import buffers_arrive
    from mosaicdd.parallel.machine import device_of_rank

    comm = communicator()
    if comm is None:
        sys.exit(1)  # without an MPI library nothing arrives
    with Ranks.of(comm) as ranks:
        device = device_of_rank(ranks, sys.argv[1])
    sys.exit(0 if buffers_arrive(comm, device) else 1)


if __name__ == "__main__":
    main()


# On their way when an exchange was given up, with what MPI writes into.
_GIVEN_UP: "list[tuple[MPI.Prequest, list[_Message]]]" = []
Direction = tuple[int, ...]


def directions(axes: int) -> list[Direction]:
    """List the directions to all neighbours; the opposite of each stands as far from the end."""
    return [way for way in itertools.product((-1, 0, 1), repeat=axes) if any(way)]


Part = tuple[int, tuple[slice, ...]]
"""Which of the arrays, and which part of its last axes."""


class HaloExchange:
    """A planned exchange for arrays of fixed shapes.

    Parameters
    ----------
    arrays
        Examples of the arrays that will be exchanged; only their shapes and types matter.
    sent, received
        ``sent(direction)``: the parts of the arrays to send to the neighbour in a direction, and
        those to which it contributes. The parts of two neighbours must match in shape and order.
    dtype
        Of the values on their way; by default that of the arrays.
    buffers
        ``"host"``: messages of a GPU are staged through pinned memory of the host; ``"cuda"``: MPI is
        handed the memory of the GPU, which not every MPI library survives.
    periodic
        Along which axes the last ranks are neighbours of the first.
    """

    def __init__(
        self,
        ranks: Ranks,
        arrays: Sequence[torch.Tensor],
        sent: Callable[[Direction], list[Part]],
        received: Callable[[Direction], list[Part]],
        *,
        dtype: torch.dtype | None = None,
        buffers: str = "host",
        periodic: tuple[bool, ...] = (),
    ):
        self._outgoing: list[_Message] = []
        self._incoming: list[_Message] = []
        self._own: list[tuple[_Message, ...]] = []  # to this rank, which stay on its device
        self._requests: list[MPI.Prequest] = []
        self._travelling: Sequence[torch.Tensor] | None = None
        tensors: Tensors = {"device": arrays[0].device, "dtype": dtype or arrays[0].dtype}
        every = directions(len(ranks.dims))
        for tag, direction in enumerate(every):
            rank = ranks.neighbour(direction, periodic)
            if rank is None:
                continue
            opposite = len(every) - 1 - tag
            if rank == ranks.rank:
                both = sent(direction), received(every[opposite])
                self._own.append(
                    tuple(_Message(parts, arrays, **tensors, buffers="cuda") for parts in both)
                )
                continue
            for parts, messages, initialise, label in (
                (sent(direction), self._outgoing, ranks.comm.Send_init, tag),
                (received(direction), self._incoming, ranks.comm.Recv_init, opposite),
            ):
                if parts:
                    message = _Message(parts, arrays, **tensors, buffers=buffers)
                    messages.append(message)
                    self._requests.append(initialise(message.for_mpi(), rank, label))
        # Also when nobody closes it: a request that is not freed keeps its communicator.
        messages = [*self._outgoing, *self._incoming]
        self._free = weakref.finalize(self, _free, self._requests, messages)
        ranks.keep(self)
        self.words = sum(len(message.buffer) for message in self._outgoing)
        self.messages = len(self._outgoing)

    def start(self, arrays: Sequence[torch.Tensor]) -> None:
        """Send what this rank contributed to its neighbours; `finish` must follow."""
        self._travelling = arrays
        for message, _ in self._own:
            message.pack(arrays)
        if not self._requests:
            return
        for message in self._outgoing:
            message.pack(arrays)
        for message in self._outgoing:
            message.wait_for_device()
        for request in self._requests:
            request.Start()

    def finish(self) -> None:
        """Wait for the neighbours' contributions, if they travel, and add them, in place."""
        arrays, self._travelling = self._travelling, None
        if arrays is None:
            return
        for sent, received in self._own:
            received.buffer.copy_(sent.buffer)
            received.add_to(arrays)
        for request in self._requests:
            request.Wait()
        for message in self._incoming:
            message.add_to(arrays)

    def add(self, arrays: Sequence[torch.Tensor]) -> None:
        """Add the neighbours' contributions to ``arrays``, in place."""
        self.start(arrays)
        self.finish()

    def close(self) -> None:
        """Release the persistent requests; when the ranks are closed, it is done for them."""
        self._free()


def _free(requests: "list[MPI.Prequest]", messages: "list[_Message]") -> None:
    """Free requests, and of those given up what has arrived since; MPI still writes into the buffers of the others."""
    left, _GIVEN_UP[:] = [*_GIVEN_UP, *((request, messages) for request in requests)], []
    requests.clear()
    for request, buffers in left:
        if request.Test():
            request.Free()
        else:
            _GIVEN_UP.append((request, buffers))


class _Message:
    """Parts of arrays and the contiguous buffer that holds them while they travel."""

    def __init__(
        self,
        parts: list[Part],
        arrays: Sequence[torch.Tensor],
        *,
        dtype: torch.dtype,
        device: torch.device,
        buffers: str,
    ):
        self._parts: list[tuple[int, Any]] = [(index, (..., *part)) for index, part in parts]
        shapes = [arrays[index][part].shape for index, part in self._parts]
        sizes = [int(np.prod(shape)) for shape in shapes]
        self._on_gpu = device.type == "cuda"
        self._packed = torch.empty(sum(sizes), dtype=dtype, device=device)
        staged = self._on_gpu and buffers == "host"
        self.buffer = (
            torch.empty(sum(sizes), dtype=dtype, pin_memory=True) if staged else self._packed
        )
        split = self._packed.split(sizes)
        self._views = [view.view(shape) for view, shape in zip(split, shapes, strict=True)]

    def for_mpi(self) -> np.ndarray | torch.Tensor:
        """Return the buffer as MPI takes it; a tensor of a GPU says where it is itself."""
        return self.buffer if self.buffer.is_cuda else self.buffer.numpy()

    def pack(self, arrays: Sequence[torch.Tensor]) -> None:
        """Copy the parts into the buffer; on a GPU this has only begun."""
        for (index, part), view in zip(self._parts, self._views, strict=True):
            view.copy_(arrays[index][part])
        if self.buffer is not self._packed:
            self.buffer.copy_(self._packed, non_blocking=True)

    def wait_for_device(self) -> None:
        """Wait until the buffer is complete: MPI knows nothing of the GPU's stream."""
        if self._on_gpu:
            torch.cuda.current_stream(self._packed.device).synchronize()

    def add_to(self, arrays: Sequence[torch.Tensor]) -> None:
        """Add the buffer to the parts."""
        if self.buffer is not self._packed:
            self._packed.copy_(self.buffer, non_blocking=True)
        for (index, part), view in zip(self._parts, self._views, strict=True):
            arrays[index][part] += view
