"""What results are worth, and how they look: comparisons and pictures."""
