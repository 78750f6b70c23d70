"""The linear equations of the package: constant coefficients, and where `varying` says so fields."""

import math
from dataclasses import replace

import numpy as np

from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.tensors import is_definite, not_definite, told

# The families that networks are trained for: the largest c in 1 / squared domain length, which fades within 1/5 of a
# subdomain; ratio of a tensor's eigenvalues; and velocity, a cell Peclet number of 2 at a spacing of 1/64.
_LARGEST_C, _LARGEST_RATIO, _LARGEST_VELOCITY = 100.0, 100.0, 128.0

LAPLACE = Equation(name="laplace", text="lap u = 0", operator=EllipticOperator, source=False)

POISSON = Equation(name="poisson", text="-lap u = f", operator=EllipticOperator)


def _screened(c: float) -> EllipticOperator:
    if not c >= 0:
        raise ValueError(f"screened-poisson needs c >= 0, got {c:g}; below it describes waves")
    return EllipticOperator(c=c)


def _draw_c(rng: np.random.Generator) -> dict[str, float]:
    """Draw ``c`` dense towards 0, where solutions change the most with it."""
    return {"c": _LARGEST_C * rng.uniform() ** 2}


SCREENED_POISSON = Equation(
    name="screened-poisson",
    text="-lap u + c u = f",
    operator=_screened,
    parameters={"c": 1.0},
    varying=("c",),
    draw=_draw_c,
)
"""Modified Helmholtz, linear Poisson-Boltzmann, reaction-diffusion."""


def tensor(ratio: float, angle: float) -> dict[str, float]:
    """Return the fields of a tensor by its eigenvalues' ratio and its strong axis.

    ``ratio``: of the eigenvalues, whose product is 1; ``angle``: of the axis of the larger one against x, in radians.
    """
    strong, weak = math.sqrt(ratio), 1 / math.sqrt(ratio)
    c, s = math.cos(angle), math.sin(angle)
    return {
        "axx": strong * c * c + weak * s * s,
        "ayy": strong * s * s + weak * c * c,
        "axy": (strong - weak) * c * s,
    }


def _draw_tensor(rng: np.random.Generator) -> dict[str, float]:
    """Draw the ratio uniform in its logarithm, at any angle."""
    return tensor(_LARGEST_RATIO ** rng.uniform(), rng.uniform(0.0, math.pi))


def _directed(
    axx: float,
    ayy: float,
    axy: float,
    azz: float | None = None,
    axz: float = 0.0,
    ayz: float = 0.0,
) -> EllipticOperator:
    if azz is not None and not is_definite(tensor := (azz, ayy, axx, ayz, axz, axy)):
        raise ValueError(f"{not_definite(3)}; {told(tensor)}")
    return EllipticOperator(axx=axx, ayy=ayy, axy=axy)


ANISOTROPIC_DIFFUSION = Equation(
    name="anisotropic-diffusion",
    text="-div(T grad u) = f, T = [[axx, axy], [axy, ayy]], in space with azz, axz and ayz",
    operator=_directed,
    parameters={"axx": 1.0, "ayy": 1.0, "axy": 0.0},
    varying=("axx", "ayy", "axy"),
    draw=_draw_tensor,
    in_space={"azz": 1.0, "axz": 0.0, "ayz": 0.0},
)
"""Diffusion that is stronger in one direction than in the other."""


def _flowing(bx: float, by: float, a: float, c: float, bz: float = 0.0) -> EllipticOperator:
    if not (a > 0 and c >= 0):
        raise ValueError(f"advection-diffusion needs a > 0 and c >= 0, got a {a:g}, c {c:g}")
    return EllipticOperator(ayy=a, axx=a, by=by, bx=bx, c=c)


def _draw_velocity(rng: np.random.Generator) -> dict[str, float]:
    """Draw the velocity's size dense towards 0, in any direction."""
    size, angle = _LARGEST_VELOCITY * rng.uniform() ** 1.5, rng.uniform(0.0, 2 * math.pi)
    return {"bx": size * math.cos(angle), "by": size * math.sin(angle)}


ADVECTION_DIFFUSION = Equation(
    name="advection-diffusion",
    text="-div(a grad u) + b . grad u + c u = f, b = (bx, by), in space (bx, by, bz)",
    operator=_flowing,
    parameters={"bx": 0.0, "by": 0.0, "a": 1.0, "c": 0.0},
    varying=("bx", "by", "a", "c"),
    draw=_draw_velocity,
    reaction="c",
    in_space={"bz": 0.0},
)


def _diffusing(
    c: float,
    a: float = 1.0,
    axx: float | None = None,
    ayy: float | None = None,
    axy: float = 0.0,
    azz: float | None = None,
    axz: float = 0.0,
    ayz: float = 0.0,
) -> EllipticOperator:
    along = {"axx": a if axx is None else axx, "ayy": a if ayy is None else ayy}
    every = along if azz is None else along | {"azz": azz}
    if not (min(every.values()) > 0 and c >= 0):
        told = ", ".join(f"{name} {value:g}" for name, value in every.items())
        raise ValueError(f"diffusion needs a > 0 and c >= 0, got {told}, c {c:g}")
    if azz is not None:
        return _directed(**every, axy=axy, axz=axz, ayz=ayz)
    return EllipticOperator(**along, axy=axy, c=c)


DIFFUSION = Equation(
    name="diffusion",
    text="-div(a grad u) + c u = f, a one field or [[axx, axy], [axy, ayy]], in space with azz, axz and ayz",
    operator=_diffusing,
    parameters={"a": 1.0, "c": 0.0},
    varying=("a", "axx", "ayy", "axy", "c"),
    instead={"a": {"axx": None, "ayy": None, "axy": 0.0}},
    reaction="c",
    in_space={"azz": None, "axz": 0.0, "ayz": 0.0},
)

BILINEAR_DIFFUSION = replace(
    DIFFUSION,
    name="bilinear-diffusion",
    text="as diffusion, by bilinear elements",
    bilinear=True,
)
"""The same by another discrete equation: that of most finite element codes, of nine points."""


def _storing(s: float, **others: float) -> EllipticOperator:
    if not s > 0:
        raise ValueError(
            f"heat needs s > 0, got s {s:g}: where nothing is stored take diffusion, which is steady"
        )
    return _diffusing(**others)


HEAT = replace(
    DIFFUSION,
    name="heat",
    text="s du/dt - div(a grad u) + c u = f, a one field or [[axx, axy], [axy, ayy]], in space with azz, axz and ayz",
    operator=_storing,
    parameters={**DIFFUSION.parameters, "s": 1.0},
    varying=(*DIFFUSION.varying, "s"),
    storage="s",
    steady=DIFFUSION,
)
"""Heat in a medium, whose density times heat capacity is ``s``, or anything that diffuses and fades: in time only."""
