"""The coarse problems of two levels: what they know of the lattice, and how they are solved."""
