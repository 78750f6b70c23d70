"""What people read off a solution: fluxes, flows, balances, means, and where the largest value is."""
