"""Newton's method for nonlinear equations on the grid."""
