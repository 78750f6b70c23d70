"""Sums over the values that a block owns, in pieces that stay in the processor's cache."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface

# Values per piece: on a processor two of them fit the cache of a core.
_PIECE = {"cpu": 2**15, "cuda": 2**24}


class OwnedNorms:
    """Sums of squares and of absolute values of interfaces of one block, per problem.

    Parameters
    ----------
    v
        An interface, for shapes.
    """

    def __init__(self, v: Interface):
        piece = _PIECE[v.flat.device.type]
        largest = 0
        self._rows = []  # lines per piece, for both families
        for part in v.owned_parts():
            line = v.problems * part[0, :1].numel()
            self._rows.append(max(1, piece // max(1, line)))
            largest = max(largest, min(self._rows[-1], part.shape[1]) * line)
        self._scratch = v.flat.new_empty(largest)
        self._problems = v.problems

    def square(self, v: Interface) -> np.ndarray:
        """Return the sum of squares, ``(n,)``."""
        return self._sum(self._pieces(v), lambda one, out: out.copy_(one), _squares)

    def square_of_difference(self, one: Interface, other: Interface) -> np.ndarray:
        """Return the sum of squares of a difference, ``(n,)``."""
        return self._sum(self._pieces(one, other), _subtract, _squares)

    def absolute_difference(self, one: Interface, other: Interface) -> np.ndarray:
        """Return the sum of the absolute values of a difference, ``(n,)``."""
        return self._sum(self._pieces(one, other), _subtract, _absolutes)

    def _pieces(self, *interfaces: Interface) -> Iterator[tuple[torch.Tensor, ...]]:
        for parts, rows in zip(
            zip(*(v.owned_parts() for v in interfaces), strict=True), self._rows, strict=True
        ):
            yield from zip(*(part.split(rows, dim=1) for part in parts), strict=True)

    def _sum(self, pieces: Iterator, combine: Callable, reduce: Callable) -> np.ndarray:
        """Add up over the pieces what is left of a combination of them."""
        total = 0.0
        for piece in pieces:
            scratch = self._scratch[: piece[0].numel()]
            combine(*piece, scratch.view(piece[0].shape))
            total = total + reduce(scratch.view(self._problems, -1))
        return total.double().cpu().numpy()


def _subtract(one: torch.Tensor, other: torch.Tensor, out: torch.Tensor) -> None:
    torch.sub(one, other, out=out)


def _squares(values: torch.Tensor) -> torch.Tensor:
    if len(values) == 1:
        return torch.dot(values[0], values[0])[None]
    return values.square_().sum(dim=1)


def _absolutes(values: torch.Tensor) -> torch.Tensor:
    return values.abs_().sum(dim=1)
