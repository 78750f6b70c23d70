"""The grid over the ranks: who owns which nodes, ghost nodes, and fields in strips."""
