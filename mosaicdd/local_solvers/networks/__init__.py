"""The networks, each one file; see `registry`."""
