"""What a nonlinear equation is: its name, its fields, and its residual on a patch of nodes.

A file of the user's own has the same form as the package's, `nonlinear`:

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
from typing import Any, Self

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.equations.equation import NamedEquation
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.nonlinear import Nonlinear, Residual
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
        known = {*self.signs, *self.numbers}.issubset(self.parameters)
        self._require(known, "signs and numbers must be those of parameters")

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all that a problem may give."""
        beside = () if self.diffusion in (None, *self.parameters) else (self.diffusion,)
        return (*self.parameters, *beside, *self.functions, "f")

    def on(self, axes: int) -> Self:
        """Return the equation of domains of so many axes; raise `Unsupported` if it is not written for them."""
        if axes not in self.axes:
            raise Unsupported(
                f"the equation {self.name} is solved in the plane only, with cells (ny, nx): in space there are of "
                "the nonlinear ones those that say axes=(2, 3)"
            )
        return self

    def complete(self, field_values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of all parameters and functions, with the defaults of those not given.

        Raises
        ------
        ValueError
            If one is unknown.
        """
        for name in field_values:
            self._require_parameter(name)
        return {**self.parameters, **self.functions, **field_values}

    def operator(self, field_values: Mapping[str, Any], grid: Grid | None = None) -> Nonlinear:
        """Return ``F`` for values of the fields, on a grid; by default one of the plane.

        Raises
        ------
        ValueError
            If a field is unknown, a number is too small, or a field is given for one.
        """
        values, axes = self.complete(field_values), 2 if grid is None else len(grid.shape)
        names = [name for name in values if name not in self.functions]
        fields = {name: Field(name, values[name], axes) for name in names}
        cells = [name for name in fields if grid is not None and fields[name].per_cell(grid)]
        factor = fields.get(self.diffusion or "")
        if factor is not None and factor.name in self.parameters:
            factor = factor if factor.name in cells else None  # the residual takes it
        signs = self.signs if factor is None else {**self.signs, factor.name: True}
        for name, positive in signs.items():
            number = fields[name].number
            if number is not None and not (number > 0 or (number == 0 and not positive)):
                sign = ">" if positive else ">="
                raise ValueError(f"{self.name} needs {name} {sign} 0, got {number:g}")
        return Nonlinear(
            self.residual,
            {name: field for name, field in fields.items() if name not in self.numbers},
            {name: values[name] for name in self.functions},
            {name: self._number(fields[name]) for name in self.numbers},
            signs=self.signs,
            self_adjoint=self.self_adjoint,
            axes=axes,
            factor=None if factor is None else factor.name,
            taken=[name for name in self.parameters if name not in self.numbers],
            aspect=() if grid is None else grid.aspect,
            cells=cells,
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
