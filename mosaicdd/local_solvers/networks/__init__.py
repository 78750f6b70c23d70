"""The networks; see `registry`."""
