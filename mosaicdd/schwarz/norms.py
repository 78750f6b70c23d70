"""Sums over the values that a block owns, in pieces that stay in the processor's cache."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface

# Values per piece: on a processor few enough to stay in a cache, enough to outweigh the calls.
_PIECE = {"cpu": 2**17, "cuda": 2**24}

Parts = Callable[[Interface], list[torch.Tensor]]
"""Gives views of what is owned, `Interface.owned_parts`, or of some of it."""


class OwnedNorms:
    """Sums of squares and of absolute values of interfaces of one block, per problem.

    ``v``: an interface, for shapes.
    """

    def __init__(self, v: Interface):
        piece = _PIECE[v.flat.device.type]
        largest = 0
        for part in v.owned_parts():
            line = v.problems * part[0, :1].numel()
            largest = max(largest, min(max(1, piece // max(1, line)), part.shape[1]) * line)
        self._scratch = v.flat.new_empty(largest)
        self._problems = v.problems
        self._zeros = v.flat.new_zeros(v.problems)

    def squares(
        self, v: Interface, other: Interface, parts: Parts = Interface.owned_parts
    ) -> np.ndarray:
        """Return the sums of squares of ``v - other`` and of ``v``, ``(2, n)``, over some of the parts that are owned."""
        differences, values = self._zeros, self._zeros
        for mine, theirs, room in self._pieces(v, other, parts):
            differences = differences + self._squares(torch.sub(mine, theirs, out=room))
            values = values + self._squares(room.copy_(mine))
        return np.stack([_host(differences), _host(values)])

    def square_of_difference(self, v: Interface, other: Interface) -> np.ndarray:
        """Return the sum of squares of a difference, ``(n,)``."""
        total = self._zeros
        for mine, theirs, room in self._pieces(v, other):
            total = total + self._squares(torch.sub(mine, theirs, out=room))
        return _host(total)

    def absolute_difference(self, v: Interface, other: Interface) -> np.ndarray:
        """Return the sum of the absolute values of a difference, ``(n,)``."""
        total = self._zeros
        for mine, theirs, room in self._pieces(v, other):
            difference = torch.sub(mine, theirs, out=room).view(self._problems, -1)
            total = total + difference.abs_().sum(dim=1)
        return _host(total)

    def _pieces(
        self, v: Interface, other: Interface, parts: Parts = Interface.owned_parts
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield pieces of both, and room for what is made of them."""
        for mine, theirs in zip(parts(v), parts(other), strict=True):
            rows = max(1, len(self._scratch) // max(1, v.problems * mine[0, :1].numel()))
            for piece, beside in zip(
                mine.split(rows, dim=1), theirs.split(rows, dim=1), strict=True
            ):
                yield piece, beside, self._scratch[: piece.numel()].view(piece.shape)

    def _squares(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of squares of each problem; the values are overwritten."""
        values = values.view(self._problems, -1)
        if self._problems == 1:
            return torch.dot(values[0], values[0])[None]
        return values.square_().sum(dim=1)


def _host(total: torch.Tensor) -> np.ndarray:
    return total.double().cpu().numpy()
