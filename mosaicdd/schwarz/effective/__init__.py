"""What a medium of voxels conducts as a whole."""
