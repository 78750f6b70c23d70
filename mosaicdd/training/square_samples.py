r"""What a network of corrections sees of squares of a nonlinear equation, and what it is to say.

With labels, that is what the linear equation's solutions lack. Without, the equation itself says it: inside of the four
elements between a square's perimeter and its centre lines it is solved, so what is left of it, $r = F(u) - f$, is left on
these lines. One step $\delta = -J^{-1} r$, by the derivative's means over the square, leads from there to about the
solution. The mean square of $\delta$ is the loss: in units of the solution, whatever the grid, and zero for the solution
alone. No square is solved for it.
"""

import numpy as np
import torch

from mosaicdd.local_solvers.networks.correction import CorrectionNetwork
from mosaicdd.local_solvers.networks.unrolled import UnrolledNetwork
from mosaicdd.local_solvers.nonlinear.nonlinear import split
from mosaicdd.local_solvers.nonlinear.square_newton import Fields, SquareNewton
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.storage.samples import SquareDataset
from mosaicdd.training.squares import learnable_equation, linear_reaction, place

_BATCH = 2048  # squares that are solved at once: 18 MB of 32 cells


class SquareSamples:
    """Of some squares, all of them solved or none; on the processor, in float32.

    Attributes
    ----------
    g, w
        Perimeters, and what the network sees of the source's effect, ``(n, P)`` and ``(n, K)``.
    sigma
        The linear reaction, lengths in sides of the square, ``(n, 1)``.
    linear
        The linear equation's solutions on the centre lines, ``(n, Q)``.
    labels, values
        Corrections and solutions there, if they are solved, ``(n, Q)``; else without rows.
    """

    def __init__(self, squares: SquareDataset, network: CorrectionNetwork | UnrolledNetwork):
        pde = learnable_equation(squares.pde)
        m, h = squares.subdomain.cells, squares.subdomain.spacing
        newton = SquareNewton(pde.operator({}), m, h, torch.device("cpu"))
        reaction = linear_reaction(pde, squares.parameters)
        at, count = network.outputs.T, len(reaction)
        sight = torch.from_numpy(network.sight)
        self.g = torch.from_numpy(squares.boundary).float().clone()  # the lesson changes it
        self.w = torch.zeros(count, sight.shape[1])
        linear = torch.zeros(count, at.shape[1], dtype=torch.float64)
        for start in range(0, count, _BATCH):
            part = slice(start, start + _BATCH)
            f = torch.from_numpy(squares.source[part]).double()[:, 1:-1, 1:-1]
            u = torch.zeros(len(f), m + 1, m + 1, dtype=torch.float64)
            newton.linear(u, f, reaction[part])
            self.w[part] = (u[:, 1:-1, 1:-1].flatten(1) @ sight).float()
            place(torch.from_numpy(squares.boundary[part]).double(), u)
            newton.linear(u, f, reaction[part])
            linear[part] = u[:, *at]
        self.values = torch.from_numpy(squares.solution[:, *at])
        self.labels = (self.values - linear[squares.unsolved :]).float()
        self.linear = linear.float()
        self.sigma = (reaction * squares.subdomain.size**2).float()[:, None]


_ELEMENTS = 128  # whose vectors stay in the cache
_TOLERANCE = 1e-5  # of the last step inside of elements; the error is a tenth of that


class EquationStep:
    """The steps for the squares of a dataset, at the nodes of centre lines ``(Q, 2)``."""

    def __init__(
        self,
        squares: SquareDataset,
        pde: NonlinearEquation,
        outputs: np.ndarray,
        device: torch.device | str = "cpu",
    ):
        square, device = squares.subdomain, torch.device(device)
        operator, m = pde.operator({}), square.cells
        self._names, self._outputs = squares.parameter_names, outputs.T
        self._square = SquareNewton(operator, m, square.spacing, device)
        self._element = SquareNewton(operator, m // 2, square.spacing, device)
        self._g, self._f, self._parameters = (
            torch.from_numpy(values).to(device)
            for values in (squares.boundary, squares.source, squares.parameters)
        )
        self._reaction = linear_reaction(pde, squares.parameters).to(device)
        # Centre lines hold the centre twice: the row, then the column.
        self._lines = torch.from_numpy(np.unique(square.centre_lines, axis=0, return_index=True)[1])

    @torch.no_grad()
    def __call__(self, chosen: torch.Tensor, lines: torch.Tensor) -> torch.Tensor:
        """Return the steps ``(B, Q)`` from values on the centre lines, for squares by their numbers."""
        g, f = self._g[chosen].double(), self._f[chosen].double()
        m, s = self._square.cells, self._element.cells
        u = g.new_zeros(len(g), m + 1, m + 1)
        place(g, u)
        u[:, *self._outputs] = lines.double()
        elements, forces = (field.unfold(1, s + 1, s).unfold(2, s + 1, s) for field in (u, f))
        values = elements.reshape(-1, s + 1, s + 1)
        self._fill(values, forces.reshape(values.shape), chosen.repeat_interleave(4))
        elements[..., 1:-1, 1:-1] = values.view(elements.shape)[..., 1:-1, 1:-1]
        fields = self._fields(chosen)
        r = self._square.residual(u, f[:, 1:-1, 1:-1], fields).float()
        steps = torch.cat(self._square.centre_lines(r, self._square.means(u, fields)), dim=1)
        return -steps[:, self._lines]

    def _fill(self, u: torch.Tensor, f: torch.Tensor, whose: torch.Tensor) -> None:
        """Solve inside of elements, of squares by their numbers."""
        for part in split(len(u), _ELEMENTS):
            force, fields = f[part, 1:-1, 1:-1], self._fields(whose[part])
            self._element.linear(u[part], force, self._reaction[whose[part]])
            means = self._element.means(u[part], fields)
            self._element.relax(u[part], force, fields, means, _TOLERANCE)

    def _fields(self, chosen: torch.Tensor) -> Fields:
        values = self._parameters[chosen].double()
        return {name: values[:, i, None, None] for i, name in enumerate(self._names)}
