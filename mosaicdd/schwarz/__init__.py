"""The iteration: sweep, coarse space, acceleration, stopping, fill and result."""
