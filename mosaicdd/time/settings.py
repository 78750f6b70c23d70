r"""The settings of steps in time, said once and checked once; and the methods: which problem a step is.

A step of length $\tau$ from $t$ solves, for a *stage* $s$,

$$\frac{\gamma}{\tau} s + A s = f(t + \theta \tau) + \frac{1}{\tau} \sum_i p_i u_{n-i}, \qquad
  u_{n+1} = \frac{s - (1 - \theta) u_n}{\theta},$$

with values on the sides between those of $u_n$ and those at the end, as $s$ is. With $p = (\gamma)$ and
$\gamma = 1 / \theta$ that is the theta method: implicit Euler with 1, Crank-Nicolson with 1/2. BDF2 has
$\theta = 1$, $\gamma = 3/2$ and two last values; its first step is the theta method with 2/3, of the same
operator, and damps what the initial values have of high frequencies.

Data at the end of a step are their limits from within it, and at its begin, too. Where they jump between two steps
BDF2 begins anew with implicit Euler, which keeps all that comes and leaves no range of the data.

The error of a step is estimated from the difference between the new values and their extrapolation from
the last ones (Milne's device): both are off by known multiples of the same derivative. The first step of BDF2 is
of lower order: what it leaves, $(\theta - 1/2) \tau^2 u''$, is seen in the difference of the second one to the line
through two values.
"""

import math
from dataclasses import dataclass

from mosaicdd.settings import check_settings, setting


@dataclass(frozen=True)
class ImplicitStep:
    """One implicit step."""

    weight: float  # ``gamma``
    past: tuple[float, ...]  # ``p_i``, of the last values, the newest first
    share: float = 1.0  # ``theta``


def theta_step(share: float) -> ImplicitStep:
    """Return a step of the theta method."""
    return ImplicitStep(1.0 / share, (1.0 / share,), share)


@dataclass(frozen=True)
class TimeMethod:
    """A multistep method: its implicit steps, order, and error constants."""

    order: int  # of the error in the step's length
    # By the number of last values that are known, from one on; the last one serves for more
    steps: tuple[ImplicitStep, ...]
    error: float  # what part of the difference to the extrapolated values is the error of a step
    # What part of the difference to a line through two values is the error of the first step; None
    # if that has the order of the others
    first: float | None = None

    @property
    def levels(self) -> int:
        """Last values that the error estimate takes."""
        return self.order + 1

    @property
    def unjudged(self) -> int:
        """Steps before the first one whose difference to the extrapolated values says how good they are."""
        return (self.levels if self.first is None else 2) - 1

    def error_of(self, known: int) -> tuple[float, int]:
        """Return the error constant of a step from so many last values, relative to the difference, and its order."""
        if self.first is not None and known < self.levels:
            return self.first, self.order - 1
        return self.error, self.order

    @property
    def weight(self) -> float:
        """``gamma``, the same of all steps, so that they share an operator."""
        return self.steps[0].weight

    @property
    def anew(self) -> ImplicitStep:
        """The first step after a jump: implicit Euler, which leaves no values beyond those of the data, and stores all that comes."""
        return theta_step(1.0)

    def step(self, known: int) -> ImplicitStep:
        """Return the step from so many last values."""
        return self.steps[min(known, len(self.steps)) - 1]


# Errors of a step, and of the extrapolation, over (step)^(order + 1) times the next derivative: 1/2 and 1
# of the other sign for Euler, 2/9 and 1 for BDF2, 1/12 and 1 for Crank-Nicolson.
METHODS = {
    "euler": TimeMethod(1, (theta_step(1.0),), (1 / 2) / (1 + 1 / 2)),
    "bdf2": TimeMethod(
        2,
        (theta_step(2 / 3), ImplicitStep(1.5, (2.0, -0.5))),
        (2 / 9) / (1 + 2 / 9),
        first=2 / 3 - 1 / 2,
    ),
    "crank-nicolson": TimeMethod(2, (theta_step(0.5),), (1 / 12) / (1 + 1 / 12)),
}
"""By name."""
RTOL = 1e-9
"""Of a step's solve, where the user says nothing: the errors of many steps add up."""


@dataclass(frozen=True)
class TimeSettings:
    """The settings of a solve in time, from 0 to ``steps * dt``.

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
            if vars(self)[name] is None:
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

    @property
    def frames(self) -> int:
        """Times whose fields are kept."""
        return 1 + math.ceil(self.steps / self.every)
