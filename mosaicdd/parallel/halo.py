"""The halo exchange: neighbouring ranks add up what they computed at the nodes they share.

Each rank sends only its own contributions, packed into one message per neighbour, and adds what
it receives; a node that two ranks share then has the same value on both, to the last bit. All
messages are persistent requests on host buffers, planned once.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from mpi4py import MPI

from mosaicdd.lattice.sharing import DIRECTIONS, Direction
from mosaicdd.parallel.process_grid import ProcessGrid

Part = tuple[int, tuple[slice, slice]]
"""Which of the arrays, and which part of it."""


class HaloExchange:
    """A planned exchange for arrays of fixed shapes.

    Parameters
    ----------
    arrays
        Examples of the arrays that will be exchanged; only their shapes and types matter.
    sent, received
        ``sent(direction)``: the parts of the arrays to send to the neighbour in a direction, and
        those to which it contributes. The parts of two neighbours must match in shape and order.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        arrays: Sequence[torch.Tensor],
        sent: Callable[[Direction], list[Part]],
        received: Callable[[Direction], list[Part]],
    ):
        self._outgoing, self._incoming, self._requests = [], [], []
        device, dtype = arrays[0].device, arrays[0].dtype
        for tag, direction in enumerate(DIRECTIONS):
            rank = grid.neighbour(direction)
            if rank is None:
                continue
            opposite = len(DIRECTIONS) - 1 - tag
            for parts, messages, initialise, label in (
                (sent(direction), self._outgoing, grid.comm.Send_init, tag),
                (received(direction), self._incoming, grid.comm.Recv_init, opposite),
            ):
                if parts:
                    message = _Message(parts, arrays, device, dtype)
                    messages.append(message)
                    self._requests.append(initialise(message.host.numpy(), rank, label))
        self.words = sum(len(message.host) for message in self._outgoing)
        self.messages = len(self._outgoing)

    def add(self, arrays: Sequence[torch.Tensor]) -> None:
        """Add the neighbours' contributions to ``arrays``, in place."""
        if not self._requests:
            return
        for message in self._outgoing:
            message.pack(arrays)
        MPI.Prequest.Startall(self._requests)
        MPI.Request.Waitall(self._requests)
        for message in self._incoming:
            message.add_to(arrays)

    def free(self) -> None:
        """Release the persistent requests."""
        for request in self._requests:
            request.Free()
        self._requests = []


class _Message:
    """Parts of arrays and the contiguous buffer that holds them while they travel."""

    def __init__(self, parts: list[Part], arrays, device: torch.device, dtype: torch.dtype):
        shapes = [arrays[index][part].shape for index, part in parts]
        sizes = [int(np.prod(shape)) for shape in shapes]
        on_gpu = device.type == "cuda"
        self._parts = parts
        self.host = torch.empty(sum(sizes), dtype=dtype, pin_memory=on_gpu)
        self._staged = torch.empty(sum(sizes), dtype=dtype, device=device) if on_gpu else self.host
        split = self._staged.split(sizes)
        self._views = [view.view(shape) for view, shape in zip(split, shapes, strict=True)]

    def pack(self, arrays: Sequence[torch.Tensor]) -> None:
        for (index, part), view in zip(self._parts, self._views, strict=True):
            view.copy_(arrays[index][part])
        if self._staged is not self.host:
            self.host.copy_(self._staged)  # waits for the device

    def add_to(self, arrays: Sequence[torch.Tensor]) -> None:
        if self._staged is not self.host:
            self._staged.copy_(self.host)
        for (index, part), view in zip(self._parts, self._views, strict=True):
            arrays[index][part] += view
