"""Solvers of the discrete equations on the whole grid, and what all solvers share."""
