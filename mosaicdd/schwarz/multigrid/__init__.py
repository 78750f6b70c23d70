"""Media by multigrid: conjugate gradients under a cycle whose coarse functions the operator makes."""
