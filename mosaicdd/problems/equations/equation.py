"""What an equation is: its name, its parameters, and the operator for their values.

Each file of this folder holds one. A file of the user's own has the same form:

```python
from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations.equation import Equation

HELMHOLTZ = Equation(
    name="helmholtz",
    text="-lap u - k^2 u = f",
    parameters={"k": 1.0},
    operator=lambda k: EllipticOperator(c=-(k**2)),
)
```
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mosaicdd.problems.elliptic import EllipticOperator


@dataclass(frozen=True)
class Equation:
    """A linear equation ``A u = f`` with constant coefficients.

    Parameters
    ----------
    name
        The word that files and command lines use.
    text
        The equation as people write it.
    operator
        ``operator(**parameters)``: ``A`` for numbers.
    parameters
        Names of the parameters and their defaults.
    varying
        Which of the parameters may be fields: those of a diffusion equation, named ``a`` and ``c``.
    source
        Whether there is a right-hand side, the field ``f``.
    draw
        ``draw(rng)``: parameters, as random as the data that a network for the whole family should
        be trained on; None if that is for the defaults alone.

    Raises
    ------
    TypeError
        If a member is of the wrong kind.
    """

    name: str
    text: str
    operator: Callable[..., EllipticOperator]
    parameters: Mapping[str, float] = field(default_factory=dict)
    varying: tuple[str, ...] = ()
    source: bool = True
    draw: Callable[[np.random.Generator], dict[str, float]] | None = None

    def __post_init__(self) -> None:
        if not callable(self.operator):
            raise TypeError(f"equation {self.name}: operator must be a function of its parameters")
        if "f" in self.parameters:
            raise TypeError(f"equation {self.name}: f is the source, not a parameter")
        if self.varying and sorted(self.parameters) != ["a", "c"]:
            raise TypeError(
                f"equation {self.name}: parameters that may be fields must be those of a medium, a and "
                f"c, got {', '.join(self.parameters)}"
            )
        if not isinstance(self.at(), EllipticOperator):
            raise TypeError(
                f"equation {self.name}: operator must give an EllipticOperator, got "
                f"{type(self.at()).__name__}"
            )

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all that a problem may give: the parameters, and the source if there is one."""
        return (*self.parameters, *(("f",) if self.source else ()))

    def at(self, **values: float) -> EllipticOperator:
        """Return the operator for values of the parameters; those not given have their defaults.

        Raises
        ------
        ValueError
            If a parameter is unknown or not a number, or the values make no elliptic operator.
        """
        for name, value in values.items():
            if name not in self.parameters:
                raise ValueError(
                    f"{self.name} has no field {name!r}; it has: {', '.join(self.fields) or 'none'}"
                )
            if np.ndim(value) != 0 or not np.isreal(value):
                raise ValueError(f"the field {name} of {self.name} must be one real number")
        return self.operator(**{**self.parameters, **values})
