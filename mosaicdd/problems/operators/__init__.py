"""The operators of equations: constant, in a medium, nonlinear and their derivatives."""
