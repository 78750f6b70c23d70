r"""Newton's steps: by multigrid, or by conjugate gradients with sine transforms.

With $D$ the conductances around each node, the derivative of a symmetric equation without high contrast
is Laplace's operator but for a scaling and a reaction (Concus and Golub, 1973):

$$J \approx D^{1/2} (-\Delta_h + \beta) D^{1/2}.$$

Sine transforms invert the right-hand side, which preconditions. How many iterations that takes depends on the coefficients, not on the
grid, and nothing is factorised. Where float32 has the digits that are asked for, all is in float32: then an iteration
moves half as much memory, and the next residual, in float64 and by the equation, shows what the step was worth.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import DTypeLike

from mosaicdd.axes import Slices, at, crossed, ends_of, within
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.partition import Partition
from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.safe_norms import safe_power
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.jacobian import NotEllipticError
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.base_engine import Stopwatch
from mosaicdd.solvers.multigrid.multigrid_system import MultigridSystem
from mosaicdd.solvers.multigrid.vector_operations import (
    Image,
    adding,
    dot,
    planned,
    stepping,
    turning,
)
from mosaicdd.solvers.newton.newton_equations import NewtonEquations
from mosaicdd.solvers.prepared_system import Change, solve_at_nodes
from mosaicdd.solvers.settings import SolveSettings, StoppingRule
from mosaicdd.solvers.transforms.sine_solve import SineSolve

_STEP_ITERATIONS = 200  # iterations of a step


@dataclass(frozen=True)
class NewtonContext:
    """Ghost nodes, settings and clock, which the steps for all problems of an engine share."""

    place: GhostNodes
    settings: SolveSettings
    clock: Stopwatch

    @property
    def partition(self) -> Partition:
        """The partition of the grid over the ranks."""
        return self.place.partition

    @property
    def ranks(self) -> Ranks:
        """The ranks of the partition."""
        return self.place.ranks


Step = Callable[[np.ndarray, float], Change | None]
"""``step(force, rtol)``: the change whose product with the derivative at some values is a force; all ranks together.

``force``: times the squared spacing, a wide array; ``rtol``: bound of the residual, relative to the force, in the 2-norm.
None on all ranks, if this is not the way to find it. `ValueError` on all ranks, if the derivative is that of no elliptic
equation.
"""


def multigrid_step(
    steps: NewtonContext, equations: NewtonEquations, u: np.ndarray, *, transposed: bool = False
) -> Step:
    """Return the step by multigrid, with the derivative at values, or its transposed."""
    with steps.clock.part("derivative"):
        linear = steps.ranks.run_on_all(lambda: equations.linearised(u, transposed=transposed))
    prepared: list[MultigridSystem] = []  # with the first force

    def step(force: np.ndarray, rtol: float) -> Change:
        if not prepared:
            device = steps.settings.tensors["device"]
            prepared.append(MultigridSystem(steps.partition, *linear, steps.clock, device=device))
        rule = StoppingRule(rtol, steps.settings.atol, _STEP_ITERATIONS)
        owned = steps.place.without_ghosts(force)
        with steps.clock.part("multigrid"):
            solved = solve_at_nodes(prepared[0], steps.partition, owned, rule, by_measure=True)
        status = "converged_rtol" if solved.residual <= rtol else solved.status
        return Change(solved.values, solved.size, solved.error, status)

    return step


class NodesInside:
    """The unknowns of a problem with values on all sides: layouts, and transforms.

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
        self._solves: dict[np.dtype, SineSolve] = {}
        self._widen = Redistribution(self.owned, self.held, self._ranks, np.float64)
        # What conducts along each axis, times the squared spacing, as `Medium` has it.
        sides = place.grid.aspect or (1.0,) * len(shape)
        self._along = [side**-2 for side in sides]
        self.diagonal = 2 * math.fsum(self._along)

    def of_wide(self, u: np.ndarray) -> np.ndarray:
        """Return a view of a wide array at the unknowns that this rank owns."""
        return self._place.at(self.own, u)

    def embedded(self, values: np.ndarray) -> np.ndarray:
        """Return values of those owned with zeros on the edge of the domain: owned nodes of the field."""
        field = np.zeros([p.stop - p.start for p in self._place.owned])
        field[within(self.own, self._place.owned)] = values
        return field

    def widened(self, values: np.ndarray) -> np.ndarray:
        """Return values at the held nodes, from those at the owned ones."""
        return self._widen(np.ascontiguousarray(values))

    def inverse(
        self, reaction: float, dtype: DTypeLike = np.float64
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return the inverse of Laplace's operator and a reaction, both times the squared spacing, of owned arrays."""
        kind = np.dtype(dtype)
        if kind not in self._solves:
            self._solves[kind] = SineSolve(self.owned, self.held, self._ranks, dtype=kind)
        solve = self._solves[kind]

        def symbol(*part: slice) -> np.ndarray:
            along = (
                4 * k * np.sin(np.pi * np.arange(p.start + 1, p.stop + 1) / (2 * (n + 1))) ** 2
                for p, n, k in zip(part, self.owned.shape, self._along, strict=True)
            )
            return functools.reduce(np.add, crossed(*along)) + reaction

        inverse = solve.inverse(symbol)
        return lambda values: solve(values, inverse)

    def harmonic(self, boundary: Boundary) -> np.ndarray:
        """Return the harmonic surface over values on the edges, zero there: owned nodes of the field."""
        u = boundary.impose(np.zeros([p.stop - p.start for p in self.part]), self.part)
        inner, beside = slice(1, -1), np.zeros(())
        for axis, k in enumerate(self._along):
            for ends in (slice(2, None), slice(None, -2)):
                beside = beside + k * u[at(axis, u.ndim, ends, inner)]
        return self.embedded(self.inverse(0.0)(beside)[self.mine])


_MOST = 30  # iterations, from which on multigrid goes on; see `benchmarks/nonlinear_peers.py`
_TRIAL = 8  # of them, which show how many it will take
_STRIP = 2**18  # numbers of a vector that are handled at once
_SHORT = 1e-5  # bounds of residuals down to which float32 is long enough


def sine_step(
    steps: NewtonContext, inner: NodesInside, equations: NewtonEquations, u: np.ndarray
) -> Step:
    """Return the step by conjugate gradients with sine transforms, with the derivative at values.

    `NotEllipticError` on all ranks, if that is of no elliptic equation.
    """

    @functools.cache
    def gradients(dtype: type) -> _Gradients | None:
        with steps.clock.part("derivative"):
            return _gradients_of(steps.ranks, inner, equations, u, dtype)

    if gradients(np.float32) is None:
        gradients(np.float64)

    def step(force: np.ndarray, rtol: float) -> Change | None:
        solve = gradients(np.float32) if rtol >= _SHORT else None
        solve = gradients(np.float64) if solve is None else solve
        if solve is None:
            return None
        with steps.clock.part("cg"):
            result = solve(inner.of_wide(force), rtol)
        if result is None:
            return None
        values, last, unit = result
        nodes = math.prod(inner.owned.shape)
        squares = steps.ranks.sum(np.array([np.vdot(values, values), last]))
        size, error = unit * np.sqrt(squares / nodes)
        change = inner.embedded(unit * values)
        return Change(change, float(size), float(error), "converged_rtol")

    return step


def _gradients_of(
    ranks: Ranks, inner: NodesInside, equations: NewtonEquations, u: np.ndarray, dtype: type
) -> "_Gradients | None":
    """Return conjugate gradients in numbers of a type; None where it is too short for the derivative, or nothing flows.

    `NotEllipticError` where that is of no elliptic equation.
    """
    # Numbers may be too large or too small for the type, and flows nothing beside a reaction.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        try:
            derivative = ranks.run_on_all(lambda: equations.derivative(u, inner.part, dtype))
        except NotEllipticError:  # on all ranks; in shorter numbers what is small is zero
            if dtype == np.float64:
                raise
            return None
        inside = (slice(1, -1),) * derivative.axes
        c = derivative.reaction[inside]
        scales = derivative.diagonal()[inside]
        scales -= c
        scales /= inner.diagonal
        share = (c / scales).sum(dtype=float)
        lacking = scales.size - ((scales > 0) & np.isfinite(scales)).sum()
    share, count, lacking = ranks.sum(np.array([share, scales.size, lacking]))
    if lacking or not np.isfinite(share):
        return None
    return _Gradients(ranks, inner, derivative, scales, max(share / count, 0.0))


class _Gradients:
    """Conjugate gradients for one derivative, in numbers of one type.

    Vectors are those of the nodes of `NodesInside.part`, flat, and zero at the outermost, but for those of directions that
    other ranks own.
    """

    def __init__(
        self,
        ranks: Ranks,
        inner: NodesInside,
        derivative: Conductances,
        scales: np.ndarray,
        reaction: float,
    ):
        self._ranks, self._inner, dtype = ranks, inner, scales.dtype
        self._shape = shape = derivative.reaction.shape
        self._inside = (slice(1, -1),) * len(shape)
        self._roots: np.ndarray = inner.widened(1 / np.sqrt(scales, dtype=float)).astype(dtype)
        self._solve = inner.inverse(reaction, dtype)
        self._owned: np.ndarray = np.empty(scales.shape, dtype)
        self._r, self._p, self._z, self._image = (
            torch.from_numpy(np.zeros(np.prod(shape), dtype)) for _ in range(4)
        )
        # Sums of directions, whose rounding no recurrence would show.
        self._x = torch.zeros(len(self._r), dtype=torch.float64)
        self._multiply = planned(list(self._images(derivative)))
        self._turn = turning(self._p[None], self._z[None], self._r[None])
        self._add = adding(self._x[None], self._p[None])
        self._step = stepping(self._r, self._image)

    def __call__(self, force: np.ndarray, rtol: float) -> tuple[np.ndarray, float, float] | None:
        """Solve for a force at the nodes inside; None if that is slow.

        Returns the values, the square of their last part, and the unit of both.
        """
        inner, inside = self._inner, self._inside
        size = self._ranks.largest(float(abs(force).max(initial=0.0))) or 1.0
        x, r, p, z, image = (
            values.numpy().reshape(self._shape)
            for values in (self._x, self._r, self._p, self._z, self._image)
        )
        for values in (x, r, p):
            values[...] = 0.0
        np.divide(force, size, out=r[inside], casting="same_kind")
        (first,) = self._total(dot(self._r, self._r))
        left, before, alpha = first, 0.0, 0.0
        for number in range(_MOST):
            if not left > rtol**2 * first:
                break
            if number == _TRIAL and left > first * rtol ** (2 * _TRIAL / _MOST):
                return None
            np.multiply(self._roots[inner.mine], r[inside], out=self._owned)
            np.multiply(self._roots, self._solve(self._owned), out=z[inner.inside])
            (gamma,) = self._total(dot(self._r, self._z))
            self._turn(gamma / before if before else 0.0)
            self._multiply()
            for axis in range(image.ndim):  # which the sums have run over, too
                np.moveaxis(image, axis, 0)[[0, -1]] = 0.0
            (energy,) = self._total(dot(self._p, self._image))
            if not energy > 0:
                return None
            alpha, before = gamma / energy, gamma
            for s in _pieces(0, len(self._x)):
                self._add(alpha, s)
            (left,) = self._total(self._step(-alpha))
        if not left <= rtol**2 * first:
            return None
        power = safe_power(size)
        size *= power
        last = np.square(size * alpha * p[inside].astype(float)).sum()
        return size * x[inside], float(last), 1 / power

    def _images(self, derivative: Conductances) -> Iterator[Image]:
        """Yield the products of the derivative and directions, piece by piece."""
        strides = [math.prod(self._shape[axis + 1 :]) for axis in range(len(self._shape))]
        couplings = [  # of nodes, and how far away the others are
            (self._flat(k, ends_of(step)[0]), sum(map(operator.mul, step, strides)))
            for step, k, _ in derivative.edges()
        ]
        reaction: torch.Tensor | None = None
        if derivative.reaction[self._inside].any():
            reaction = self._flat(derivative.reaction, (slice(None),) * len(self._shape))
        for s in _pieces(sum(strides), len(self._r) - sum(strides)):
            products = [
                (k[s.start - back : s.stop - back], self._p[s.start + way : s.stop + way])
                for k, distance in couplings
                for back, way in ((0, distance), (distance, -distance))
            ]
            excess = None if reaction is None else reaction[s]
            yield Image(self._image[s], self._p[s], products, excess)

    def _flat(self, values: np.ndarray, nodes: Slices) -> torch.Tensor:
        """Return values of some nodes, zero at the others."""
        every = np.zeros(self._shape, self._owned.dtype)
        every[nodes] = values
        return torch.from_numpy(every.ravel())

    def _total(self, number: float) -> list[float]:
        return self._ranks.sum(np.array([number])).tolist()


def _pieces(first: int, end: int) -> Iterator[slice]:
    return (slice(a, min(a + _STRIP, end)) for a in range(first, end, _STRIP))
