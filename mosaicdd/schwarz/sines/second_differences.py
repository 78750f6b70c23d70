"""The residual of constant coefficients at all unknowns, in differences."""

from collections.abc import Sequence

import numpy as np

from mosaicdd.lattice.axes import at, even
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.waves import Waves

_VALUES = 2**15  # that are handled at once, for the cache


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
        left = np.empty_like(b)
        across = max(1, x[:1].size)
        for rows in even(len(x), max(1, _VALUES // across)):
            u = padded[rows.start : rows.stop + 2]
            centre = u[self._inner]
            total, rise = left[rows], np.empty(centre.shape)
            np.multiply(centre, -self._reaction, out=total)
            total += b[rows]
            for axis, k in enumerate(self._couplings):
                for beside in (slice(None, -2), slice(2, None)):
                    np.subtract(u[at(axis, axes, beside, slice(1, -1))], centre, out=rise)
                    if k != 1.0:
                        rise *= k
                    total += rise
        return left
