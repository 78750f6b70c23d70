r"""The field of a nonlinear problem from the values on its lattice lines, and how far it is from the solution.

Inside of the elements the equation is solved by Newton's method, so what is left of the discrete equation,
$r = F(u) - f$, is left on the lattice lines. One two-level iteration with exact local solvers would change
them by about $(I - T')^{-1} \delta$, where in each subdomain $\delta = -J^{-1} r$: the estimate of the error. Of each
derivative $J$ it takes means over the subdomain, so $\delta$ comes by sine transforms; by the same means over elements
these are filled.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import batch_shape, batches
from mosaicdd.local_solvers.nonlinear.nonlinear import NonlinearSolver, Windows, split
from mosaicdd.local_solvers.nonlinear.square_newton import Fields, Means, SquareNewton
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.error_estimate import ErrorEstimate
from mosaicdd.schwarz.nonlinear.nonlinear_iteration import NonlinearIteration
from mosaicdd.schwarz.stopping import Monitor

_ELEMENTS, _SUBDOMAINS = 128, 256  # whose vectors stay in the cache
_SAMPLED = 2048  # elements whose derivatives are sampled at once
# Cells between the nodes where the residual of a smooth surface is taken, and what it is measured by.
_CHECKED, _APART = 8, 8
_SAFETY = 2.0  # of error estimates, which are linear
# Residual whose squares add up to a number in float32, over all nodes of a subdomain.
_LARGEST = 1e17
# Of the last step in an element, beside the tolerance: one of Newton's leaves a thousandth of itself, one with means
# a tenth, down to rounding in float32.
_LOOSER, _LOOSEST, _TIGHTEST = 100.0, 1e-3, 1e-7
_RELAXED, _ROUNDED = 10.0, 1e-5


class NewtonFill:
    """Fills the region of a block.

    ``tolerance``: of the values on the lines, relative; between them the error is a tenth of that.

    Attributes
    ----------
    u
        Values at its nodes, ``(rows, columns)``.
    residual
        ``F(u) - f`` times the squared spacing at its inner nodes, in float32.
    left
        How far from convergence each of its elements is, ``(rows, columns)``; 0: it has converged.
    """

    def __init__(
        self, solver: NonlinearSolver, block: Block, device: torch.device, tolerance: float
    ):
        self._tolerance = min(max(_LOOSER * tolerance, _TIGHTEST), _LOOSEST)
        self._relaxed = min(_RELAXED * tolerance, _LOOSEST)
        s = block.lattice.spacing
        self._block, self._solver = block, solver
        self._element = SquareNewton(solver.operator, s, block.lattice.grid.spacing, device)
        self._subdomain = SquareNewton(
            solver.operator, solver.subdomain.cells, block.lattice.grid.spacing, device
        )
        self._windows = Windows(block, s, solver.operator, device)
        self._reaction = torch.tensor(solver.base.c, dtype=torch.float64, device=device)
        nodes = [n + 1 for n in block.cells]
        self.u = torch.zeros(*nodes, dtype=torch.float64, device=device)
        self.residual = torch.zeros(nodes[0] - 2, nodes[1] - 2, device=device)
        self._f: torch.Tensor | None = None
        self.left = torch.zeros([n // s for n in block.cells], dtype=torch.float64, device=device)
        self._means = torch.empty(
            3, *(n // s for n in block.cells), dtype=torch.float32, device=device
        )
        self._part = block.nodes
        self._operator = solver.operator.on(block.lattice.grid, self._part)

    def load(self, f: torch.Tensor | None) -> None:
        """Take a source at the nodes of the region."""
        self._f = f
        self._windows.load(f)

    def fill(self, v: Interface) -> None:
        """Solve inside of all elements."""
        s, u = self._block.lattice.spacing, self.u
        u[::s] = v.lines[0][0]
        u[:, ::s] = v.lines[1][0].T
        squares = u.unfold(0, s + 1, s).unfold(1, s + 1, s)
        everything = tuple(slice(0, count) for count in squares.shape[:2])
        for batch in batches(everything, _SAMPLED):
            shape = batch_shape(batch)
            values = squares[batch].reshape(-1, s + 1, s + 1)
            f, fields = self._windows.of(batch)
            parts = split(len(values), _ELEMENTS)
            for portion in parts:
                self._element.linear(
                    values[portion], None if f is None else f[portion], self._reaction
                )
            means = torch.stack(self._element.means(values, fields))
            self._means[:, *batch] = means.view(3, *shape)
            left = []
            for portion in parts:
                data = None if f is None else f[portion], _some(fields, portion)
                left.append(self._solve(values[portion], *data, Means(*means[:, portion])))
            self.left[batch] = torch.cat(left).view(*shape)
            squares[(*batch, slice(1, -1), slice(1, -1))] = values.view(*shape, s + 1, s + 1)[
                ..., 1:-1, 1:-1
            ]

    def _solve(
        self, u: torch.Tensor, f: torch.Tensor | None, fields: Fields, means: Means
    ) -> torch.Tensor:
        """Solve inside of elements: where float32 does, by means of the derivative, and else by Newton's method.

        Return how far from convergence each is.
        """
        if self._relaxed < _ROUNDED:
            return self._element.solve(u, f, fields, self._tolerance)
        left = u.new_zeros(len(u))
        rest = ~self._element.relax(u, f, fields, means, self._relaxed)
        if rest.any():
            others, force = u[rest], None if f is None else f[rest]
            left[rest] = self._element.solve(others, force, _some(fields, rest), self._tolerance)
            u[rest] = others
        return left

    def measure(self) -> tuple[float, float]:
        """Take the residual; return its square sum over the owned nodes, and that of what it is measured by.

        That is the right-hand side of the equation linearised at the field, $J (u - g) - F(u) + f$ with the values
        $g$ on the edges: what Newton's method measures it by, too, but linearises at a smoother surface. Away from the
        edges it is taken at some of the nodes.
        """
        values = self.u.cpu()
        if self._relaxed >= _ROUNDED:
            values = values.float()
        residual = torch.from_numpy(self._operator.residual(values.numpy()))
        if self._f is not None:
            residual.sub_(self._f[1:-1, 1:-1].cpu(), alpha=self._block.lattice.grid.spacing**2)
        owned = tuple(
            slice(max(p.start, 1), min(p.stop, n - 1))
            for p, n in zip(self._block.owned_nodes()[0], self.u.shape, strict=True)
        )
        mine = residual[*(slice(p.start - 1, p.stop - 1) for p in owned)]
        self.residual.copy_(residual)
        return float(torch.linalg.vector_norm(mine)) ** 2, self._squares_of_given(owned)

    def _squares_of_given(self, owned: Slices) -> float:
        """Return the square sum of the right-hand side over the owned nodes."""
        apart = math.gcd(self._block.lattice.spacing, _APART)
        total, inner = 0.0, list(owned)
        for axis in (0, 1):
            whole = inner[axis]
            low, high = self._block.at_edge(axis)
            inner[axis] = slice(whole.start + low, whole.stop - high)
            for at, beside in ((low, whole.start), (high, whole.stop - 1)):
                if at:
                    along = [*inner[:axis], slice(beside, beside + 1), *inner[axis + 1 :]]
                    total += float(self._given(tuple(along), 1).square().sum())
        thinned = tuple(slice(-(-p.start // apart) * apart, p.stop) for p in inner)
        return total + apart**2 * float(self._given(thinned, apart).square().sum())

    def _given(self, part: Slices, apart: int) -> torch.Tensor:
        """Return the right-hand side at every so many of some nodes of the region."""
        wide = tuple(slice(p.start - 1, p.stop + 1) for p in part)
        fields = _some(self._sampled_fields, wide)
        u = v = self.u[wide]
        for axis in (0, 1):
            ends = (0, wide[axis].start == 0), (-1, wide[axis].stop == self.u.shape[axis])
            for (end, reached), at in zip(ends, self._block.at_edge(axis), strict=True):
                if at and reached:
                    v = u.clone() if v is u else v
                    v.select(axis, end).zero_()
        b = self._element.linearised(u, v, fields, apart)
        if self._f is not None:
            h = self._block.lattice.grid.spacing
            b.add_(self._f[part][::apart, ::apart], alpha=h**2)
        return b

    def check(self, boundary: Boundary) -> None:
        """Raise `ValueError` if the residual between values on the sides, or its square, is no float32."""
        places = [
            (np.arange(p.start, p.stop - 2, _CHECKED)[:, None] + np.arange(3)).ravel()
            for p in self._part
        ]
        u = torch.from_numpy(boundary.at(places[0][:, None], places[1])).to(self.u)
        here = np.ix_(*(nodes - p.start for nodes, p in zip(places, self._part, strict=True)))
        fields = _some(self._sampled_fields, here)
        residual = self._element.sampled_residual(u, 3, fields)
        if not residual.isfinite().all():
            raise ValueError(
                "the equation's residual is not finite for values between those on the sides"
            )
        largest = float(residual.abs().max()) * self._element.spacing**2
        if largest > _LARGEST:
            raise ValueError(
                f"the equation's residual, times the squared spacing, is up to {largest:.0e} for values between "
                f"those on the sides; steps in subdomains, in float32, take up to {_LARGEST:.0e}: take 'exact'"
            )

    def estimate(
        self, v: Interface, iterate: NonlinearIteration, monitor: Monitor
    ) -> ErrorEstimate:
        """Estimate the error by the step of an iteration with exact local solvers; infinite if that is no number."""
        step = v.like()
        iterate.step(list(self._changes(iterate)), step)
        rms = _SAFETY * float(monitor.distance(step, v.like())[0])
        rms = rms if math.isfinite(rms) else math.inf
        nodes = (_SAFETY * step.nodes()[0].abs()).nan_to_num(math.inf, math.inf)
        return ErrorEstimate(rms, rms, nodes, self._block.centres)

    def _changes(self, iterate: NonlinearIteration) -> Iterator[torch.Tensor]:
        """Yield ``-J^-1 r`` on the centre lines of the subdomains of each batch."""
        m, s = self._subdomain.cells, self._block.lattice.spacing
        windows = self.residual.unfold(0, m - 1, s).unfold(1, m - 1, s)
        means = torch.nn.functional.avg_pool2d(self._means, m // s, 1)
        for batch in iterate.members:
            r = windows[batch].reshape(-1, m - 1, m - 1)
            here = means[:, *batch].flatten(1)
            changes = torch.empty(len(r), 2, m - 1, dtype=torch.float64, device=r.device)
            for portion in split(len(r), _SUBDOMAINS):
                lines = self._subdomain.centre_lines(r[portion], Means(*here[:, portion]))
                changes[portion] = torch.stack(lines, dim=1)
            yield changes.neg_().flatten(1)

    @property
    def _sampled_fields(self) -> Fields:
        """Numbers, and the values of fields at the nodes of the region."""
        return {
            name: (values[0, 0] if values.stride() == (0, 0) else values).to(self.u.device)
            for name, values in self._operator.fields.items()
        }


def _some(fields: Fields, chosen: Any) -> Fields:
    """Return the fields of some squares, or at some nodes."""
    return {name: values[chosen] if values.ndim else values for name, values in fields.items()}
