"""Files: boundary data, datasets, models and solutions, all HDF5."""
