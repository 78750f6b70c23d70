"""Derivatives of what is read off a solution, by what was given: one more solve, with the same plan."""
