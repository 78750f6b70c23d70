"""Nonlinear equations: a name, fields, and the residual on a patch of nodes.

Those in the gradient of ``u`` alone, `MINIMAL_SURFACE` and `P_LAPLACE`, have the solution of least discrete energy;
see `mosaicdd.problems.operators.gradient_flux`.

A file of the user's own has the same form as this one:

```python
import torch
from mosaicdd import NonlinearEquation

def residual(u, h, c):
    lap = sum(u.neighbours) - 4 * u.centre
    return -lap / h**2 + c.centre * torch.exp(u.centre)

EQUATION = NonlinearEquation("exponential", "-lap u + c exp(u) = f", residual, {"c": 1.0})
```
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import torch

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import NamedEquation
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.gradient_flux import outflow
from mosaicdd.problems.operators.nonlinear import Function, Nonlinear, Residual
from mosaicdd.problems.operators.patch import StencilValues
from mosaicdd.unsupported import Unsupported


@dataclass(frozen=True)
class NonlinearEquation(NamedEquation):
    """An equation ``F(u) = f`` of second order that is not linear in ``u``.

    Parameters
    ----------
    name
        The word that files and command lines use.
    text
        The equation as people write it.
    residual
        ``residual(u, h, **fields)``: the discrete ``F``, see `mosaicdd.problems.operators.nonlinear.Residual`.
    parameters
        Names of the coefficients, which may be fields, and their defaults.
    functions
        Names of the coefficients that depend on ``u``, and their defaults: expressions.
    signs
        Which of the parameters must be positive (True), or not negative (False).
    numbers
        Which of the parameters are one number for the whole domain, and its least value; the residual
        takes them as they are, not as patches.
    self_adjoint
        Whether the derivative of ``F`` is, as that of an energy. It must be, if ``F`` depends on the
        corners of its patches.
    reaction
        The parameter that multiplies ``u``, if there is one: see `Equation`.
    diffusion
        What multiplies all flows between nodes, if there is such a field: given per cell, each cell's flows, or energy,
        are multiplied by its value. It is one of the parameters; or none that the residual takes, and then 1 if it is
        not given.
    axes
        Of the grids that the residual is written for: (2,), or (2, 3) if it sums over all of ``u.neighbours``.

    Raises
    ------
    TypeError
        If a member is of the wrong kind.
    """

    linear: ClassVar[Literal[False]] = False
    varying: ClassVar[tuple[str, ...]] = ()
    instead: ClassVar[Mapping[str, Mapping[str, float]]] = {}

    name: str
    text: str
    residual: Residual
    parameters: Mapping[str, float] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    signs: Mapping[str, bool] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    self_adjoint: bool = True
    reaction: str | None = None
    diffusion: str | None = None
    axes: tuple[int, ...] = (2,)

    source = True
    steady = None
    storage = None

    def __post_init__(self) -> None:
        self._require_members()
        self._require(callable(self.residual), "residual must be a function of a patch")
        self._require("f" not in self.functions, "f is the source, not a function")
        valid = {*self.signs, *self.numbers}.issubset(self.parameters)
        self._require(valid, "signs and numbers must be those of parameters")

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the parameters and functions, and of the source."""
        factor = () if self.diffusion in (None, *self.parameters) else (self.diffusion,)
        return (*self.parameters, *factor, *self.functions, "f")

    def on(self, axes: int) -> Self:
        """Return the equation for domains of ``axes`` axes; `Unsupported` if it has no such form."""
        if axes not in self.axes:
            raise Unsupported(
                f"the equation {self.name} is solved in the plane only, with cells (ny, nx): in space there are of "
                "the nonlinear ones those that say axes=(2, 3)"
            )
        return self

    def complete(self, field_values: Mapping[str, Any]) -> dict[str, Any]:
        """Complete values of parameters and functions by defaults.

        Raises
        ------
        ValueError
            If one is unknown.
        """
        for name in field_values:
            self._require_parameter(name)
        return {**self.parameters, **self.functions, **field_values}

    def operator(self, field_values: Mapping[str, Any], grid: Grid | None = None) -> Nonlinear:
        """Return the operator ``F`` for values of the fields, on a grid.

        Raises
        ------
        ValueError
            If a field is unknown, a number is too small, or a field is given for one.
        """
        values, axes = self.complete(field_values), 2 if grid is None else len(grid.shape)
        fields = {n: Field(n, v, axes) for n, v in values.items() if n not in self.functions}
        factor = fields.get(self.diffusion or "")
        if factor is not None and factor.name in self.parameters:  # else the residual takes it
            factor = factor if grid is not None and factor.per_cell(grid) else None
        signs = self.signs if factor is None else {**self.signs, factor.name: True}
        for name, positive in signs.items():
            number = fields[name].number
            if number is not None and not (number > 0 or (number == 0 and not positive)):
                sign = ">" if positive else ">="
                raise ValueError(f"{self.name} needs {name} {sign} 0, got {number:g}")
        return Nonlinear(
            self,
            {name: field for name, field in fields.items() if name not in self.numbers},
            {name: values[name] for name in self.functions},
            {name: self._number(fields[name]) for name in self.numbers},
            None if factor is None else factor.name,
            grid,
        )

    def _number(self, field: Field) -> float:
        """Return a parameter that must be one number, and large enough."""
        least = self.numbers[field.name]
        if field.number is None:
            raise ValueError(
                f"the field {field.name} of {self.name} must be one number for the whole domain"
            )
        if not least <= field.number < math.inf:
            raise ValueError(f"{self.name} needs {field.name} >= {least:g}, got {field.number:g}")
        return field.number


_SERIES = 1e-3  # below which ``z coth z`` is ``1 + z^2 / 3``, to rounding


def _allen_cahn(u: StencilValues, h: float, eps: StencilValues, c: StencilValues) -> torch.Tensor:
    outward = sum(
        (eps.centre**2 + other**2) / 2.0 * (u.centre - value)
        for other, value in zip(eps.neighbours, u.neighbours, strict=True)
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


def _burgers(u: StencilValues, h: float, nu: StencilValues, c: StencilValues) -> torch.Tensor:
    outward = c.centre * u.centre
    for value, other, sign in zip(u.neighbours, nu.neighbours, (1, -1, -1, 1), strict=True):
        diffusion = 2.0 / (1.0 / nu.centre + 1.0 / other)
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


def _surface(u: StencilValues, h: float) -> torch.Tensor:
    return outflow(u, h, lambda squared: torch.rsqrt(1.0 + squared))


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


def _p_laplace(u: StencilValues, h: float, a: StencilValues, p: float, eps: float) -> torch.Tensor:
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


def _poisson_boltzmann(u: StencilValues, h: float, c: StencilValues) -> torch.Tensor:
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


def _quasilinear(
    u: StencilValues, h: float, a: StencilValues, c: StencilValues, k: Function
) -> torch.Tensor:
    centre, inverse = k(u.centre), 1.0 / a.centre
    outward = sum(
        (centre + 4.0 * k((u.centre + value) / 2.0) + k(value))
        * (u.centre - value)
        / (inverse + 1.0 / other)
        for other, value in zip(a.neighbours, u.neighbours, strict=True)
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


def _reacting(
    u: StencilValues, h: float, a: StencilValues, c: StencilValues, r: Function
) -> torch.Tensor:
    outward = sum(
        2.0 / (1.0 / a.centre + 1.0 / other) * (u.centre - value)
        for other, value in zip(a.neighbours, u.neighbours, strict=True)
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
