"""Condensed elements: the discrete equation on lattice lines alone, exactly."""
