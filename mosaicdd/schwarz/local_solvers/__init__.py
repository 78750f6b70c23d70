"""What solves one subdomain: the exact discrete solver and networks under a lifting."""
