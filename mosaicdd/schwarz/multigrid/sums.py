"""Sums of products over the nodes of a class: what every step of a cycle is made of, planned once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")
Factors = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Sum:
    """``out = (base + sum_i a_i b_i) scale``; of stretches, all of the same length.

    Parameters
    ----------
    base, scale
        None for 0 and for 1. The base may be the result itself.
    """

    out: torch.Tensor
    base: torch.Tensor | None
    products: list[Factors]
    scale: torch.Tensor | None = None

    def __call__(self) -> None:
        """Compute it."""
        out, products = self.out, self.products
        if self.base is None:
            first, second = products[0]
            torch.mul(first, second, out=out)
            products = products[1:]
        elif self.base is not out:
            if products:
                first, second = products[0]
                torch.addcmul(self.base, first, second, out=out)
                products = products[1:]
            elif self.scale is not None:
                torch.mul(self.base, self.scale, out=out)
                return
            else:
                out.copy_(self.base)
        for first, second in products:
            out.addcmul_(first, second)
        if self.scale is not None:
            out.mul_(self.scale)


def in_turn(stages: Iterable[Sequence[T]]) -> list[T]:
    """Return what is to be done of several stages, each of a part per stretch, in an order for the cache.

    A part comes after those of the stage before in its own stretch and the ones beside it, and before the rest of
    that stage: while what these have read and written is in the cache.
    """
    parts = [
        (number + stage, stage, part)
        for stage, of_stage in enumerate(stages)
        for number, part in enumerate(of_stage)
    ]
    return [part for _, _, part in sorted(parts, key=lambda entry: entry[:2])]
