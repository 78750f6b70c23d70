"""Command line: one file per command; the only place that touches COMM_WORLD and exit codes."""
