"""Everything about ranks: process grid, halo exchange, gathering; the only MPI calls."""
