"""Poisson's equation."""

from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator

POISSON = Equation(name="poisson", text="-lap u = f", operator=EllipticOperator)
