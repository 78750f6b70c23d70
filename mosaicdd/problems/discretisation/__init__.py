"""The discrete equation of a problem on a grid, at its sides and outlines, too."""
