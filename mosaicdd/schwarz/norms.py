"""Sums over the values that a block owns, in pieces that stay in the processor's cache."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface

# Values per piece: on a processor few enough to stay in a cache, enough to outweigh the calls.
_PIECE = {"cpu": 2**17, "cuda": 2**24}


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

    def squares(self, v: Interface, other: Interface) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums of squares of ``v - other`` and of ``v``, ``(n,)`` each."""
        difference, values = self._sums((v, other), (_subtract, _squares), (_copy, _squares))
        return difference, values

    def square_of_difference(self, v: Interface, other: Interface) -> np.ndarray:
        """Return the sum of squares of a difference, ``(n,)``."""
        return self._sums((v, other), (_subtract, _squares))[0]

    def absolute_difference(self, v: Interface, other: Interface) -> np.ndarray:
        """Return the sum of the absolute values of a difference, ``(n,)``."""
        return self._sums((v, other), (_subtract, _absolutes))[0]

    def _sums(
        self, interfaces: tuple[Interface, ...], *parts: tuple[Callable, Callable]
    ) -> list[np.ndarray]:
        """Add up over pieces; each part combines the interfaces and reduces what comes of it."""
        totals: list[Any] = [0.0] * len(parts)  # then tensors ``(n,)``
        for piece in self._pieces(*interfaces):
            scratch = self._scratch[: piece[0].numel()]
            for i, (combine, reduce) in enumerate(parts):
                combine(*piece, scratch.view(piece[0].shape))
                totals[i] = totals[i] + reduce(scratch.view(self._problems, -1))
        return [total.double().cpu().numpy() for total in totals]

    def _pieces(self, *interfaces: Interface) -> Iterator[tuple[torch.Tensor, ...]]:
        for parts, rows in zip(
            zip(*(v.owned_parts() for v in interfaces), strict=True), self._rows, strict=True
        ):
            yield from zip(*(part.split(rows, dim=1) for part in parts), strict=True)


def _copy(values: torch.Tensor, other: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(values)


def _subtract(values: torch.Tensor, other: torch.Tensor, out: torch.Tensor) -> None:
    torch.sub(values, other, out=out)


def _squares(values: torch.Tensor) -> torch.Tensor:
    if len(values) == 1:
        return torch.dot(values[0], values[0])[None]
    return values.square_().sum(dim=1)


def _absolutes(values: torch.Tensor) -> torch.Tensor:
    return values.abs_().sum(dim=1)
