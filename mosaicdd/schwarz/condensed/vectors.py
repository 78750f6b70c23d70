"""The vectors of Krylov iterations: values on the lattice lines ``(n, L)``, for each node all problems side by side."""

import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.tensors import Tensors

_ALIGNED = 64  # bytes, as other tensors are: so sums are the same to the bit wherever vectors lie


class Vectors:
    """Makes vectors, and interfaces of them.

    Parameters
    ----------
    room
        Memory that nothing else needs as long as there are vectors, flat. They lie there while it lasts: the
        system takes long to find as much.
    """

    def __init__(
        self,
        block: Block,
        *,
        device: torch.device,
        dtype: torch.dtype,
        problems: int = 1,
        room: torch.Tensor | None = None,
    ):
        self.block, self.problems = block, problems
        self.tensors: Tensors = {"device": device, "dtype": dtype}
        self._shapes = [block.line_shape(axis) for axis in (0, 1)]
        self.size = sum(count * nodes for count, nodes in self._shapes)
        self._room = torch.empty(0, **self.tensors) if room is None else room

    def new(self) -> torch.Tensor:
        """Return a vector with values of no meaning."""
        count, room = self.size * self.problems, self._room
        room = room[-room.data_ptr() % _ALIGNED // room.itemsize :]
        if len(room) < count:
            flat = torch.empty(count, **self.tensors)
        else:
            flat, self._room = room[:count], room[count:]
        return flat.view(self.size, self.problems).T

    def of(self, v: Interface) -> torch.Tensor:
        """Return the values of an interface, of one problem where they are."""
        flat = v.flat.view(self.problems, -1)
        return flat if self.problems == 1 else self.new().copy_(flat)

    def lines(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return views of the values on the lines, per axis ``(n, lines, nodes)``."""
        parts = x.split([count * nodes for count, nodes in self._shapes], dim=1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def interface(self, x: torch.Tensor) -> Interface:
        """Return an interface with these values, both copies of each lattice node alike."""
        flat = x.clone(memory_format=torch.contiguous_format).view(-1)
        v = Interface(self.block, problems=self.problems, flat=flat, **self.tensors)
        v.match_copies()
        return v

    def room_of(self, x: torch.Tensor) -> Interface:
        """Return an interface of zeros in the memory of a vector, which is lost."""
        flat = x.T.reshape(-1).zero_()
        return Interface(self.block, problems=self.problems, flat=flat, **self.tensors)

    def at_nodes(self, x: torch.Tensor) -> torch.Tensor:
        """Return a copy of the values at the owned lattice nodes, ``(n, *block.subdomains)``."""
        nodes = self.lines(x)[0][:, *self.block.owned_lattice_nodes()]
        return nodes.clone(memory_format=torch.contiguous_format)
