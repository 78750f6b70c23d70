"""Nonlinear equations: Newton's method on the grid."""
