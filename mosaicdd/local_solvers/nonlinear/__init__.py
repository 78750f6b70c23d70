"""Local solvers of nonlinear equations: Newton's method, and networks that correct."""
