"""Newton's steps: by multigrid in the medium that the derivative is; by sine transforms see `sine_step`."""

import functools
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import DTypeLike

from mosaicdd.axes import Slices, at, crossed, within
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.partition import Partition
from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.base_engine import engine_of
from mosaicdd.solvers.newton.newton_equations import NewtonEquations
from mosaicdd.solvers.outcome import ERROR_STEP
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.solvers.stopwatch import Stopwatch
from mosaicdd.solvers.transforms.sine_solve import SineSolve

_STEP_ITERATIONS = 200  # iterations of a step


@dataclass(frozen=True)
class NewtonContext:
    """What the steps for all problems of an engine have in common: where, and how."""

    partition: Partition
    place: GhostNodes
    settings: SolveSettings
    clock: Stopwatch

    @property
    def ranks(self) -> Ranks:
        """The ranks of the partition."""
        return self.partition.ranks


@dataclass(frozen=True)
class Change:
    """A change of the values."""

    values: np.ndarray  # at the nodes that this rank owns
    # size, error: root mean squares over the domain: of the change, and what it lacks of that asked
    # for, estimated
    size: float
    error: float
    status: str  # as of an `Outcome`

    def at_samples(self, partition: Partition) -> torch.Tensor:
        """Return its absolute values at this rank's nodes that have an estimate, see `ERROR_STEP`."""
        step = ERROR_STEP[self.values.ndim]
        sampled = tuple(
            slice(step * part.start - own.start, own.stop - own.start, step)
            for part, own in zip(partition.samples(step), partition.unknowns, strict=True)
        )
        return torch.from_numpy(abs(self.values[sampled]))


class Step(Protocol):
    """Solves for what the derivative at some values asks for."""

    def __call__(self, force: np.ndarray, rtol: float) -> Change | None:
        """Return the change whose product with the derivative is a force.

        `ValueError` on all ranks, if the derivative is that of no elliptic equation.
        ``force``: times the squared spacing, a wide array; ``rtol``: bound of the residual, relative to the force, in
        the 2-norm. Returns None on all ranks, if this is not the way to find it.
        """
        ...


class MediumStep:
    """Solves in the medium that the derivative, or its transposed, is, by multigrid; `ValueError` as `Step`."""

    def __init__(
        self,
        steps: NewtonContext,
        equations: NewtonEquations,
        u: np.ndarray,
        *,
        transposed: bool = False,
    ):
        self._steps, self._equations = steps, equations
        with steps.clock.part("derivative"):
            self._linear = steps.ranks.run_on_all(
                lambda: equations.linearised(u, transposed=transposed)
            )

    def __call__(self, force: np.ndarray, rtol: float) -> Change:
        """Solve on the whole grid; see `Step`."""
        steps = self._steps
        linear = self._equations.driven(self._linear, force)
        settings = steps.settings.with_changes(
            rtol=rtol, certify=None, max_iterations=_STEP_ITERATIONS
        )
        engine = engine_of(linear.method)(steps.partition, linear, settings, clock=steps.clock)
        outcome = engine.solve(Boundary.zeros(steps.partition.grid))
        if outcome.field is None:
            raise RuntimeError("a step's field is kept")
        values = outcome.field.double().cpu().numpy()
        return Change(
            values,
            steps.place.rms(values),
            outcome.error_estimate.rms,
            "converged_rtol" if outcome.history.residual[-1] <= rtol else outcome.status,
        )


class NodesInside:
    """Where the unknowns of a problem with values on all sides are.

    Parameters
    ----------
    place
        What this rank holds of a field.
    layout
        Of the field.

    Attributes
    ----------
    own, part
        Nodes of the grid: those inside that this rank owns, and with a node more all around.
    owned, held
        Layouts: of what is owned, and with a node of each neighbour's.
    inside, mine
        Where what is held lies in ``part``, and where what is owned lies in what is held.
    diagonal
        That of Laplace's operator times the squared spacing.
    """

    def __init__(self, place: GhostNodes, layout: Layout):
        self._place, self._ranks = place, place.ranks
        shape = tuple(n - 2 for n in layout.shape)
        inner = []
        for shard in layout.placements:  # without the first and the last node
            sizes = list(shard.sizes or ())
            sizes[0] -= 1
            sizes[-1] -= 1
            inner.append((shard.axis, tuple(sizes)))
        self.owned = Layout(shape, layout.mesh, tuple(Shard(*sizes) for sizes in inner))
        self.held = Layout(shape, layout.mesh, tuple(Halo(axis, 1, n) for axis, n in inner))
        self.own, held = (
            tuple(slice(p.start + 1, p.stop + 1) for p in of.place(self._ranks.rank))
            for of in (self.owned, self.held)
        )
        self.part: Slices = tuple(slice(p.start - 1, p.stop + 1) for p in self.own)
        self.inside, self.mine = within(held, self.part), within(self.own, held)
        self._widen = Redistribution(self.owned, self.held, self._ranks, np.float64)
        # What conducts along each axis, times the squared spacing, as `Medium` has it.
        sides = place.grid.aspect or (1.0,) * len(shape)
        self._along = [side**-2 for side in sides]
        self.diagonal = 2 * math.fsum(self._along)

    def of_wide(self, u: np.ndarray) -> np.ndarray:
        """Return a view of those that this rank owns of a wide array."""
        return self._place.at(self.own, u)

    def embedded(self, values: np.ndarray) -> np.ndarray:
        """Return values of those owned with zeros on the edge of the domain: owned nodes of the field."""
        field = np.zeros([p.stop - p.start for p in self._place.owned])
        field[within(self.own, self._place.owned)] = values
        return field

    def widened(self, values: np.ndarray) -> np.ndarray:
        """Return what is held of values of those owned."""
        return self._widen(np.ascontiguousarray(values))

    def sine_solve(self, reaction: float, dtype: DTypeLike = np.float64) -> SineSolve:
        """Plan the inverse of Laplace's operator and a reaction, both times the squared spacing, of owned arrays."""

        def symbol(*part: slice) -> np.ndarray:
            along = (
                4 * k * np.sin(np.pi * np.arange(p.start + 1, p.stop + 1) / (2 * (n + 1))) ** 2
                for p, n, k in zip(part, self.owned.shape, self._along, strict=True)
            )
            return functools.reduce(np.add, crossed(*along)) + reaction

        return SineSolve(self.owned, self.held, symbol, self._ranks, dtype=dtype)

    def harmonic(self, boundary: Boundary) -> np.ndarray:
        """Return the harmonic surface over values on the edges, zero there: owned nodes of the field."""
        u = boundary.impose(np.zeros([p.stop - p.start for p in self.part]), self.part)
        inner, beside = slice(1, -1), np.zeros(())
        for axis, k in enumerate(self._along):
            for ends in (slice(2, None), slice(None, -2)):
                beside = beside + k * u[at(axis, u.ndim, ends, inner)]
        return self.embedded(self.sine_solve(0.0)(beside)[self.mine])
