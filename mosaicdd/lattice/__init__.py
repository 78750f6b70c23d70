"""Geometry without ranks: grid, subdomain, lattice and interface."""
