"""Laplace's equation."""

from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator

LAPLACE = Equation(name="laplace", text="lap u = 0", operator=EllipticOperator, source=False)
