"""The partial differential equations that can be solved, one value per equation.

An `Equation` gives all that the rest of the package needs of a PDE: its continuous residual (for
the PDE loss), its discretisation (for the exact local solver and the references) and exact
solutions (for the lifting). Nothing outside this folder knows a particular equation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Equation:
    """A linear homogeneous equation ``D[u] = 0`` with Dirichlet data.

    Parameters
    ----------
    name
        The word that files and command lines use.
    operator
        ``operator(u_yy, u_xx)``: ``D[u]`` from the second derivatives, any array type.
    stencil
        ``(3, 3)`` weights of the discrete operator times ``spacing**2``, on axes (y, x).
    exact_solutions
        ``exact_solutions(degree, y, x)``: values ``(Q, J)`` at points with coordinates ``(Q,)`` of
        the exact solutions up to a polynomial degree; they solve the discrete equation, too, up to
        degree 3.
    """

    name: str
    operator: Callable
    stencil: tuple[tuple[float, float, float], ...]
    exact_solutions: Callable[[int, np.ndarray, np.ndarray], np.ndarray]


def _harmonic_polynomials(degree: int, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return 1 and the real and imaginary parts of ``(x + i y)**k``, ``k = 1..degree``."""
    z = np.asarray(x) + 1j * np.asarray(y)
    columns = [np.ones(z.shape)]
    for k in range(1, degree + 1):
        columns += [(z**k).real, (z**k).imag]
    return np.stack(columns, axis=-1)


def _laplacian(u_yy, u_xx):
    return u_yy + u_xx


LAPLACE = Equation(
    name="laplace",
    operator=_laplacian,
    stencil=((0.0, 1.0, 0.0), (1.0, -4.0, 1.0), (0.0, 1.0, 0.0)),
    exact_solutions=_harmonic_polynomials,
)

_EQUATIONS = {LAPLACE.name: LAPLACE}


def equation(name: str) -> Equation:
    """Look an equation up by its name.

    Raises
    ------
    ValueError
        If there is no equation of this name.
    """
    try:
        return _EQUATIONS[name]
    except KeyError:
        known = ", ".join(sorted(_EQUATIONS))
        raise ValueError(f"unknown pde {name!r}; known: {known}") from None
