r"""Newton's steps: by multigrid in the medium that the derivative is, or by conjugate gradients with sine transforms.

With $D$ the conductances around each node, the derivative of a symmetric equation without high contrast
is Laplace's operator but for a scaling and a reaction (Concus and Golub, 1973):

$$J \approx D^{1/2} (-\Delta_h + \beta) D^{1/2}.$$

Sine transforms invert the right-hand side, which preconditions. How many iterations that takes depends on the coefficients, not on the
grid, and nothing is factorised: a few iterations where a step in the medium takes the time of twenty.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, at, crossed, within
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.sine_solve import SineSolve
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.engines import engine_of
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.schwarz.nonlinear.newton_equations import NewtonEquations
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch

_STEP_ITERATIONS = 200  # iterations of a step


@dataclass(frozen=True)
class Steps:
    """What the steps for all problems of an engine have in common: where, and how."""

    ranks: Ranks
    lattice: Lattice
    place: FieldShare
    settings: SolveSettings
    clock: Stopwatch


@dataclass(frozen=True)
class Change:
    """A change of the values."""

    values: np.ndarray  # at the nodes that this rank owns
    # size, error: root mean squares over the domain: of the change, and what it lacks of that asked
    # for, estimated
    size: float
    error: float
    status: str  # as of an `Outcome`

    def at_nodes(self, place: FieldShare) -> torch.Tensor:
        """Return its absolute values at the lattice nodes that this rank owns."""
        block = place.block
        lattice_nodes = tuple(
            slice(start * block.lattice.spacing - own.start, None, block.lattice.spacing)
            for start, own in zip(block.start, place.own, strict=True)
        )
        owned = tuple(slice(count) for count in block.subdomains)
        return torch.from_numpy(abs(self.values[lattice_nodes][owned]))


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
        self, steps: Steps, equations: NewtonEquations, u: np.ndarray, *, transposed: bool = False
    ):
        self._steps, self._equations = steps, equations
        with steps.clock.part("derivative"):
            self._linear = steps.ranks.agree(lambda: equations.linearised(u, transposed=transposed))

    def __call__(self, force: np.ndarray, rtol: float) -> Change:
        """Solve on the whole grid; see `Step`."""
        steps, grid = self._steps, self._steps.lattice.grid
        linear = self._equations.driven(self._linear, force)
        settings = steps.settings.with_changes(
            rtol=rtol, certify=None, max_iterations=_STEP_ITERATIONS
        )
        engine = engine_of(linear.method)(
            steps.ranks, steps.lattice, linear, settings, clock=steps.clock
        )
        outcome = engine.solve(Boundary.zeros(grid))
        if outcome.field is None:
            raise RuntimeError("a step's field is kept")
        values = outcome.field.double().cpu().numpy()
        # Of all nodes: what changes between the lattice lines may not be seen on them.
        return Change(
            values,
            math.sqrt(steps.place.mean_square(values)),
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

    def __init__(self, place: FieldShare, layout: Layout):
        self._place, self._ranks = place, place.ranks
        shape = tuple(n - 2 for n in layout.shape)
        shards = [shard for shard in layout.placements if isinstance(shard, Shard)]
        inner = []
        for shard in shards:  # without the first and the last node
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
        field = np.zeros([p.stop - p.start for p in self._place.own])
        field[within(self.own, self._place.own)] = values
        return field

    def widened(self, values: np.ndarray) -> np.ndarray:
        """Return what is held of values of those owned."""
        return self._widen(np.ascontiguousarray(values))

    def sine_solve(self, reaction: float) -> SineSolve:
        """Plan the inverse of Laplace's operator and a reaction, both times the squared spacing."""

        def symbol(*part: slice) -> np.ndarray:
            along = (
                4 * k * np.sin(np.pi * np.arange(p.start + 1, p.stop + 1) / (2 * (n + 1))) ** 2
                for p, n, k in zip(part, self.owned.shape, self._along, strict=True)
            )
            return functools.reduce(np.add, crossed(*along)) + reaction

        return SineSolve(self.owned, self.held, symbol, self._ranks)

    def harmonic(self, boundary: Boundary) -> np.ndarray:
        """Return the harmonic surface over values on the edges, zero there: owned nodes of the field."""
        u = boundary.impose(np.zeros([p.stop - p.start for p in self.part]), self.part)
        inner, beside = slice(1, -1), np.zeros(())
        for axis, k in enumerate(self._along):
            for ends in (slice(2, None), slice(None, -2)):
                beside = beside + k * u[at(axis, u.ndim, ends, inner)]
        return self.embedded(self.sine_solve(0.0)(beside)[self.mine])


_MOST = 30  # iterations, from which on multigrid goes on; see `scripts/bench_nonlinear.py`
_TRIAL = 8  # of them, which show how many it will take
_STRIP = 2**15  # nodes that are handled at once: they stay in the cache


class SineStep:
    """Solves for what a derivative between inner nodes asks for; see `Step`.

    `ValueError` as `Step`.
    """

    def __init__(self, steps: Steps, inner: NodesInside, equations: NewtonEquations, u: np.ndarray):
        self._steps, self._inner = steps, inner
        ranks = steps.ranks
        with steps.clock.part("derivative"):
            derivative = ranks.agree(lambda: equations.derivative(u, inner.part))
            within = (slice(1, -1),) * derivative.axes
            c = derivative.reaction[within]
            scales = (derivative.diagonal() - derivative.reaction)[within] / inner.diagonal
            # Where flows are nothing beside a reaction they are no numbers.
            with np.errstate(divide="ignore", invalid="ignore"):
                sums = ranks.sum(np.array([(c / scales).sum(), scales.size, (scales <= 0).sum()]))
            self._sound = bool(sums[2] == 0 and np.isfinite(sums[0]))
            if self._sound:
                self._roots = inner.widened(1 / np.sqrt(scales))
                self._solve = inner.sine_solve(max(float(sums[0] / sums[1]), 0.0))
        self._count = int(sums[1])
        self._derivative = list(_cut(derivative))

    def __call__(self, force: np.ndarray, rtol: float) -> Change | None:
        """Solve by conjugate gradients, if these are quick; see `Step`."""
        if not self._sound:
            return None
        with self._steps.clock.part("cg"):
            return self._solved(force, rtol)

    def _solved(self, force: np.ndarray, rtol: float) -> Change | None:
        inner = self._inner
        r = inner.of_wide(force).copy()
        x, image = np.zeros_like(r), np.empty_like(r)
        p = np.zeros([n + 2 for n in r.shape])
        direction = p[(slice(1, -1),) * p.ndim]
        (first,) = self._sums((r, r))
        left, before, last = first, 0.0, 0.0
        for number in range(_MOST):
            if not left > rtol**2 * first:
                break
            if number == _TRIAL and left > first * rtol ** (2 * _TRIAL / _MOST):
                return None
            z = self._solve(self._roots[inner.mine] * r)
            z *= self._roots
            (gamma,) = self._sums((r, z[inner.mine]))
            p[inner.inside] *= gamma / before if before else 0.0
            p[inner.inside] += z
            for rows, around, derivative in self._derivative:
                image[rows] = derivative.apply(p[around])
            (energy,) = self._sums((direction, image))
            if not energy > 0:
                return None
            alpha, before = gamma / energy, gamma
            for rows, _, _ in self._derivative:
                x[rows] += alpha * direction[rows]
                r[rows] -= alpha * image[rows]
            last, left = alpha, *self._sums((r, r))
        if not left <= rtol**2 * first:
            return None
        squares = self._sums((x, x), (direction, direction))
        size, error = np.sqrt(squares / self._count)
        return Change(inner.embedded(x), float(size), float(last * error), "converged_rtol")

    def _sums(self, *pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Add up products over the nodes of all ranks."""
        return self._steps.ranks.sum(np.array([np.vdot(*pair) for pair in pairs]))


def _cut(whole: Conductances) -> Iterator[tuple[slice, slice, Conductances]]:
    """Cut the derivative into strips: their nodes, those with the ones around, and what is between them."""
    rows, *others = (n - 2 for n in whole.reaction.shape)
    step = max(1, _STRIP // math.prod(others))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        around = slice(start, stop + 2)
        yield slice(start, stop), around, whole.part(around, *(slice(0, n + 2) for n in others))
