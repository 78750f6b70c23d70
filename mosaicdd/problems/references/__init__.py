"""Solutions of the whole discrete problem by other methods and libraries."""
