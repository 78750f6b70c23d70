"""The lifting: exact solutions are taken out of the perimeter values, and put back.

A learned local solver repeats its error in every subdomain, and the Schwarz fixed point amplifies
the part that acts on low polynomials by the number of subdomains squared. So the perimeter values
are fitted by exact solutions of the equation, only the remainder goes through the network, at unit
size, and the fit is added to what comes out. Training and inference use the same object.

Shape letters: ``B`` subdomains, ``P`` perimeter nodes, ``Q`` query points, ``J`` exact solutions.
"""

import math
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator

_DEPENDENT = 1e-9  # of the largest singular value: solutions that a strong flow makes equal


def unit_points(points: np.ndarray, subdomain: Subdomain) -> np.ndarray:
    """Scale points ``(Q, 2)`` from cells to ``[-1, 1]`` on the subdomain."""
    return 2.0 * np.asarray(points, dtype=float) / subdomain.cells - 1.0


def exact_solutions(
    operator: EllipticOperator, subdomain: Subdomain, degree: int | None, points: np.ndarray
) -> np.ndarray:
    """Evaluate smooth exact solutions at ``points``, ``(Q, 2)`` in cells: ``(Q, 2 degree + 1)``; in space more.

    Polynomials where the operator has second derivatives only. Otherwise the discrete solutions on a
    square twice as wide whose boundary data are harmonic polynomials, cut to the subdomain: they are
    continuous in the operator's coefficients. Between nodes these are interpolated by cubic splines.
    There are none of degree None.
    """
    if degree is None:
        return np.empty((len(points), 0))
    if operator.scale_free:
        return operator.exact_polynomials(degree, *unit_points(points, subdomain).T)
    values = _discrete_solutions(operator, subdomain, degree)
    nodes = np.rint(points).astype(int)
    if np.array_equal(nodes, points):
        return values[tuple(nodes.T)]
    import scipy.interpolate  # slow to import, rarely needed

    along = np.arange(subdomain.cells + 1)
    return np.stack(
        [
            scipy.interpolate.RectBivariateSpline(along, along, solution).ev(
                points[:, 0], points[:, 1]
            )
            for solution in np.moveaxis(values, -1, 0)
        ],
        axis=-1,
    )


@lru_cache(maxsize=512)
def _discrete_solutions(
    operator: EllipticOperator, subdomain: Subdomain, degree: int
) -> np.ndarray:
    """Return discrete solutions at the nodes of a subdomain, ``(m + 1, m + 1, 2 degree + 1)``."""
    m, axes = subdomain.cells, subdomain.axes
    along = np.linspace(-2.0, 2.0, 2 * m + 1)  # in half sides of the subdomain
    points = np.meshgrid(*[along] * axes, indexing="ij")
    fields = EllipticOperator().exact_polynomials(degree, *points)
    system = DirichletSystem(operator, Grid((2 * m,) * axes, subdomain.spacing))
    solve = system.solve if axes == 2 else system.solve_by_sines
    inside = fields[(slice(1, -1),) * axes]
    inside[...] = solve(system.right_hand_side(fields)).reshape(inside.shape)
    part = fields[(slice(m // 2, m // 2 + m + 1),) * axes]
    part = part / np.abs(part).max(axis=tuple(range(axes)))
    part.flags.writeable = False
    return part


class Lifting:
    """Fit perimeter values by exact solutions of the equation, and scale the remainder.

    A stencil without diagonal weights never reads the corners, of a cube the edges. Then neither does the fit, and the
    remainder there is the mean of its neighbours inside of sides or faces, so the network cannot depend on it.

    Parameters
    ----------
    operator, subdomain
        Whose exact solutions are used, and where.
    degree
        Highest polynomial degree of the exact solutions. None takes out and scales nothing: the network
        gets the perimeter as it is, as in the paper.
    device, dtype
        Of the perimeters that `split` will get.

    Raises
    ------
    ValueError
        If the degree is negative or asks for more solutions than the perimeter can tell apart.
    """

    def __init__(
        self,
        operator: EllipticOperator,
        subdomain: Subdomain,
        degree: int | None = 2,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ):
        if degree is not None and degree < 0:
            raise ValueError(f"the lifting degree must be 0 or more, got {degree}")
        self.operator, self.subdomain, self.degree = operator, subdomain, degree
        around = subdomain.perimeter
        at_ends = ((around == 0) | (around == subdomain.cells)).sum(axis=1)
        unread = degree is not None and not operator.couples_corners
        self.unseen = np.flatnonzero(at_ends > 1) if unread else np.zeros(0, int)
        perimeter = self.basis(around)  # (P, J)
        seen = np.delete(np.arange(len(perimeter)), self.unseen)
        tolerance = None if operator.scale_free else 0.0
        if degree is not None and (
            np.linalg.matrix_rank(perimeter[seen], tol=tolerance) < perimeter.shape[1]
        ):
            raise ValueError(
                f"a lifting of degree {degree} needs {perimeter.shape[1]} independent exact solutions "
                f"on {len(seen)} perimeter nodes; lower the degree or use more cells"
            )
        fit = np.zeros_like(perimeter)
        fit[seen] = np.linalg.pinv(perimeter[seen], rcond=_DEPENDENT).T
        self._perimeter = torch.as_tensor(perimeter.T.copy()).to(device, dtype)  # (J, P)
        neighbours = [_inward(around, int(node), subdomain.cells) for node in self.unseen]
        self._unseen = torch.as_tensor(self.unseen).to(device)
        # As many of each, so that a mean is one of columns.
        count = math.lcm(*map(len, neighbours)) if neighbours else 1
        even = [list(nodes) * (count // len(nodes)) for nodes in neighbours]
        table = torch.tensor(even, dtype=torch.long).reshape(-1, count).T
        self._neighbours = table.to(device)  # (count, corners)
        self._fit = torch.as_tensor(fit).to(device, dtype)  # (P, J)

    def basis(self, points: np.ndarray) -> np.ndarray:
        """Evaluate the exact solutions at ``points``, ``(Q, 2)`` in cells: ``(Q, J)``."""
        return exact_solutions(self.operator, self.subdomain, self.degree, np.asarray(points))

    def basis_tensor(self, points: np.ndarray) -> torch.Tensor:
        """Evaluate the exact solutions as `join` wants them: ``(J, Q)``."""
        return torch.as_tensor(self.basis(points).T.copy()).to(self._fit)

    def remove(self, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the remainder ``(B, P)`` and the coefficients ``(B, J)``; linear in ``g``."""
        coefficients = g @ self._fit
        if self.degree is None:
            return g.clone(), coefficients
        remainder = g - coefficients @ self._perimeter
        neighbours = remainder[:, self._neighbours]  # (B, count, corners)
        remainder[:, self._unseen] = neighbours.mean(dim=1)
        return remainder, coefficients

    def split(self, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split perimeters ``(B, P)`` into unit remainder, scale ``(B, 1)`` and coefficients.

        The scale is the root mean square of the remainder, or 1 where the remainder vanishes and
        where nothing is lifted.
        """
        remainder, coefficients = self.remove(g)
        if self.degree is None:
            return remainder, torch.ones_like(g[:, :1]), coefficients
        scale = remainder.square().mean(dim=1, keepdim=True).sqrt()
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        return remainder / scale, scale, coefficients

    @staticmethod
    def join(
        values: torch.Tensor, scale: torch.Tensor, coefficients: torch.Tensor, basis: torch.Tensor
    ) -> torch.Tensor:
        """Undo `split` for values ``(B, Q)`` of the unit remainder, with a basis ``(J, Q)``."""
        return torch.addmm(values * scale, coefficients, basis)

    def compile(self, operator: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return the operator ``(Q, P)`` on perimeters for one on remainders, in float64.

        ``u = Q a + N (g - Q_P a)`` with ``a = F g``: one matrix for a network linear in ``g``.
        """
        exact = Lifting(self.operator, self.subdomain, self.degree)
        identity = torch.eye(operator.shape[1], dtype=torch.float64)
        remainder, coefficients = exact.remove(identity)
        rows = coefficients @ exact.basis_tensor(points) + remainder @ torch.as_tensor(operator).T
        return rows.T.numpy()


def _inward(perimeter: np.ndarray, node: int, cells: int) -> np.ndarray:
    """Return the nearest perimeter nodes inside of sides or faces to a node on a corner or an edge."""
    ends = np.flatnonzero((perimeter[node] == 0) | (perimeter[node] == cells))
    near = np.tile(perimeter[node].clip(1, cells - 1), (len(ends), 1))
    near[np.arange(len(ends)), ends] = perimeter[node, ends]
    return np.flatnonzero((perimeter[:, None] == near).all(axis=2).any(axis=1))
