r"""What the equation itself says of values on the centre lines of squares: training without labels.

Inside of the four elements between a square's perimeter and its centre lines the equation is solved, so what is left of
it, $r = F(u) - f$, is left on these lines. One step $\delta = -J^{-1} r$, by the derivative's means over the square,
leads from there to about the solution. The mean square of $\delta$ is the loss: in units of the solution, whatever
the grid, and zero for the solution alone. No square is solved for it.
"""

import numpy as np
import torch

from mosaicdd.local_solvers.nonlinear.nonlinear import split
from mosaicdd.local_solvers.nonlinear.square_newton import Fields, SquareNewton
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.storage.samples import SquareDataset
from mosaicdd.training.squares import linear_reaction, place

_ELEMENTS = 128  # whose vectors stay in the cache
_TOLERANCE = 1e-5  # of the last step inside of elements; the error is a tenth of that


class EquationStep:
    """The steps for the squares of a dataset.

    Parameters
    ----------
    outputs
        The nodes of centre lines, ``(Q, 2)``.
    device
        Where the steps are taken.
    """

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
