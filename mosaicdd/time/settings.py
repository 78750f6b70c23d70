"""The settings of steps in time: what each means and its default, said once and checked once."""

import math
from dataclasses import dataclass

from mosaicdd.settings import check_settings, setting
from mosaicdd.time.method import METHODS, TimeMethod

RTOL = 1e-9
"""Of a step's solve, where the user says nothing: the errors of many steps add up."""


@dataclass(frozen=True)
class TimeSettings:
    """How an equation is solved in time, from 0 to ``steps * dt``.

    `ValueError` if a value is not allowed.
    """

    steps: int = setting(None, "Solve in time: so many steps.", least=1)
    dt: float = setting(None, "Length of a step, in units of time.")
    method: str = setting(
        "bdf2",
        "bdf2: of second order, damps; euler: of first order, damps most; crank-nicolson: of second "
        "order, damps nothing.",
        tuple(METHODS),
    )
    every: int = setting(
        1, "Keep the values after every so many steps, and the last ones.", least=1
    )
    tolerance: float | None = setting(
        None,
        "Choose the steps: halve and double --dt so that the estimated error of each, relative to the "
        "solution, stays below this.",
    )
    solver_share: float = setting(
        0.05,
        "Solve for each step until the last change is this share of the step's estimated error, or as "
        "small as the solver is asked for anyway; 0: the latter only.",
        least=0,
    )

    def __post_init__(self) -> None:
        for name in ("steps", "dt"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} must be given for an equation in time")
        check_settings(self)
        if not 0 < self.dt < math.inf:
            raise ValueError(f"dt must be a number > 0, got {self.dt}")
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance must lie between 0 and 1, got {self.tolerance}")
        if self.solver_share > 1:
            raise ValueError(f"solver_share must be at most 1, got {self.solver_share}")

    @property
    def scheme(self) -> TimeMethod:
        """The method."""
        return METHODS[self.method]

    @property
    def end(self) -> float:
        """The last time."""
        return self.steps * self.dt
