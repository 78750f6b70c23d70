"""Counts of messages and memory of a solve on any number of ranks, before it begins; needs no MPI library."""
