"""Poisson's equation."""

from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations.equation import Equation

POISSON = Equation(name="poisson", text="-lap u = f", operator=EllipticOperator)
