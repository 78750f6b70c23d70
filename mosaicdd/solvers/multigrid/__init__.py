"""Multigrid for media of any contrast."""
