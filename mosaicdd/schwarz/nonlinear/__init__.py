"""Nonlinear equations: Newton's method on the grid, and the iteration of nonlinear local solvers."""
