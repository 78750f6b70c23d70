"""Training of subdomain networks: dataset, losses, optimisers and loop."""
