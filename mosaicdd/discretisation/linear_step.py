"""A linear problem for a change of values, as Newton's steps are, in the form of a discretisation."""

import copy

import numpy as np

from mosaicdd.axes import steps_across, steps_along
from mosaicdd.discretisation.crossings import NO_TIES, BoundaryTerms
from mosaicdd.discretisation.node_equations import Equations, on_lattice
from mosaicdd.discretisation.periodic import periodic_padding
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part, Periods, overlap
from mosaicdd.problems.operators.conductances import Conductances, Step
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.side_values import BoundaryData, collected


class LinearStep:
    """A linear problem for the change of values on a rank's part of the grid: operator and discretisation.

    Parameters
    ----------
    equations
        The derivative at the nodes of ``part``.
    self_adjoint
        Whether it is symmetric.
    rounds
        After how many nodes each axis of the grid repeats; by default none does.
    """

    floating = False
    couples_corners = False
    outline = None
    reflective = False

    def __init__(
        self,
        equations: Equations,
        part: Part,
        *,
        self_adjoint: bool,
        rounds: Periods | None = None,
    ):
        self._equations, self._part = equations, part
        self._rounds = self._periods = rounds or (None,) * len(part)
        self.self_adjoint = self_adjoint

    def with_periods(self, periods: Periods) -> "LinearStep":
        """Return that with more unknowns than nodes along periodic axes, which repeat after so many."""
        other = copy.copy(self)
        other._periods = periods
        return other

    def driven(self, problem: Problem, part: Part, equations: Equations) -> None:
        """Return None: the right-hand side may be anything anywhere."""

    def values(self, problem: Problem) -> BoundaryData:
        """Return what holds on the sides: nothing, changes are zero there."""
        return collected([], [], self._rounds)

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part."""
        return self.equations(part).conductances

    def equations(self, part: Part) -> Equations:
        """Return the left-hand sides at the nodes of a part; beyond the grid there are unit rows."""
        return on_lattice(part, self._rounds, self._periods, self._on_grid)

    def _on_grid(self, part: Part) -> Equations:
        here, there = self._overlap(part)
        inside = self._equations.part(*here)
        shape = [p.stop - p.start for p in part]
        reaction, active, volumes = np.ones(shape), np.zeros(shape, bool), np.zeros(shape)
        reaction[there] = inside.conductances.reaction
        active[there], volumes[there] = inside.active, inside.volumes

        def placed(edges: tuple[np.ndarray, ...], steps: list[Step]) -> tuple[np.ndarray, ...]:
            every = []
            for values, step in zip(edges, steps, strict=False):
                every.append(np.zeros([n - abs(s) for n, s in zip(shape, step, strict=True)]))
                ends = zip(there, step, strict=True)
                every[-1][tuple(slice(p.start, p.stop - abs(s)) for p, s in ends)] = values
            return tuple(every)

        between, axes = inside.conductances, len(part)
        along = steps_along(axes)
        against = () if between.symmetric else placed(between.against, along)
        across = placed(between.across, steps_across(axes))
        conductances = Conductances(placed(between.along, along), reaction, against, across)
        return Equations(conductances, active, volumes, NO_TIES)

    def right_hand_side(
        self, problem: Problem, outline: BoundaryData, part: Part, equations: Equations
    ) -> np.ndarray:
        """Return the right-hand sides at the nodes of a part: the source, which is known here, ``(1, rows, columns)``."""
        stretch = periodic_padding(part, self._rounds, self._periods)
        on_grid = part if stretch is None else stretch.part
        b = np.zeros((1, *(p.stop - p.start for p in on_grid)))
        if problem.source is not None:
            _, there = self._overlap(on_grid)
            held = tuple(
                slice(p.start + t.start, p.start + t.stop)
                for p, t in zip(on_grid, there, strict=True)
            )
            grid = problem.domain.grid()
            b[:, *there] = grid.spacing**2 * problem.source.sample(grid, held)
        return b if stretch is None else stretch.values(b)

    def given(
        self, problem: Problem, outline: BoundaryData, part: Part, outlines: BoundaryTerms | None
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Return where values are given: nowhere."""
        return (np.empty(0, int),) * len(part), np.empty((1, 0))

    def _overlap(self, part: Part) -> tuple[Part, Part]:
        """Return what a part has of the nodes here, in these and in the part."""
        first = [p.start for p in self._part]
        moved = tuple(slice(p.start - a, p.stop - a) for p, a in zip(part, first, strict=True))
        return overlap(moved, tuple(self._equations.active.shape))
