"""The linear equations of a change of values, as Newton's steps and adjoints solve them."""

from collections.abc import Sequence

import numpy as np

from mosaicdd.axes import sizes, steps_across, steps_along
from mosaicdd.discretisation.crossings import NO_TIES
from mosaicdd.discretisation.node_equations import Equations, LinearEquations
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part, Periods, overlap
from mosaicdd.problems.operators.conductances import Conductances, Step


class LinearStep(LinearEquations):
    """The linear equations of a change of values on a rank's part of the grid; nothing changes on its sides.

    It is an operator, too, as it has conductances.

    Parameters
    ----------
    equations
        The derivative at the nodes of ``part``.
    self_adjoint
        Whether it is symmetric.
    periods
        After how many nodes each axis of the grid repeats; by default none does.
    """

    def __init__(
        self,
        equations: Equations,
        part: Part,
        *,
        self_adjoint: bool,
        periods: Periods | None = None,
    ):
        super().__init__(periods or (None,) * len(part))
        self._equations, self._part = equations, part
        self.self_adjoint = self_adjoint

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part."""
        return self.equations(part).conductances

    def _on_grid(self, part: Part) -> Equations:
        """Return the left-hand sides of a part; beyond the rank's nodes there are unit rows."""
        source, target = self._overlap(part)
        inside = self._equations.part(*source)
        shape = sizes(part)
        reaction, active, volumes = np.ones(shape), np.zeros(shape, bool), np.zeros(shape)
        reaction[target] = inside.conductances.reaction
        active[target], volumes[target] = inside.active, inside.volumes

        def placed(edges: tuple[np.ndarray, ...], steps: Sequence[Step]) -> tuple[np.ndarray, ...]:
            arrays = []
            for values, step in zip(edges, steps, strict=False):
                arrays.append(np.zeros([n - abs(s) for n, s in zip(shape, step, strict=True)]))
                ends = zip(target, step, strict=True)
                arrays[-1][tuple(slice(p.start, p.stop - abs(s)) for p, s in ends)] = values
            return tuple(arrays)

        between, axes = inside.conductances, len(part)
        along = steps_along(axes)
        against = () if between.symmetric else placed(between.against, along)
        across = placed(between.across, steps_across(axes))
        conductances = Conductances(placed(between.along, along), reaction, against, across)
        return Equations(conductances, active, volumes, NO_TIES)

    def _overlap(self, part: Part) -> tuple[Part, Part]:
        """Return the nodes that a part shares with this one, in both."""
        first = [p.start for p in self._part]
        moved = tuple(slice(p.start - a, p.stop - a) for p, a in zip(part, first, strict=True))
        return overlap(moved, tuple(self._equations.active.shape))
