"""A field strip by strip: some rows of a rank's part at a time, as they are made, measured and written."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.grid.window import Window


@dataclass(frozen=True)
class Strip:
    """Some rows of this rank's part of the field, with a node more all around within the domain."""

    # ``(n, rows, columns)``, in general a buffer that the next strip overwrites
    values: torch.Tensor
    inner: Slices  # which of them this rank owns
    place: Slices  # where these belong in the field of the whole domain

    @property
    def owned(self) -> torch.Tensor:
        """The values without those of other ranks, and without those of other strips."""
        return self.values[:, *self.inner]

    def times(self, factors: np.ndarray) -> "Strip":
        """Return the values of each problem multiplied, ``(n,)``; these, if all factors are 1."""
        if (factors == 1.0).all():
            return self
        each = torch.from_numpy(factors).view(-1, *[1] * len(self.inner)).to(self.values)
        return Strip(self.values * each, self.inner, self.place)


def in_window(strips: Iterator[Strip], window: Window) -> Iterator[Strip]:
    """Yield the parts of strips that lie in a window."""
    for strip in strips:
        place = window.clip(strip.place)
        if place[0].stop > 0:
            inner = tuple(
                slice(own.start + part.start - whole.start, own.start + part.stop - whole.start)
                for own, part, whole in zip(strip.inner, place, strip.place, strict=True)
            )
            yield Strip(strip.values, inner, place)
