"""Media seen on a coarser grid, by averages or networks."""
