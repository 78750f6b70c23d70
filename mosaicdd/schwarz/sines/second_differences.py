"""The residual of constant coefficients at all unknowns, in differences."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import at, even
from mosaicdd.parallel.layouts.layout import Halo, Layout
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.sine_solve import Waves
from mosaicdd.schwarz.multigrid.vector_operations import Image, planned

_VALUES = 2**13  # that are handled at once, for the cache


class SecondDifferences:
    """``A u``, per volume: second differences times a coupling along each axis, and a reaction; planned once.

    Beside an end with given values these are zero; beside one with fluxes values are those on the other side.

    Parameters
    ----------
    layout, sizes
        Of the unknowns, and how many along each axis the ranks along it have.
    couplings, reaction
        Times the squared spacing.
    """

    def __init__(
        self,
        ranks: Ranks,
        layout: Layout,
        sizes: Sequence[tuple[int, ...]],
        waves: Sequence[Waves],
        couplings: Sequence[float],
        reaction: float,
    ):
        self._couplings, self._reaction = couplings, reaction
        self._inner = tuple(slice(1, -1) for _ in waves)
        shape = layout.local_shape(ranks.rank)
        self._padded = np.zeros([n + 2 for n in shape])
        self._halo: Redistribution | None = None
        self._held = self._inner
        around = any(of.given is None for of in waves)
        if ranks.size > 1 or around:
            halos = [
                Halo(axis, 1, counts, of.count if of.given is None else None)
                for axis, (counts, of) in enumerate(zip(sizes, waves, strict=True))
            ]
            held = Layout(layout.shape, layout.mesh, tuple(halos))
            self._halo = Redistribution(layout, held, ranks, np.float64)
        self._out, self._compute = self._planned()
        # The ends of axes where this rank's first and last nodes are, with fluxes.
        self._natural: list[tuple[int, int, int]] = []
        if min(shape) == 0:
            return
        place = layout.place(ranks.rank)
        for axis, (part, of) in enumerate(zip(place, waves, strict=True)):
            lowest, highest = part.start == 0, part.stop == of.count
            if self._halo is not None:
                low, high = (int(of.given is None or not end) for end in (lowest, highest))
                self._held = (
                    *self._held[:axis],
                    slice(1 - low, shape[axis] + 1 + high),
                    *self._held[axis + 1 :],
                )
            if of.given is not None:
                # Ghost and mirrored node, in the padded array.
                if lowest and not of.given[0]:
                    self._natural.append((axis, 0, 2))
                if highest and not of.given[1]:
                    self._natural.append((axis, -1, -3))

    def _planned(self) -> tuple[np.ndarray, Callable[..., object]]:
        """Plan ``A u`` of the padded values, and return where it will be.

        Rows are one after another in memory, and all of them one stretch, the ends of each included, which nobody reads.
        """
        padded, out = self._padded, np.zeros_like(self._padded)
        u, result = (torch.from_numpy(values).view(-1) for values in (padded, out))
        distances = [stride // padded.itemsize for stride in padded.strides]
        reach = sum(distances)
        along = [
            (k, way * d) for k, d in zip(self._couplings, distances, strict=True) for way in (-1, 1)
        ]
        ones = torch.ones(min(_VALUES, u.numel()), dtype=u.dtype)
        factors = {k: k * ones for k, _ in along}
        reaction, images = self._reaction * ones, []
        for part in even(max(0, u.numel() - 2 * reach), _VALUES):
            first, last = part.start + reach, part.stop + reach
            count = last - first
            terms = [(factors[k][:count], u[first + d : last + d]) for k, d in along]
            excess = reaction[:count] if self._reaction else None
            images.append(Image(result[first:last], u[first:last], terms, excess))
        return out, planned(images)

    def per_volume(self, b: np.ndarray) -> np.ndarray:
        """Return a right-hand side divided by the volumes; itself where these are whole."""
        return self._scaled(b, 2.0)

    def times_volumes(self, left: np.ndarray) -> np.ndarray:
        """Return what is per volume times these; itself where they are whole."""
        return self._scaled(left, 0.5)

    def _scaled(self, values: np.ndarray, by: float) -> np.ndarray:
        if self._natural:
            values = values.copy()
        for axis, end, _ in self._natural:
            values[at(axis, values.ndim, end)] *= by
        return values

    def residual(self, b: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return ``b - A x``; all ranks together."""
        padded, axes = self._padded, x.ndim
        padded[self._held] = x if self._halo is None else self._halo(x)
        for axis, ghost, mirrored in self._natural:
            padded[at(axis, axes, ghost)] = padded[at(axis, axes, mirrored)]
        self._compute()
        return np.subtract(b, self._out[self._inner])
