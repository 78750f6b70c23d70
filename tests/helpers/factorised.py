"""The discrete solution by a sparse factorisation, the reference for whatever iterates."""

from mosaicdd.solvers.references import solve_directly


def factorised(problem, number=0):
    """Return the field of one of a problem's cases by a sparse LU factorisation."""
    return solve_directly(problem, number=number)
