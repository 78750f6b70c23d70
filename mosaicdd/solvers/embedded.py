"""The data of problems that are not given values on all sides of a rectangle, on the region of a rank.

The iteration and the fill know active nodes only: what is given on the outline is part of their
right-hand side. Afterwards the given values are written to their nodes. Where no value is given anywhere,
solutions are known up to a constant: the data must be compatible, one node is left out of the equation,
and the constant is chosen for a mean of zero.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from mosaicdd.axes import Slices, within
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.linear_step import LinearStep
from mosaicdd.discretisation.node_equations import Equations
from mosaicdd.grid.partition import Region
from mosaicdd.grid.strips import Strip
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.sides import mean_slope

INCOMPATIBLE = 1e-2


"""The net inflow, relative to all that flows in and out, beyond which data are refused: what is less may
be the discretisation's."""


class IncompatibleError(ValueError):
    """More flows into a domain than out of it, and its outline lets nothing through."""


class BoundaryLifting:
    """Right-hand sides of some problems, and what is put right in their fields.

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
    driven
        The flat nodes, ascending, where alone it may not be zero; None where there are sources.
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
        discretisation: Discretisation | LinearStep,
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
        self.driven: np.ndarray | None = None
        nodes = discretisation.driven(problem, self._part, equations)
        if nodes is not None:
            values = self.right_hand_side.reshape(len(self.right_hand_side), -1)[:, nodes]
            self.driven = nodes[values.any(axis=0)]
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
        self.driven = None
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
        """Return where the owned nodes of a strip are in the region."""
        return within(strip.place, self._part)
