"""Trained networks: their files, and what they become when they know a problem."""
