"""What is solved in space, of all that is solved in the plane."""

from collections.abc import Iterable

from mosaicdd.problems.equations.linear import Equation
from mosaicdd.problems.equations.nonlinear import NonlinearEquation
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.unsupported import Unsupported

_FIELDS = "a", "axx", "ayy", "azz", "axy", "axz", "ayz", "bx", "by", "bz", "c", "f", "s"


def require_in_space(
    equation: Equation | NonlinearEquation, fields: Iterable[str], sides: Sides
) -> None:
    """Check that a problem on a box has nothing that is known in the plane alone.

    `Unsupported` if it has, with what is solved in space.
    """
    lacks = None
    if not equation.linear:
        return
    if equation.bilinear:
        lacks = f"the equation {equation.name}, by bilinear elements,"
    elif wrong := sorted(set(fields) - set(_FIELDS)):
        lacks = f"the field {wrong[0]}"
    elif not equation.at().symmetric:
        lacks = f"the equation {equation.name}, which is not the same along all axes,"
    if lacks is not None:
        raise Unsupported(
            f"{lacks} is solved in the plane only: in space, with cells (nz, ny, nx), there are laplace, poisson, "
            f"screened-poisson, diffusion, anisotropic-diffusion, advection-diffusion and heat with the fields {', '.join(_FIELDS)}, values, fluxes, exchanges and periods on sides"
        )
