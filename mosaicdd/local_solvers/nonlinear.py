"""Local solvers of nonlinear equations: Newton's method in every subdomain, or a network with a range.

Bound to a problem and planned for a block, they map perimeters to centre lines, and give the derivative of that
in the directions of the eight hats on a perimeter. The network's answer is the linear equation's exact one, in float64,
and a correction in float32. Perimeters and sources outside of what it was trained on are solved by Newton's
method instead: there the network's values are of no use.

Shape letters as in `bound`; ``R, C`` rows and columns of subdomains of a block's region, ``L = 2 (m - 1)`` nodes
of centre lines.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from mosaicdd.lattice.axes import pair
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.lattice.transfer import Batch
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.networks.correction import (
    ROUGHNESS,
    SOURCE,
    CorrectionNetwork,
    roughness,
)
from mosaicdd.local_solvers.source import Source, source_operator
from mosaicdd.local_solvers.square_newton import BATCH, Fields, SquareNewton, applied
from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.storage.model_file import ModelCard

_CHUNK = 256  # subdomains of a pass of the network, whose activations stay in the cache
_STEP = 1e-4  # of differences, in units of the solution


class NonlinearPlan(Protocol):
    """A local solver on a block."""

    def load(self, f: torch.Tensor | None) -> None:
        """Take a source at the nodes of the region, ``(rows, columns)``."""
        ...

    def solve(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write centre lines ``(B, L)`` for perimeters ``(B, P)`` to ``out``."""
        ...

    def responses(self, batch: Batch, g: torch.Tensor) -> torch.Tensor:
        """Return the derivatives of centre lines in the directions of the hats, ``(B, 8, L)``."""
        ...

    def outside(self, batch: Batch, g: torch.Tensor) -> torch.Tensor | None:
        """Say which subdomains are outside of the training range, ``(B,)``, if there is one."""
        ...


@dataclass(frozen=True)
class NonlinearSolver:
    """A local solver of a nonlinear problem.

    Parameters
    ----------
    name
        What a result reports.
    base
        The linear operator whose solution the iteration starts from.
    source
        Of the problem, which may be zero.
    learned
        A network and the ranges that it is for; None: Newton's method everywhere.
    refusal
        Why a network's answer is not given without a certificate; empty if it is.
    """

    name: str
    operator: Nonlinear
    base: EllipticOperator
    subdomain: Subdomain
    source: Source
    learned: "Learned | None" = None
    refusal: str = ""

    linear = False

    def plan(self, block: Block, device: torch.device, ring: bool = False) -> NonlinearPlan:
        """Plan it for a block.

        Parameters
        ----------
        ring
            Whether the subdomains along the domain's edge are solved by Newton's method anyway.
        """
        exact = NewtonPlan(self, block, device)
        return exact if self.learned is None else CorrectedPlan(self, exact, block, device, ring)

    def require_sound(self) -> None:
        """Refuse a network whose answer would have to be certified.

        Raises
        ------
        ValueError
            If there is a reason.
        """
        if self.refusal:
            raise ValueError(self.refusal)


class SubdomainNewton:
    """Newton's method in every subdomain: the exact local solver of nonlinear equations."""

    name = "subdomain-newton"
    spacing = None

    def __init__(self, cells: int = 32):
        self.cells = cells

    def bind(self, problem: Problem, grid: Grid) -> NonlinearSolver:
        """Return the solver for a problem's operator and source on a grid.

        Raises
        ------
        ValueError
            If the equation is linear or not self-adjoint, or a side is natural.
        """
        subdomain = Subdomain(self.cells, self.cells * grid.spacing)
        operator = nonlinear_operator(self.name, problem)
        base = linear_part(problem)
        source = Source(problem, grid, subdomain, base)
        return NonlinearSolver(self.name, operator, base, subdomain, source)


def nonlinear_operator(name: str, problem: Problem) -> Nonlinear:
    """Return a problem's operator, if a local solver of this kind can do it.

    Raises
    ------
    ValueError
        If not, in one sentence.
    """
    operator = problem.operator
    if not isinstance(operator, Nonlinear):
        raise ValueError(  # noqa: TRY004 - of what the user has given, the value is wrong
            f"{name} is for nonlinear equations, {problem.equation.name} is linear; take 'exact'"
        )
    if not operator.self_adjoint:
        raise ValueError(
            f"{name} is for equations whose derivative is symmetric, that of {problem.equation.name} "
            "is not; take 'exact'"
        )
    if not problem.plain:
        raise ValueError(
            f"{name} solves with values given on all sides of a rectangle; {problem.hindrance}: "
            "take 'exact'"
        )
    return operator


def linear_part(problem: Problem) -> EllipticOperator:
    """Return the linear operator of an equation that says it; else Laplace's."""
    equation, numbers = problem.equation, problem.parameters
    if not isinstance(equation, NonlinearEquation) or equation.linear is None:
        return EllipticOperator()
    if numbers.keys() != equation.parameters.keys():
        return EllipticOperator()
    return equation.linear(**numbers)


class NewtonPlan:
    """Newton's method in the subdomains of a block."""

    def __init__(self, solver: NonlinearSolver, block: Block, device: torch.device):
        square = solver.subdomain
        self.newton = SquareNewton(solver.operator, square.cells, square.spacing, device)
        self._windows = Windows(block, square.cells, solver.operator, device)
        self._reaction = torch.tensor(solver.base.c, dtype=torch.float64, device=device)
        self._lines = torch.from_numpy(square.centre_lines).to(device).T
        self._nodes = torch.from_numpy(square.perimeter).to(device).T
        self._hats = _hats(square, device)

    def load(self, f: torch.Tensor | None) -> None:
        """Take a source."""
        self._windows.load(f)

    def solve(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Solve one subdomain after another, in batches."""
        self.solve_at(*_places(batch, g.device), g, out)

    def solve_at(
        self, rows: torch.Tensor, columns: torch.Tensor, g: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Solve the subdomains at rows and columns of the region, ``(B,)`` each."""
        for some in _split(len(g), BATCH):
            u, _ = self._solved(rows[some], columns[some], g[some])
            out[some] = u[:, *self._lines]

    def responses(self, batch: Batch, g: torch.Tensor) -> torch.Tensor:
        """Solve with the derivative at the solutions."""
        return self.responses_at(*_places(batch, g.device), g)

    def responses_at(
        self, rows: torch.Tensor, columns: torch.Tensor, g: torch.Tensor
    ) -> torch.Tensor:
        """Return the responses of the subdomains at rows and columns of the region."""
        out = g.new_empty(len(g), len(self._hats), self._lines.shape[1])
        for some in _split(len(g), BATCH):
            u, fields = self._solved(rows[some], columns[some], g[some])
            partials = self.newton.derivative(u, self.newton.patches(fields))
            hats = self._hats[:, None].float()
            x = self.newton.solve_linear(partials, -applied(partials, hats), 1e-5)
            full = torch.nn.functional.pad(x, (1, 1, 1, 1))
            out[some] = full[..., *self._lines].transpose(0, 1).to(out)
        return out

    def outside(self, batch: Batch, g: torch.Tensor) -> None:
        """Return None: there are no data for which it is not made."""
        return

    def _solved(
        self, rows: torch.Tensor, columns: torch.Tensor, g: torch.Tensor
    ) -> tuple[torch.Tensor, Fields]:
        f, fields = self._windows.at(rows, columns)
        m = self.newton.cells
        u = g.new_zeros(len(g), m + 1, m + 1)
        u[:, *self._nodes] = g
        self.newton.linear(u, f, self._reaction)
        self.newton.solve(u, f, fields)
        return u, fields


class Windows:
    """A source and coefficients on the region of a block, cut into squares.

    Parameters
    ----------
    cells
        Of a square; squares lie half an overlap apart if they are subdomains.
    """

    def __init__(self, block: Block, cells: int, operator: Nonlinear, device: torch.device):
        self._cells, self._step = cells, block.lattice.spacing
        self._f: torch.Tensor | None = None
        self._numbers: dict[str, torch.Tensor] = {}
        self._varying: dict[str, torch.Tensor] = {}
        for name, field in operator.fields.items():
            if field.number is not None:
                number = torch.tensor(field.number, dtype=torch.float64, device=device)
                self._numbers[name] = number
                continue
            part = pair(slice(a, a + n + 1) for a, n in zip(block.origin, block.cells, strict=True))
            values = field.sample(block.lattice.grid, part)[0]
            self._varying[name] = self._cut(torch.from_numpy(values).to(device))

    def load(self, f: torch.Tensor | None) -> None:
        """Take a source at the nodes of the region."""
        self._f = None if f is None else self._cut(f)[..., 1:-1, 1:-1]

    def at(self, rows: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor | None, Fields]:
        """Return source and fields of the squares at rows and columns of the region."""
        f = None if self._f is None else self._f[rows, columns]
        varying = {name: values[rows, columns] for name, values in self._varying.items()}
        return f, self._numbers | varying

    def of(self, batch: Batch) -> tuple[torch.Tensor | None, Fields]:
        """Return source and fields of a batch of squares."""

        def cut(values: torch.Tensor) -> torch.Tensor:
            return values[batch].flatten(0, 1)

        f = None if self._f is None else cut(self._f)
        return f, self._numbers | {name: cut(values) for name, values in self._varying.items()}

    def _cut(self, values: torch.Tensor) -> torch.Tensor:
        side, step = self._cells + 1, self._step
        return values.unfold(0, side, step).unfold(1, side, step)


@dataclass(frozen=True)
class Learned:
    """A network of corrections and what it is for.

    Parameters
    ----------
    sigma
        The linear reaction, lengths in sides of the subdomain.
    largest, effect, rough
        Bounds of boundary values, of what the source does, and of the roughness.
    """

    network: CorrectionNetwork
    sigma: float
    largest: float
    effect: float
    rough: float

    @classmethod
    def of(cls, network: CorrectionNetwork, sigma: float, card: ModelCard) -> "Learned":
        """Take the bounds from a model's card."""
        effect, rough = card.ranges[SOURCE][1], card.ranges[ROUGHNESS][1]
        return cls(network, sigma, card.boundary_range[1], effect, rough)


class CorrectedPlan:
    """The linear equation's solutions, corrected by a network where that was trained."""

    def __init__(
        self,
        solver: NonlinearSolver,
        exact: NewtonPlan,
        block: Block,
        device: torch.device,
        ring: bool,
    ):
        if solver.learned is None:
            raise TypeError(f"{solver.name} has no network")
        self._exact, self._learned, self._block = exact, solver.learned, block
        square, network = solver.subdomain, solver.learned.network
        lines, points = square.centre_lines, network.points
        self._linear = _rows(ExactSolver(solver.base, square).matrix, lines, device)  # (P, L)
        at = np.concatenate([lines, points])
        inverse = source_operator(solver.base, square, at)
        self._inverse = torch.from_numpy(inverse).to(device)  # (I, L + K)
        self._count = len(lines)
        self._network = network.compiled(device)
        self._sigma = torch.tensor(solver.learned.sigma, dtype=torch.float32, device=device)
        rows, columns = block.region_subdomains
        self._lines = torch.zeros(rows, columns, len(lines), dtype=torch.float64, device=device)
        self._seen = torch.zeros(rows, columns, len(points), dtype=torch.float32, device=device)
        self._apart = torch.zeros(rows, columns, dtype=torch.bool, device=device)
        self._beyond = self._ring(device) if ring else self._apart
        hats = _hats(square, device)[:, *torch.from_numpy(square.perimeter).to(device).T]
        self._hats = hats  # (8, P)

    def load(self, f: torch.Tensor | None) -> None:
        """Solve the linear equation for a source, once."""
        self._exact.load(f)
        self._lines.zero_()
        self._seen.zero_()
        self._apart = self._beyond.clone()
        if f is None:
            return
        s = self._block.lattice.spacing
        inside = 2 * s - 1
        cut = f[1:, 1:].unfold(0, inside, s).unfold(1, inside, s)
        for row, patches in enumerate(cut):
            w = patches.flatten(1) @ self._inverse
            self._lines[row], seen = w.split([self._count, w.shape[1] - self._count], dim=1)
            self._seen[row] = seen.float()
            self._apart[row] |= seen.abs().amax(dim=1) > self._learned.effect

    def solve(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Correct the linear solutions; what is out of range is solved by Newton's method."""
        seen = self._seen[batch].flatten(0, 1)
        outside = self._apart[batch].flatten()
        torch.addmm(self._lines[batch].flatten(0, 1), g, self._linear, out=out)
        for some in _split(len(g), _CHUNK):
            x = torch.cat([g[some].float(), seen[some]], 1)
            out[some] += self._network(x, self._sigma)
            outside[some] |= self._beyond_range(x)
        self._replace(batch, g, outside, self._newton, out)

    def responses(self, batch: Batch, g: torch.Tensor) -> torch.Tensor:
        """Differentiate the correction by differences: the linear part is known."""
        out = (self._hats @ self._linear).expand(len(g), -1, -1).clone()
        seen, hats = self._seen[batch].flatten(0, 1), self._hats.float()
        for some in _split(len(g), _CHUNK):
            x = torch.cat([g[some].float(), seen[some]], 1)
            found = self._network.differences(x, self._sigma, hats, _STEP)
            for number, quotient in enumerate(found):
                out[some, number] += quotient
        self._replace(batch, g, self.outside(batch, g), self._exact.responses_at, out)
        return out

    def outside(self, batch: Batch, g: torch.Tensor) -> torch.Tensor:
        """Say which subdomains are left to Newton's method."""
        x = torch.cat([g.float(), self._seen[batch].flatten(0, 1)], 1)
        return self._apart[batch].flatten() | self._beyond_range(x)

    def _beyond_range(self, x: torch.Tensor) -> torch.Tensor:
        """Say which data are too large or too rough, ``(B,)``; NaN is."""
        learned, g = self._learned, x[:, : self._hats.shape[1]]
        inside = g.abs().amax(dim=1) <= learned.largest
        size = x.square().mean(dim=1).sqrt()
        return ~(inside & (roughness(g) <= learned.rough * size))

    def _newton(self, rows: torch.Tensor, columns: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        out = g.new_empty(len(g), self._count)
        self._exact.solve_at(rows, columns, g, out)
        return out

    def _replace(
        self,
        batch: Batch,
        g: torch.Tensor,
        outside: torch.Tensor,
        exactly: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
        out: torch.Tensor,
    ) -> None:
        if outside.any():
            rows, columns = _places(batch, g.device)
            out[outside] = exactly(rows[outside], columns[outside], g[outside])

    def _ring(self, device: torch.device) -> torch.Tensor:
        """Mark the subdomains along the domain's edge."""
        ring = torch.zeros(self._block.region_subdomains, dtype=torch.bool, device=device)
        for axis in (0, 1):
            for end, at in zip((0, -1), self._block.at_edge(axis), strict=True):
                if at:
                    ring.select(axis, end).fill_(True)
        return ring


def _places(batch: Batch, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row and column of each subdomain of a batch."""
    rows, columns = (torch.arange(p.start, p.stop, p.step or 1, device=device) for p in batch)
    grid = torch.meshgrid(rows, columns, indexing="ij")
    return grid[0].flatten(), grid[1].flatten()


def _split(count: int, largest: int) -> list[slice]:
    return [slice(start, min(start + largest, count)) for start in range(0, count, largest)]


def _hats(square: Subdomain, device: torch.device) -> torch.Tensor:
    """Return the hats on a perimeter, zero inside, ``(8, m + 1, m + 1)``."""
    nodes, s = 4 * square.cells, square.cells // 2
    away = np.abs(np.arange(nodes) - s * np.arange(8)[:, None])
    values = np.maximum(0.0, 1.0 - np.minimum(away, nodes - away) / s)
    hats = np.zeros((8, square.cells + 1, square.cells + 1))
    hats[:, *square.perimeter.T] = values
    return torch.from_numpy(hats).to(device)


def _rows(matrix: np.ndarray, nodes: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return the rows of a square's operator at nodes, ``(P, Q)``."""
    return torch.from_numpy(matrix[nodes[:, 0], nodes[:, 1]].T.copy()).to(device)
