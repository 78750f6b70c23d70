"""The Schwarz method on half-overlapping subdomains: lattice, interface, sweep, coarse space, drivers."""
