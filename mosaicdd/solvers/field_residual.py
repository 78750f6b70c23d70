"""The residual of fields in the equations of the user's coefficients; and data on outlines and natural sides.

The iteration and the fill know active nodes only: what is given on the outline is part of their
right-hand side. Afterwards the given values are written to their nodes. Where no value is given anywhere,
solutions are known up to a constant: the data must be compatible, one node is left out of the equation,
and the constant is chosen for a mean of zero.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import Slices, even, within
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.node_equations import Equations, RowWeights
from mosaicdd.grid.partition import Region
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.sides import mean_slope
from mosaicdd.solvers.measure import NodeSource

_VALUES = 2**16  # of a field that are handled at once, for the cache


class FieldResidual:
    """Adds up the squares of ``W (b - A u)`` over the strips of a field; see `ResidualScale`.

    Parameters
    ----------
    system
        The equations, as `PreparedSystem` has them.
    source
        At the nodes of the region; None for zero.
    measures
        What residuals are relative to, ``(n,)``.
    """

    def __init__(self, ranks: Ranks, system: Any, source: NodeSource | None, measures: np.ndarray):
        self._ranks = ranks
        self._region, self._conductances = system.region, system.conductances
        self._weights: RowWeights = system.measure.weights
        self._source = None if source is None else source.values.cpu().numpy()
        self._scale = 1.0 if source is None else source.scale
        self.measures = measures
        self._squares, self._rounded = np.zeros(len(measures)), np.zeros(len(measures))

    def add(self, strip: Strip) -> None:
        """Add the squares of a strip's owned nodes, without those on the edge of the grid that have given values."""
        values, here = self._around(strip)
        if not values.numel():
            return
        beyond = (slice(part.start - 1, part.stop + 1) for part in here)
        conductances = self._conductances.part(*beyond).each(np.asarray)
        across = values.shape[2:]
        for rows in even(values.shape[1] - 2, max(1, _VALUES // math.prod(across))):
            place = slice(here[0].start + rows.start, here[0].start + rows.stop), *here[1:]
            around = slice(rows.start, rows.stop + 2), *(slice(0, count) for count in across)
            equations = conductances.part(*around)
            for i, u in enumerate(values[:, around[0]].double().cpu().numpy()):
                residual = equations.apply(u)
                if self._source is not None:
                    residual -= self._scale * self._source[i][place]
                self._weigh(residual, place)
                self._squares[i] += np.vdot(residual, residual)

    def _around(self, strip: Strip) -> tuple[torch.Tensor, Slices]:
        """Return a strip's values at these nodes and one more all around, and the places of the nodes in the region."""
        parts = []
        for inner, place, ends in zip(strip.inner, strip.place, self._region.ends, strict=True):
            low, high = (
                (False, False) if ends is None else (place.start == ends[0], place.stop > ends[1])
            )
            parts.append(slice(inner.start + low, inner.stop - high))
        origin = self._region.origin
        if parts[0].stop <= parts[0].start:
            return strip.values[:, :0], tuple(parts)
        values = strip.values[:, *(slice(p.start - 1, p.stop + 1) for p in parts)]
        here = tuple(  # in the region
            slice(low, low + len(range(part.start, part.stop)))
            for low, part in (
                (place.start - inner.start + part.start - first, part)
                for place, inner, part, first in zip(
                    strip.place, strip.inner, parts, origin, strict=True
                )
            )
        )
        return values, here

    def add_rounding(self, strip: Strip) -> None:
        """Add the squares of the same nodes for `rounding`."""
        values, here = self._around(strip)
        if not values.numel():
            return
        beyond = tuple(slice(part.start - 1, part.stop + 1) for part in here)
        conductances = self._conductances.part(*beyond).each(np.asarray)
        inside = (slice(1, -1),) * len(here)
        diagonal = 2 * np.abs(conductances.diagonal()[inside])
        self._weigh(diagonal, here)
        for i, u in enumerate(values[:, *inside].double().cpu().numpy()):
            self._rounded[i] += np.square(diagonal * u).sum()

    def rounding(self) -> np.ndarray:
        """Return ``|eps |A| |u|| / |b|`` of each problem, with twice the diagonal for ``|A|`` and the measure for ``|b|``."""
        return np.finfo(float).eps * self._relative(self._rounded)

    def _weigh(self, values: np.ndarray, here: Slices) -> None:
        """Let numbers of rows count as these do, at some nodes of the region."""
        nodes, shape = self._weights.nodes, self._region.shape
        rows, width = here[0], math.prod(shape[1:])
        low, high = np.searchsorted(nodes, [rows.start * width, rows.stop * width])
        place = np.unravel_index(nodes[low:high], shape)
        inside = [(n >= p.start) & (n < p.stop) for n, p in zip(place, here, strict=True)]
        counted = np.flatnonzero(np.logical_and.reduce(inside))
        index = tuple(n[counted] - p.start for n, p in zip(place, here, strict=True))
        values[index] *= self._weights.weights[low + counted]

    def relative(self) -> np.ndarray:
        """Return the residual of each problem by its measure; where that is zero, as it is."""
        return self._relative(self._squares)

    def _relative(self, squares: np.ndarray) -> np.ndarray:
        squares = self._ranks.sum(squares)
        # Beside a measure that is no number nothing is small.
        measures = np.where(np.isfinite(self.measures), self.measures, np.nan)
        return np.sqrt(squares) / np.where(self.measures == 0, 1.0, measures)


INCOMPATIBLE = 1e-2
"""The net inflow, relative to all that flows in and out, beyond which data are refused: what is less may
be the discretisation's."""


class IncompatibleError(ValueError):
    """More flows into a domain than out of it, and its outline lets nothing through."""


class BoundaryLifting:
    """Right-hand sides of problems with outlines or natural sides, and the completion of their fields.

    All ranks make it together.

    Parameters
    ----------
    equations
        At the nodes of the region.
    beyond
        Whether fields show the unknowns beyond natural outlines, too.

    Attributes
    ----------
    right_hand_side
        ``(n, rows, columns)`` at the nodes of the region.
    imbalance
        Where no value is given anywhere, the net inflow of each problem, ``(n,)``, relative to all that
        flows in and out; it has been taken from the sources, evenly. Else None.

    Raises
    ------
    ValueError
        On all ranks, if data are not sound.
    IncompatibleError
        On all ranks, if they are not compatible.
    """

    def __init__(
        self,
        ranks: Ranks,
        region: Region,
        discretisation: Discretisation,
        problem: Problem,
        equations: Equations,
        *,
        beyond: bool = False,
    ):
        self._ranks, self._region, self._problem = ranks, region, problem
        self._discretisation, self._equations = discretisation, equations
        self._slope: Callable[..., np.ndarray | None] = partial(
            mean_slope, problem.conditions, region.grid
        )
        self._beyond = beyond
        # What fields are completed by.
        self._shown = None if equations.outlines is None else equations.outlines.without_acting()
        self._part = region.nodes
        self.right_hand_side = ranks.run_on_all(self._evaluated)
        self.imbalance: np.ndarray | None = None
        self._means = np.zeros(len(self.right_hand_side))
        if discretisation.floating:
            self._balance()

    def _evaluated(self) -> np.ndarray:
        self._outline = self._discretisation.values(self._problem)
        return self._discretisation.right_hand_side(
            self._problem, self._outline, self._part, self._equations
        )

    def _balance(self) -> None:
        """Make the right-hand sides compatible, or refuse them."""
        b, own = self.right_hand_side, within(self._region.owned, self._part)
        volumes = np.asarray(self._equations.volumes)
        axes = tuple(range(1, b.ndim))
        mine = b[:, *own].sum(axis=axes), np.abs(b[:, *own]).sum(axis=axes)
        net, gross, size = self._ranks.sum(np.stack([*mine, np.full(len(b), volumes[own].sum())]))
        self.imbalance = np.abs(net) / np.where(gross > 0, gross, 1.0)
        if (worst := self.imbalance.max()) > INCOMPATIBLE:
            raise IncompatibleError(
                f"no value is given on any side, so what flows in must flow out; {worst:.1%} of the "
                f"sources and fluxes are left over (at most {INCOMPATIBLE:.0%}): correct them, or give "
                "a value somewhere"
            )
        b -= (net / size).reshape(-1, *[1] * volumes.ndim) * volumes
        b *= self._equations.active

    def centre(self, strips: Iterator[Strip]) -> None:
        """Find the means of the fields, which `completed` subtracts; all ranks together."""
        sums = np.zeros(2 * len(self._means))
        for strip in strips:
            volumes = np.asarray(self._equations.volumes[self._within(strip)])
            values = strip.owned.cpu().numpy()
            if (slope := self._slope(strip.place, halves=True)) is not None:
                values = values + slope
            sums[::2] += (values * volumes).sum(axis=tuple(range(1, 1 + volumes.ndim)))
            sums[1::2] += volumes.sum()
        totals = self._ranks.sum(sums)
        self._means = totals[::2] / totals[1::2]

    def completed(self, strip: Strip) -> Strip:
        """Write what is given, in place, to the nodes of a strip that this rank owns; outside, NaN.

        The last node along a periodic axis, a copy of the first, becomes one of those that are owned.
        """
        strip = self._with_copies(strip)
        owned, outlines = strip.owned, self._shown
        if self._discretisation.floating:
            owned -= torch.from_numpy(self._means).to(owned).view(-1, *[1] * (owned.ndim - 1))
        if (slope := self._slope(strip.place)) is not None:
            owned += torch.from_numpy(slope).to(owned)
        if outlines is not None:
            nodes = self._within(strip)
            outlines = outlines.part(*nodes)
            shown = outlines.reported
            if self._beyond:
                shown = shown | self._equations.active[nodes]
            owned.masked_fill_(torch.from_numpy(~shown).to(owned.device), torch.nan)
        if not self._discretisation.floating:
            place, values = self._discretisation.given(
                self._problem, self._outline, strip.place, outlines
            )
            index: tuple[slice | torch.Tensor, ...] = (slice(None), *map(torch.from_numpy, place))
            owned[index] = torch.from_numpy(values).to(owned)
        return strip

    def _with_copies(self, strip: Strip) -> Strip:
        """Add the last node along periodic axes, the ghost node after the last one that is owned."""
        inner, place = list(strip.inner), list(strip.place)
        for axis, cells in enumerate(self._region.grid.shape):
            if self._region.periodic[axis] and place[axis].stop == cells:
                inner[axis] = slice(inner[axis].start, inner[axis].stop + 1)
                place[axis] = slice(place[axis].start, cells + 1)
        return Strip(strip.values, tuple(inner), tuple(place))

    def _within(self, strip: Strip) -> Slices:
        """Return the places of a strip's owned nodes in the region."""
        return within(strip.place, self._part)
