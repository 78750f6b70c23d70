"""Local solvers of one subdomain: the exact discrete one, and networks under a lifting."""
