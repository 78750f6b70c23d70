"""Flows, balances and means of a solution, from the fluxes that its residual adds up."""
