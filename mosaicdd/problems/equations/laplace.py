"""Laplace's equation."""

from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations.equation import Equation

LAPLACE = Equation(name="laplace", text="lap u = 0", operator=EllipticOperator, source=False)
