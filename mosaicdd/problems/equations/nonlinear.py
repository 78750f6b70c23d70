"""The nonlinear equations of the package, each by its residual on a patch of nodes.

Those in the gradient of ``u`` alone, `MINIMAL_SURFACE` and `P_LAPLACE`, have the solution of least discrete energy;
see `mosaicdd.problems.operators.gradient_flux`.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.functions_of_u import Function
from mosaicdd.problems.operators.gradient_flux import outflow
from mosaicdd.problems.operators.patch import Patch

_SERIES = 1e-3  # below which ``z coth z`` is ``1 + z^2 / 3``, to rounding


def _allen_cahn(u: Patch, h: float, eps: Patch, c: Patch) -> torch.Tensor:
    outward = sum(
        (eps.centre**2 + beside**2) / 2.0 * (u.centre - value)
        for beside, value in zip(eps.neighbours, u.neighbours, strict=True)
    )
    return (c.centre - 1.0) * u.centre + u.centre**3 + outward / h**2


ALLEN_CAHN = NonlinearEquation(
    name="allen-cahn",
    text="-div(eps^2 grad u) + u^3 - u + c u = f",
    residual=_allen_cahn,
    parameters={"eps": 0.1, "c": 10.0},
    signs={"eps": True, "c": True},
    reaction="c",
    axes=(2, 3),
)
"""An implicit step of the Allen-Cahn equation, which moves the boundaries between two phases.

``u_t = div(eps^2 grad u) + u - u^3`` by Euler's method in steps of ``dt``: with ``c = 1 / dt``, and ``f`` the last
values times ``c``.
"""


def _burgers(u: Patch, h: float, nu: Patch, c: Patch) -> torch.Tensor:
    outward = c.centre * u.centre
    for value, beside, sign in zip(u.neighbours, nu.neighbours, (1, -1, -1, 1), strict=True):
        diffusion = 2.0 / (1.0 / nu.centre + 1.0 / beside)
        fastest = torch.maximum(u.centre**2, value**2)
        squared = fastest * (h / (2.0 * diffusion)) ** 2
        outward = outward + sign * (value**2 - u.centre**2) / (4.0 * h)
        outward = outward + diffusion * _fitted(squared) * (u.centre - value) / h**2
    return outward


def _fitted(squared: torch.Tensor) -> torch.Tensor:
    """Return ``z coth z`` of squares of half the cell Peclet number."""
    small = squared < _SERIES**2
    z = torch.where(small, torch.ones_like(squared), squared).sqrt()
    return torch.where(small, 1.0 + squared / 3.0, z / torch.tanh(z))


BURGERS = NonlinearEquation(
    name="burgers",
    text="-div(nu grad u) + u (du/dx + du/dy) + c u = f",
    residual=_burgers,
    parameters={"nu": 0.05, "c": 0.0},
    signs={"nu": True, "c": False},
    self_adjoint=False,
    reaction="c",
)
"""A quantity that flows diagonally, as fast as there is of it, and diffuses.

The flux from a node to the next along an axis is ``(u^2 / 2)`` of both, in the mean, less the diffusion between
them, which is fitted exponentially to the faster of the two (Il'in, 1969): of second order where cells are small,
upwind where they are not, so a neighbour never counts with the wrong sign. On a natural side ``nu du/dn`` is given.
"""


def _of_slope(squared: torch.Tensor) -> torch.Tensor:
    return torch.rsqrt(1.0 + squared)


def _surface(u: Patch, h: float) -> torch.Tensor:
    return outflow(u, h, _of_slope)


MINIMAL_SURFACE = NonlinearEquation(
    name="minimal-surface",
    text="-div(grad u / sqrt(1 + |grad u|^2)) = f",
    residual=_surface,
    axes=(2, 3),
)
"""Surfaces of least area over their boundary, or of given mean curvature ``f / 2``: soap films, capillary surfaces.

The area over a cell is the mean over its corners of ``h^2 sqrt(1 + p^2 + q^2)``, with ``p`` and ``q`` the
difference quotients along the two edges of the cell that meet there; over one of a box likewise, of three.
"""


def _p_laplace(u: Patch, h: float, a: Patch, p: float, eps: float) -> torch.Tensor:
    return outflow(u, h, lambda squared: (eps**2 + squared) ** ((p - 2.0) / 2.0), a)


P_LAPLACE = NonlinearEquation(
    name="p-laplace",
    text="-div(a (eps^2 + |grad u|^2)^((p - 2) / 2) grad u) = f",
    residual=_p_laplace,
    parameters={"a": 1.0, "p": 3.0, "eps": 1e-3},
    signs={"a": True, "eps": True},
    numbers={"p": 1.0, "eps": 0.0},
    diffusion="a",
    axes=(2, 3),
)
"""Power-law fluids, glaciers, nonlinear diffusion; regularised by ``eps``.

The energy over a cell is the mean over its corners of ``h^2 a / p (eps^2 + |grad u|^2)^(p / 2)``, less ``f u``, with
``a`` there, or of the cell.
"""


def _poisson_boltzmann(u: Patch, h: float, c: Patch) -> torch.Tensor:
    laplacian = (sum(u.neighbours) - len(u.neighbours) * u.centre) / h**2
    return c.centre * torch.sinh(u.centre) - laplacian


POISSON_BOLTZMANN = NonlinearEquation(
    name="poisson-boltzmann",
    text="-div(a grad u) + c sinh u = f",
    residual=_poisson_boltzmann,
    parameters={"c": 1.0},
    signs={"c": False},
    diffusion="a",
    axes=(2, 3),
)
"""A potential in an electrolyte, in units of the thermal voltage; ``c`` is the inverse squared Debye length
where the permittivity ``a`` is 1, as it is by default.

For small potentials it is the screened Poisson equation of the same ``c``.
"""


def _quasilinear(u: Patch, h: float, a: Patch, c: Patch, k: Function) -> torch.Tensor:
    here, inverse = k(u.centre), 1.0 / a.centre
    outward = sum(
        (here + 4.0 * k((u.centre + value) / 2.0) + k(value))
        * (u.centre - value)
        / (inverse + 1.0 / beside)
        for beside, value in zip(a.neighbours, u.neighbours, strict=True)
    )
    return outward / (3.0 * h**2) + c.centre * u.centre


QUASILINEAR_DIFFUSION = NonlinearEquation(
    name="quasilinear-diffusion",
    text="-div(a k(u) grad u) + c u = f",
    residual=_quasilinear,
    parameters={"a": 1.0, "c": 0.0},
    functions={"k": "1 + u**2"},
    signs={"a": True, "c": False},
    self_adjoint=False,
    reaction="c",
    diffusion="a",
    axes=(2, 3),
)
"""Diffusion whose coefficient depends on the solution: heat with a conductivity of the temperature.

Between two nodes flows the difference of their values times the harmonic mean of ``a`` and the mean of ``k``
over the values between theirs by Simpson's rule, so that of a cubic ``k`` Kirchhoff's transform is reproduced
exactly, however steep the solution is; by the mean of both ends it was met with first order there.
"""


def _reacting(u: Patch, h: float, a: Patch, c: Patch, r: Function) -> torch.Tensor:
    outward = sum(
        2.0 / (1.0 / a.centre + 1.0 / beside) * (u.centre - value)
        for beside, value in zip(a.neighbours, u.neighbours, strict=True)
    )
    return outward / h**2 + c.centre * u.centre + r(u.centre)


REACTION_DIFFUSION = NonlinearEquation(
    name="reaction-diffusion",
    text="-div(a grad u) + r(u) + c u = f",
    residual=_reacting,
    parameters={"a": 1.0, "c": 0.0},
    functions={"r": "u**3"},
    signs={"a": True, "c": False},
    reaction="c",
    diffusion="a",
    axes=(2, 3),
)
"""Diffusion with a reaction that depends on the concentration, as growth up to a capacity does.

For instance ``r = u**2 - u`` (Fisher, 1937; Kolmogorov, Petrovsky, Piskunov, 1937), ``r = u**3 - u`` (Allen, Cahn).
In time the steps must be so short that one over the step exceeds what ``r`` falls with ``u``.
"""
