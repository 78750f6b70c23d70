"""The discrete equations of a problem on a grid, at its sides and outlines, too."""
