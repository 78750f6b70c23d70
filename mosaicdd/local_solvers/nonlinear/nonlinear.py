"""Local solvers of nonlinear equations: Newton's method in every subdomain, or what is planned with it.

Bound to a problem and planned for a block, they map perimeters to centre lines, and give the derivative of that
in the directions of the eight hats on a perimeter.

Shape letters as in `bound`; ``R, C`` rows and columns of subdomains of a block's region, ``L = 2 (m - 1)`` nodes
of centre lines.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.lattice.transfer import Batch, batch_shape
from mosaicdd.local_solvers.bound import BoundSolver, require_plain
from mosaicdd.local_solvers.exact import MULTIGRID, PER_PROBLEM
from mosaicdd.local_solvers.nonlinear.square_newton import BATCH, Fields, SquareNewton, applied
from mosaicdd.local_solvers.source import Source
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.unsupported import Unsupported

Share = Callable[[np.ndarray, Callable[[np.ndarray], np.ndarray]], np.ndarray]
"""Does work, row by row, for this rank's rows ``(n, width)``: ``share(rows, work)``."""


class NonlinearPlan(Protocol):
    """A local solver on a block."""

    closely: bool  # whether later responses may be better than the first ones

    @property
    def left(self) -> torch.Tensor:
        """How far from convergence the last `solve` left each subdomain of the region; 0: it has converged."""
        ...

    def load(self, f: torch.Tensor | None) -> None:
        """Take a source at the nodes of the region, ``(rows, columns)``."""
        ...

    def solve(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write centre lines ``(B, L)`` for perimeters ``(B, P)`` to ``out``; zeros for what is left to `rest`."""
        ...

    def responses(self, batch: Batch, g: torch.Tensor, *, closely: bool) -> torch.Tensor:
        """Return the derivatives of centre lines in the directions of the hats, ``(B, 8, L)``, or zeros as `solve`.

        ``closely`` takes time for it, as the first ones have not been good enough.
        """
        ...

    def rest(
        self, share: Share, *, responses: bool = False
    ) -> Iterable[tuple[Batch, torch.Tensor]]:
        """Give, by batch, what has been left since the last call: centre lines, or responses; zeros for the others.

        All ranks call it together; ``share`` has any of them do the work.
        """
        ...

    def outside(self, batch: Batch, g: torch.Tensor) -> torch.Tensor | None:
        """Say which subdomains are outside of the training range, ``(B,)``, if there is one."""
        ...


_BYTES = 40  # for each node at least: field, residual, responses


@dataclass
class NonlinearSolver(BoundSolver):
    """A local solver of a nonlinear problem."""

    name: str  # what a result reports
    operator: Nonlinear
    base: EllipticOperator  # the linear operator whose solution the iteration starts from
    subdomain: Subdomain
    source: Source  # of the problem, which may be zero
    # Plans a network for a block, with this solver, Newton's method for what is out of its range,
    # and whether the subdomains along the domain's edge are left to that anyway; None: Newton's
    # method everywhere
    learned: "Callable[[NonlinearSolver, NewtonPlan, bool], NonlinearPlan] | None" = None
    refusal: str = ""  # why a network's answer is not given without a certificate; empty if it is

    linear = False
    method = "nonlinear"
    one_by_one = True

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return what the fields and responses take, or the multigrid of a certificate."""
        each = PER_PROBLEM if problems > 1 else 0
        return (MULTIGRID if certified else _BYTES) + problems * each

    def plan(self, block: Block, device: torch.device, ring: bool = False) -> NonlinearPlan:
        """Plan it for a block; along the domain's edge, the ``ring``, perhaps by Newton's method anyway."""
        exact = NewtonPlan(self, block, device)
        return exact if self.learned is None else self.learned(self, exact, ring)

    def require_sound(self) -> None:
        """Raise `ValueError` if there is a reason why a network's answer would have to be certified."""
        if self.refusal:
            raise ValueError(self.refusal)


class SubdomainNewton:
    """Newton's method in every subdomain: the exact local solver of nonlinear equations."""

    name = "subdomain-newton"
    spacing = None

    def __init__(self, cells: int = 32):
        self.cells = cells

    def bind(self, problem: Problem, grid: Grid) -> NonlinearSolver:
        """Return the solver for a problem's operator and source on a grid; errors as `nonlinear_operator`."""
        subdomain = Subdomain(self.cells, self.cells * grid.spacing)
        operator = nonlinear_operator(self.name, problem)
        base = linear_part(problem)
        source = Source(problem, grid, subdomain, base)
        return NonlinearSolver(self.name, operator, base, subdomain, source)


def nonlinear_operator(name: str, problem: Problem) -> Nonlinear:
    """Return a problem's operator; raise `Unsupported` where subdomains, which are squares, do not solve it.

    If it is linear or not self-adjoint, a side is natural, cells are no squares, or flows have a factor.
    """
    operator = problem.operator
    if not isinstance(operator, Nonlinear):
        raise Unsupported(
            f"{name} is for nonlinear equations, {problem.equation.name} is linear; take 'exact'"
        )
    if not operator.self_adjoint:
        raise Unsupported(
            f"{name} is for equations whose derivative is symmetric, that of {problem.equation.name} "
            "is not; take 'exact'"
        )
    require_plain(name, problem)
    if operator.aspect:
        cell = problem.domain.grid().cell
        raise Unsupported(f"{name} is for square cells, these are {cell}: take 'exact'")
    for field in operator.in_cells if operator.factor is None else (operator.factor,):
        raise Unsupported(
            f"{name} is for equations without the field {field} of {problem.equation.name} as it is given here; "
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

    closely = True

    def __init__(self, solver: NonlinearSolver, block: Block, device: torch.device):
        square = solver.subdomain
        self.block, self.square, self.device = block, square, device
        self.newton = SquareNewton(solver.operator, square.cells, square.spacing, device)
        self._windows = Windows(block, square.cells, solver.operator, device)
        self._reaction = torch.tensor(solver.base.c, dtype=torch.float64, device=device)
        self._lines = torch.from_numpy(square.centre_lines).to(device).T
        self._nodes = torch.from_numpy(square.perimeter).to(device).T
        self._hats = hats_of(square, device)
        self.left = torch.zeros(block.region_subdomains, dtype=torch.float64, device=device)

    @property
    def numbers(self) -> Fields:
        """The coefficients that are numbers."""
        return self._windows.numbers

    def load(self, f: torch.Tensor | None) -> None:
        """Take a source."""
        self._windows.load(f)

    def solve(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Solve one subdomain after another, in batches."""
        everything = g.new_ones(len(g), dtype=torch.bool)
        solved = self.solved(self.told(batch, everything, g))
        out.copy_(solved[:, :-1])
        self.left[batch] = solved[:, -1].view(batch_shape(batch))

    def told(self, batch: Batch, members: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        """Return what there is to know of members ``(B,)`` of a batch: perimeters, source and fields, a row for each."""
        return torch.cat([g[members], *self._windows.told(batch, members)], dim=1)

    def solved(self, told: torch.Tensor) -> torch.Tensor:
        """Return of each row the centre lines, and how far from convergence they are, ``(B, L + 1)``."""
        out = told.new_empty(len(told), self._lines.shape[1] + 1)
        for portion in split(len(told), BATCH):
            u, _, left = self._solved(told[portion])
            out[portion, :-1], out[portion, -1] = u[:, *self._lines], left
        return out

    def responses(self, batch: Batch, g: torch.Tensor, *, closely: bool) -> torch.Tensor:
        """Solve with the derivative at the solutions."""
        everything = g.new_ones(len(g), dtype=torch.bool)
        return self.derived(self.told(batch, everything, g)).unflatten(1, (len(self._hats), -1))

    def derived(self, told: torch.Tensor) -> torch.Tensor:
        """Return of each row of `told` the responses, ``(B, 8 L)``."""
        out = told.new_empty(len(told), len(self._hats) * self._lines.shape[1])
        for portion in split(len(told), BATCH):
            u, fields, _ = self._solved(told[portion])
            out[portion] = self.derivative(u, fields).flatten(1)
        return out

    def rest(self, share: Share, *, responses: bool = False) -> tuple[()]:
        """Return nothing: all is solved at once, as all ranks have as much of it."""
        return ()

    def derivative(self, u: torch.Tensor, fields: Fields) -> torch.Tensor:
        """Return the responses at values of squares, ``(B, 8, L)`` of float32."""
        partials = self.newton.derivative(u, self.newton.patches(fields))
        x = self.newton.solve_linear(
            partials, -applied(partials, self._hats[:, None].float()), 1e-5
        )
        full = torch.nn.functional.pad(x, (1, 1, 1, 1))
        return full[..., *self._lines].transpose(0, 1)

    def outside(self, batch: Batch, g: torch.Tensor) -> None:
        """Return None: there are no data for which it is not made."""
        return

    def _solved(self, told: torch.Tensor) -> tuple[torch.Tensor, Fields, torch.Tensor]:
        m = self.newton.cells
        g, f, fields = self._windows.parted(told, self._nodes.shape[1])
        u = g.new_zeros(len(g), m + 1, m + 1)
        u[:, *self._nodes] = g
        self.newton.linear(u, f, self._reaction)
        return u, fields, self.newton.solve(u, f, fields)


class Windows:
    """A source and coefficients on the region of a block, cut into squares, half an overlap apart if subdomains."""

    def __init__(self, block: Block, cells: int, operator: Nonlinear, device: torch.device):
        self._cells, self._step = cells, block.lattice.spacing
        self._f: torch.Tensor | None = None
        self.numbers: dict[str, torch.Tensor] = {}
        self._varying: dict[str, torch.Tensor] = {}
        for name, field in operator.fields.items():
            if field.number is not None:
                number = torch.tensor(field.number, dtype=torch.float64, device=device)
                self.numbers[name] = number
                continue
            values = field.sample(block.lattice.grid, block.nodes)[0]
            self._varying[name] = self._cut(torch.from_numpy(values).to(device))

    def load(self, f: torch.Tensor | None) -> None:
        """Take a source at the nodes of the region."""
        self._f = None if f is None else self._cut(f)[..., 1:-1, 1:-1]

    def told(self, batch: Batch, members: torch.Tensor) -> list[torch.Tensor]:
        """Return source and fields that vary of members ``(B,)`` of a batch, those of each in a row."""
        parts = [*([] if self._f is None else [self._f]), *self._varying.values()]
        return [values[batch][members.view(batch_shape(batch))].flatten(1) for values in parts]

    def parted(
        self, told: torch.Tensor, first: int
    ) -> tuple[torch.Tensor, torch.Tensor | None, Fields]:
        """Part rows of so many numbers and what `told` returns: the numbers, source and fields."""
        side = self._cells + 1
        sides = [*([] if self._f is None else [side - 2]), *(side for _ in self._varying)]
        g, *parts = told.split([first, *(n**2 for n in sides)], dim=1)
        squares = [values.unflatten(1, (n, n)) for values, n in zip(parts, sides, strict=True)]
        f = None if self._f is None else squares.pop(0)
        return g, f, self.numbers | dict(zip(self._varying, squares, strict=True))

    def of(self, batch: Batch) -> tuple[torch.Tensor | None, Fields]:
        """Return source and fields of a batch of squares."""

        def cut(values: torch.Tensor) -> torch.Tensor:
            return values[batch].flatten(0, 1)

        f = None if self._f is None else cut(self._f)
        return f, self.numbers | {name: cut(values) for name, values in self._varying.items()}

    def _cut(self, values: torch.Tensor) -> torch.Tensor:
        side, step = self._cells + 1, self._step
        return values.unfold(0, side, step).unfold(1, side, step)


def split(count: int, largest: int) -> list[slice]:
    """Return parts of so many, each of at most ``largest``."""
    return [slice(start, min(start + largest, count)) for start in range(0, count, largest)]


def hats_of(square: Subdomain, device: torch.device) -> torch.Tensor:
    """Return the hats on a perimeter, zero inside, ``(8, m + 1, m + 1)``."""
    hats = np.zeros((8, square.cells + 1, square.cells + 1))
    hats[:, *square.perimeter.T] = square.hats()
    return torch.from_numpy(hats).to(device)
